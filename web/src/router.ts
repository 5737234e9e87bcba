// The page's own router. Routes are in the fragment of the address (`#`), so the page runs under any prefix
// and the server need not know them.
import { signal } from "@preact/signals";

/** The place of the page: `/c/prod/templates` and the parameters after its `?`. */
export interface Route {
  readonly parts: readonly string[];
  readonly query: ReadonlyMap<string, string>;
}

export function parse(hash: string): Route {
  const text = hash.replace(/^#/, "");
  const at = text.indexOf("?");
  const path = at < 0 ? text : text.slice(0, at);
  const query = new Map(new URLSearchParams(at < 0 ? "" : text.slice(at + 1)));
  return { parts: path.split("/").filter(Boolean).map(decode), query };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The link to a place. Names are encoded, and empty parameters are left out of the query. */
export function link(parts: readonly string[], query: Readonly<Record<string, string | undefined>> = {}): string {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value) words.set(key, value);
  const tail = words.toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${tail ? `?${tail}` : ""}`;
}

export const route = signal<Route>(parse(""));

export function go(to: string): void {
  location.hash = to;
}

/** Changes parameters of the query in place: a filter is not a step in the history. */
export function requery(change: Readonly<Record<string, string | undefined>>): void {
  const now = route.value;
  const to = link(now.parts, { ...Object.fromEntries(now.query), ...change });
  history.replaceState(null, "", to);
  route.value = parse(to);
}

export function startRouter(): void {
  const read = () => (route.value = parse(location.hash));
  addEventListener("hashchange", read);
  read();
}
