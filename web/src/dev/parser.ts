// Parses the editor's text: requests of the form `METHOD path`, each with the lines of its body below it.

export const METHODS = ["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH"] as const;

export interface Request {
  readonly method: string;
  readonly path: string;
  /** The body as it is sent: without comments, and with triple-quoted texts as JSON strings. Empty if there is none. */
  readonly body: string;
  /** Positions in the text: the beginning of the request line, and the end of the body. */
  readonly from: number;
  readonly to: number;
}

const LINE = /^\s*(GET|POST|PUT|DELETE|HEAD|PATCH)\s+(\S.*?)\s*$/i;
const COMMENT = /^\s*(#|\/\/)/;

/** All requests of a text, in order. Lines before the first request belong to none. */
export function requests(text: string): Request[] {
  const found: { method: string; path: string; from: number; to: number; lines: string[] }[] = [];
  let at = 0;
  let quoted = false;
  for (const line of text.split("\n")) {
    const head = quoted ? null : LINE.exec(line);
    if (head) found.push({ method: head[1]!.toUpperCase(), path: head[2]!, from: at, to: at + line.length, lines: [] });
    else {
      const last = found.at(-1);
      if (last && !(COMMENT.test(line) && !quoted)) {
        last.lines.push(line);
        if (line.trim()) last.to = at + line.length;
        if ((line.match(/"""/g)?.length ?? 0) % 2 === 1) quoted = !quoted;
      }
    }
    at += line.length + 1;
  }
  return found.map(({ method, path, from, to, lines }) => ({
    method,
    path: path.startsWith("/") ? path : `/${path}`,
    from,
    to,
    body: bodyOf(lines, path),
  }));
}

function bodyOf(lines: readonly string[], path: string): string {
  const body = untriple(lines.join("\n")).trim();
  return body && linewise(path) ? `${body}\n` : body;
}

/** Converts `"""a "text" of lines"""` to the JSON string that it stands for. */
function untriple(body: string): string {
  return body.replace(/"""([\s\S]*?)"""/g, (_, text: string) => JSON.stringify(text.replace(/^\n/, "").replace(/\n\s*$/, "")));
}

/** Calls whose bodies have one JSON object per line, and end with a line break. */
export function linewise(path: string): boolean {
  return /(^|\/)(_bulk|_msearch|_msearch\/template)$/.test(path.split("?")[0]!);
}

/** The requests that a selection touches; without a selection, the request at the cursor (or the last one before it). */
export function requestsAt(text: string, from: number, to: number): Request[] {
  const all = requests(text);
  if (from !== to) return all.filter((r) => r.from < to && r.to > from);
  const at = all.filter((r) => r.from <= from).at(-1) ?? all[0];
  return at ? [at] : [];
}

/** The place of the cursor within its request, for suggestions. */
export type Place =
  | { readonly kind: "method"; readonly word: string }
  | { readonly kind: "path"; readonly method: string; readonly path: string }
  | { readonly kind: "param"; readonly method: string; readonly path: string; readonly name: string; readonly value: string | null }
  | { readonly kind: "body"; readonly path: string; readonly keys: readonly string[]; readonly word: string; readonly isKey: boolean };

export function placeAt(text: string, pos: number): Place | null {
  const start = text.lastIndexOf("\n", pos - 1) + 1;
  const before = text.slice(start, pos);
  const head = /^\s*(GET|POST|PUT|DELETE|HEAD|PATCH)\s+(\S*)$/i.exec(before);
  if (head) {
    const [path, query] = split(head[2]!, "?");
    const method = head[1]!.toUpperCase();
    if (query === null) return { kind: "path", method, path };
    const last = query.slice(query.lastIndexOf("&") + 1);
    const [name, value] = split(last, "=");
    return { kind: "param", method, path, name, value };
  }
  if (/^\s*[a-z]*$/i.test(before) && !insideBody(text, start)) return { kind: "method", word: before.trim() };
  const request = requestsAt(text, pos, pos)[0];
  if (!request || request.from >= start) return null;
  const body = text.slice(text.indexOf("\n", request.from) + 1, pos);
  return { kind: "body", path: request.path.split("?")[0]!, ...within(body) };
}

function split(text: string, by: string): [string, string | null] {
  const at = text.indexOf(by);
  return at < 0 ? [text, null] : [text.slice(0, at), text.slice(at + 1)];
}

function insideBody(text: string, pos: number): boolean {
  const request = requests(text).filter((r) => r.from < pos).at(-1);
  if (!request) return false;
  return within(text.slice(text.indexOf("\n", request.from) + 1, pos)).depth > 0;
}

/** The keys that enclose the end of a piece of JSON, the word begun there, and whether a key comes next. */
function within(body: string): { keys: string[]; word: string; isKey: boolean; depth: number } {
  const stack: { key: string; array: boolean }[] = [];
  let key = "";
  let due = true;
  let word = "";
  for (let i = 0; i < body.length; i++) {
    const c = body[i]!;
    word = "";
    if (c === '"') {
      const end = stringEnd(body, i);
      word = body.slice(i + 1, end < 0 ? body.length : end);
      if (end < 0) break;
      if (due) key = word;
      i = end;
      word = "";
    } else if (c === "{" || c === "[") {
      stack.push({ key, array: c === "[" });
      key = "";
      due = c === "{";
    } else if (c === "}" || c === "]") {
      stack.pop();
      due = false;
    } else if (c === ":") due = false;
    else if (c === ",") due = stack.at(-1)?.array === false;
    else if (/\w/.test(c)) {
      const rest = /^[\w.]+$/.exec(body.slice(i));
      if (rest) {
        word = rest[0];
        break;
      }
    }
  }
  const keys = [...stack.map((level) => level.key).filter(Boolean), ...(due ? [] : [key])].filter(Boolean);
  return { keys, word, isKey: due && stack.length > 0, depth: stack.length };
}

function stringEnd(text: string, open: number): number {
  for (let i = open + 1; i < text.length; i++) {
    if (text[i] === "\\") i++;
    else if (text[i] === '"') return i;
    else if (text[i] === "\n") return -1;
  }
  return -1;
}
