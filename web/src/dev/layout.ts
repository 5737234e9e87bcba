// Lays JSON out in lines without parsing it into values: that would alter 1.0 and numbers above 2^53.

const SLICE = 256 * 1024;

/** Returns the text laid out, or unchanged if it isn't JSON. Yields to the browser every quarter of a megabyte. */
export async function layOut(text: string, signal?: AbortSignal): Promise<string> {
  if (!/^\s*[[{]/.test(text)) return text;
  const out: string[] = [];
  let depth = 0;
  let pause = SLICE;
  let from = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === QUOTE) {
      for (i++; i < text.length && text.charCodeAt(i) !== QUOTE; i++) if (text.charCodeAt(i) === BACKSLASH) i++;
      continue;
    }
    const space = c === 32 || c === 10 || c === 13 || c === 9;
    const open = c === 123 || c === 91;
    const close = c === 125 || c === 93;
    if (!space && !open && !close && c !== COMMA && c !== COLON) continue;
    out.push(text.slice(from, i));
    from = i + 1;
    if (open) {
      const end = nextSolid(text, i + 1);
      if (text.charCodeAt(end) === c + 2) {
        out.push(text[i]!, text[end]!);
        i = end;
        from = i + 1;
      } else {
        depth++;
        out.push(text[i]!, line());
      }
    } else if (close) {
      if (--depth < 0) return text;
      out.push(line(), text[i]!);
    } else if (c === COMMA) out.push(",", line());
    else if (c === COLON) out.push(": ");
    else if (depth === 0 && c === 10) out.push("\n");
    if (i > pause) {
      pause = i + SLICE;
      await new Promise((resume) => setTimeout(resume));
      signal?.throwIfAborted();
    }
  }
  out.push(text.slice(from));
  return depth === 0 ? out.join("") : text;
}

const QUOTE = 34;
const BACKSLASH = 92;
const COMMA = 44;
const COLON = 58;

function nextSolid(text: string, at: number): number {
  while (/\s/.test(text[at] ?? "")) at++;
  return at;
}
