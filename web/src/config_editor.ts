// The editor of a gateway's configuration: problems stand below their lines.
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { search, searchKeymap } from "@codemirror/search";
import { EditorState, type Extension, RangeSetBuilder, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type DecorationSet, drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers, WidgetType } from "@codemirror/view";
import { look, mount } from "./dev/frame.ts";

export interface Mark {
  readonly line: number;
  readonly kind: "bad" | "warn";
  readonly words: string;
}

class Words extends WidgetType {
  constructor(
    readonly kind: string,
    readonly words: string,
  ) {
    super();
  }
  override eq(other: Words) {
    return other.kind === this.kind && other.words === this.words;
  }
  toDOM() {
    const box = document.createElement("div");
    box.className = `cm-words ${this.kind}`;
    box.textContent = this.words;
    return box;
  }
}

const setMarks = StateEffect.define<readonly Mark[]>();
const marks = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(shown, change) {
    for (const effect of change.effects) if (effect.is(setMarks)) return decorate(change.state, effect.value);
    return shown.map(change.changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

function decorate(state: EditorState, all: readonly Mark[]): DecorationSet {
  const builder = new RangeSetBuilder<Decoration>();
  const sorted = all.filter((one) => one.line >= 1 && one.line <= state.doc.lines).sort((a, b) => a.line - b.line);
  const lines = new Map<number, Mark[]>();
  for (const one of sorted) lines.set(one.line, [...(lines.get(one.line) ?? []), one]);
  for (const [number, here] of lines) {
    const line = state.doc.line(number);
    const kind = here.some((one) => one.kind === "bad") ? "bad" : "warn";
    builder.add(line.from, line.from, Decoration.line({ class: `cm-marked ${kind}` }));
    for (const one of here) builder.add(line.to, line.to, Decoration.widget({ widget: new Words(one.kind, one.words), block: true, side: 1 }));
  }
  return builder.finish();
}

const marked = EditorView.theme({
  ".cm-marked.bad": { backgroundColor: "var(--bad-bg)" },
  ".cm-marked.warn": { backgroundColor: "var(--warn-bg)" },
  ".cm-words": { fontFamily: "var(--sans)", padding: "2px 10px", whiteSpace: "pre-wrap", overflowWrap: "anywhere" },
  ".cm-words.bad": { color: "var(--bad)", backgroundColor: "var(--bad-bg)" },
  ".cm-words.warn": { color: "var(--warn)", backgroundColor: "var(--warn-bg)" },
});

export function configEditor(host: HTMLElement, label: string, onChange: (text: string) => void) {
  const extensions: Extension = [
    look,
    marked,
    marks,
    lineNumbers(),
    history(),
    drawSelection(),
    highlightActiveLine(),
    search({ top: true }),
    EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
    EditorView.updateListener.of((update) => update.docChanged && onChange(update.state.doc.toString())),
    keymap.of([...searchKeymap, ...historyKeymap, ...defaultKeymap]),
  ];
  const view = mount(host, EditorState.create({ extensions }));
  return {
    view,
    open: (text: string) => view.setState(EditorState.create({ doc: text, extensions })),
    mark: (all: readonly Mark[]) => view.dispatch({ effects: setMarks.of(all) }),
    goTo(line: number) {
      const at = view.state.doc.line(Math.min(Math.max(1, line), view.state.doc.lines)).from;
      view.dispatch({ selection: { anchor: at }, effects: EditorView.scrollIntoView(at, { y: "center" }) });
      view.focus();
    },
  };
}
