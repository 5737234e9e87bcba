// How the editor reads requests: a request line, then JSON with comments and triple-quoted texts.
import { foldService, HighlightStyle, indentService, StreamLanguage, type StringStream } from "@codemirror/language";
import type { Line, Text } from "@codemirror/state";
import { tags } from "@lezer/highlight";

interface Reading {
  triple: boolean;
  /** Whether a method was read on the request line, and the path follows. */
  line: boolean;
}

function token(stream: StringStream, state: Reading): string | null {
  if (state.triple) {
    if (stream.skipTo('"""')) {
      stream.match('"""');
      state.triple = false;
    } else stream.skipToEnd();
    return "string";
  }
  if (stream.sol()) {
    state.line = false;
    stream.eatSpace();
    if (stream.match(/^(GET|POST|PUT|DELETE|HEAD|PATCH)(?=\s+\S)/i)) {
      state.line = true;
      return "keyword";
    }
    if (stream.match(/^(#|\/\/).*/)) return "comment";
  }
  if (stream.eatSpace()) return null;
  if (state.line) {
    if (stream.match(/^[?&][^=&]*/)) return "attributeName";
    if (stream.match(/^=[^&]*/)) return "attributeValue";
    if (stream.match(/^\/?_[^/?]*/)) return "typeName";
    if (stream.match(/^\/?[^/?&]+/)) return "labelName";
    stream.next();
    return "labelName";
  }
  if (stream.match('"""')) {
    state.triple = !stream.match(/^.*?"""/);
    return "string";
  }
  if (stream.match(/^"(?:[^"\\]|\\.)*"?/)) return stream.match(/^\s*:/, false) ? "propertyName" : "string";
  if (stream.match(/^-?\d+(\.\d+)?([eE][+-]?\d+)?/)) return "number";
  if (stream.match(/^(true|false|null)\b/)) return "atom";
  if (stream.match(/^[{}[\]]/)) return "brace";
  if (stream.match(/^[,:]/)) return "punctuation";
  stream.next();
  return null;
}

export const consoleLanguage = StreamLanguage.define<Reading>({
  name: "console",
  startState: () => ({ triple: false, line: false }),
  copyState: (state) => ({ ...state }),
  token,
  languageData: { commentTokens: { line: "#" }, closeBrackets: { brackets: ["{", "[", '"'] } },
});

/** Indents like the previous line, and by two more after an opening bracket. */
export const indents = indentService.of((context, pos) => {
  const before = context.lineAt(pos, -1);
  const indent = /^\s*/.exec(before.text)![0].length;
  const after = context.state.sliceDoc(pos, context.state.doc.lineAt(pos).to);
  return Math.max(0, indent + (/[[{]\s*$/.test(before.text) ? 2 : 0) - (/^\s*[}\]]/.test(after) ? 2 : 0));
});

/**
 * Folds from a line that ends in an opening bracket to the line with the closing one, as JSON is laid out. Every
 * visible line is asked on every key, so only the next line is read; where a fold ends is found out once it is
 * folded. If its closing bracket is missing or far away, it ends where it was given up.
 */
export const folds = foldService.of((state, from, to) => {
  const { doc } = state;
  const line = doc.lineAt(from);
  if (!/[[{]\s*$/.test(line.text)) return null;
  const indent = indentOf(line.text);
  let next = line;
  for (let n = 0; n < FOLD_BLANKS && next.number < doc.lines && (n === 0 || !next.text.trim()); n++) next = doc.line(next.number + 1);
  if (!next.text.trim() || next === line) return null;
  if (indentOf(next.text) <= indent) return CLOSES.test(next.text) ? { from: to, to: next.from + indentOf(next.text) } : null;
  return {
    from: to,
    get to() {
      return foldEnd(doc, next, indent);
    },
  };
});

/** The end of a fold that begins before a line. */
function foldEnd(doc: Text, first: Line, indent: number): number {
  let at = first.from;
  let end = first.to;
  for (const text of doc.iterLines(first.number, Math.min(doc.lines, first.number + FOLD_LINES) + 1)) {
    const own = indentOf(text);
    if (own <= indent && text.trim()) return CLOSES.test(text) ? at + own : end;
    if (text.trim()) end = at + text.length;
    at += text.length + 1;
  }
  return end;
}

const indentOf = (text: string): number => /^\s*/.exec(text)![0].length;
const CLOSES = /^\s*[}\]]/;
const FOLD_BLANKS = 100;
const FOLD_LINES = 20_000;

export const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--hl-method)", fontWeight: "600" },
  { tag: tags.typeName, color: "var(--hl-api)" },
  { tag: tags.labelName, color: "var(--text)" },
  { tag: tags.attributeName, color: "var(--hl-key)" },
  { tag: tags.attributeValue, color: "var(--hl-string)" },
  { tag: tags.propertyName, color: "var(--hl-key)" },
  { tag: tags.string, color: "var(--hl-string)" },
  { tag: tags.number, color: "var(--hl-number)" },
  { tag: tags.atom, color: "var(--hl-number)" },
  { tag: tags.comment, color: "var(--text-2)", fontStyle: "italic" },
  { tag: [tags.brace, tags.punctuation], color: "var(--text-2)" },
]);
