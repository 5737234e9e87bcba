// What differs between two values of JSON, value by value.

export interface Difference {
  /** Where it is: `clusters.prod`. Empty where the values themselves are no objects. */
  readonly key: string;
  /** Absent where there is none. */
  readonly before: unknown;
  readonly after: unknown;
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> => typeof value === "object" && value !== null && !Array.isArray(value);

/** Null counts as absent at the top: what is registered has no before, what is removed no after. */
export function differences(before: unknown, after: unknown): Difference[] {
  return walk("", before ?? undefined, after ?? undefined);
}

function walk(key: string, before: unknown, after: unknown): Difference[] {
  const [left, right] = [before, after].map((side) => (isObject(side) ? side : side === undefined ? {} : null));
  if (!left || !right || (before === undefined && after === undefined) || !(isObject(before) || isObject(after))) {
    return JSON.stringify(before) === JSON.stringify(after) ? [] : [{ key, before, after }];
  }
  const keys = [...new Set([...Object.keys(left), ...Object.keys(right)])];
  // An empty object that comes or goes is a difference of its own.
  if (!keys.length && before !== undefined && after !== undefined) return [];
  if (!keys.length) return [{ key, before, after }];
  return keys.flatMap((name) => walk(key ? `${key}.${name}` : name, own(left, name), own(right, name)));
}

const own = (of: Readonly<Record<string, unknown>>, name: string): unknown => (Object.hasOwn(of, name) ? of[name] : undefined);
