// Parts of a JSON text as they are written. Parsed and written again, 1.0, 1e400, numbers above 2^53 and a
// key that occurs twice would be others.

/** The values of an object's members, each as it is written; of a key that occurs twice the last, as parsers take it. */
export function rawMembers(text: string): Map<string, string> {
  return new Map(parts(text, "{").map(({ key, value }) => [key, value]));
}

/** The elements of an array, each as it is written. */
export function rawItems(text: string): string[] {
  return parts(text, "[").map(({ value }) => value);
}

/** The text is JSON already: a browser has parsed it. */
function parts(text: string, open: "{" | "["): { key: string; value: string }[] {
  const found: { key: string; value: string }[] = [];
  let at = solid(text, 0);
  if (text[at] !== open) return found;
  for (at = solid(text, at + 1); at < text.length && text[at] !== "}" && text[at] !== "]"; ) {
    let key = "";
    if (open === "{") {
      const end = endOf(text, at);
      key = JSON.parse(text.slice(at, end)) as string;
      // Past the colon.
      at = solid(text, solid(text, end) + 1);
    }
    const end = endOf(text, at);
    found.push({ key, value: text.slice(at, end) });
    at = solid(text, end);
    if (text[at] === ",") at = solid(text, at + 1);
  }
  return found;
}

const SPACE = /[^ \t\r\n]/g;
/** Where a string ends, or something that is none may nest or end. */
const TURN = /["{}[\],: \t\r\n]/g;
const QUOTE = /["\\]/g;

function next(pattern: RegExp, text: string, from: number): number {
  pattern.lastIndex = from;
  return pattern.exec(text)?.index ?? text.length;
}

const solid = (text: string, from: number): number => next(SPACE, text, from);

function endOfString(text: string, from: number): number {
  let at = next(QUOTE, text, from + 1);
  while (text[at] === "\\") at = next(QUOTE, text, at + 2);
  return at + 1;
}

/** Where the value ends that begins here. */
function endOf(text: string, from: number): number {
  let depth = 0;
  for (let at = from; at < text.length; ) {
    const c = text[at]!;
    if (c === '"') {
      at = endOfString(text, at);
      if (depth === 0) return at;
      continue;
    }
    if (c === "{" || c === "[") depth++;
    else if (c === "}" || c === "]") {
      if (--depth === 0) return at + 1;
    } else if (depth === 0) return next(TURN, text, at);
    at = next(TURN, text, at + 1);
  }
  return text.length;
}
