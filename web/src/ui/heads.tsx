// The heads of a table's columns.

/** A column's name; of a column with numbers, or of the one that takes the room that is left. */
export type Head = string | readonly [name: string, kind: "right" | "wide"];

/** The heads of columns with numbers. */
export const numbers = (...names: string[]): Head[] => names.map((name): Head => [name, "right"]);

export function Heads({ of, unseen }: { of: readonly Head[]; unseen?: boolean }) {
  return (
    <thead class={unseen ? "hidden" : undefined}>
      <tr>
        {of.map((head) => {
          const [name, kind] = typeof head === "string" ? ([head, undefined] as const) : head;
          return (
            <th key={name} scope="col" class={kind}>
              {name}
            </th>
          );
        })}
      </tr>
    </thead>
  );
}
