// How the editor reads requests: a request line, then JSON with comments and triple-quoted texts.
import { foldService, HighlightStyle, indentService, StreamLanguage, type StringStream } from "@codemirror/language";
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

/** Folds from a line that ends in an opening bracket to the line with the closing one, as JSON is laid out. */
export const folds = foldService.of((state, from, to) => {
  const line = state.doc.lineAt(from);
  if (!/[[{]\s*$/.test(line.text)) return null;
  const indent = /^\s*/.exec(line.text)![0].length;
  for (let n = line.number + 1; n <= Math.min(state.doc.lines, line.number + FOLD_LINES); n++) {
    const next = state.doc.line(n);
    const at = /^\s*/.exec(next.text)![0].length;
    if (at <= indent && next.text.trim()) return /^\s*[}\]]/.test(next.text) ? { from: to, to: next.from + at } : null;
  }
  return null;
});
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
