// CodeMirror in a shadow root, where its styles are adopted style sheets, which the page's strict policy
// allows.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, acceptCompletion, type CompletionSource } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, toggleComment } from "@codemirror/commands";
import { bracketMatching, foldGutter, foldKeymap, syntaxHighlighting } from "@codemirror/language";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState, type Extension, Prec, RangeSetBuilder } from "@codemirror/state";
import { Decoration, type DecorationSet, drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers, ViewPlugin, type ViewUpdate } from "@codemirror/view";
import { colours, consoleLanguage, folds, indents } from "./language.ts";
import { requestsAt } from "./parser.ts";

const look = EditorView.theme({
  "&": { height: "100%", fontSize: "13px", color: "var(--text)", backgroundColor: "var(--panel)" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55", overflow: "auto" },
  ".cm-content": { caretColor: "var(--text)", padding: "6px 0" },
  // The panel around the editor is drawn as focused.
  "&.cm-focused": { outline: "none" },
  ".cm-cursor": { borderLeftColor: "var(--text)", borderLeftWidth: "2px" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--select) !important" },
  ".cm-gutters": { backgroundColor: "var(--panel)", color: "var(--text-2)", border: "none" },
  ".cm-activeLine": { backgroundColor: "transparent" },
  ".cm-request": { backgroundColor: "var(--hover)" },
  ".cm-matchingBracket": { backgroundColor: "var(--select)", outline: "1px solid var(--line-2)" },
  ".cm-tooltip": { backgroundColor: "var(--panel)", color: "var(--text)", border: "1px solid var(--line-2)", borderRadius: "6px", overflow: "hidden" },
  ".cm-tooltip-autocomplete ul": { fontFamily: "var(--mono)", fontSize: "12px", maxHeight: "15em" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionDetail": { opacity: "0.8", fontStyle: "normal", marginLeft: "1em" },
  ".cm-panels": { backgroundColor: "var(--bg)", color: "var(--text)", borderColor: "var(--line)" },
  ".cm-panel input, .cm-panel button": { font: "inherit", color: "inherit", background: "var(--panel)", border: "1px solid var(--line-2)", borderRadius: "4px" },
  ".cm-foldPlaceholder": { backgroundColor: "var(--hover)", border: "none", color: "var(--text-2)", padding: "0 4px" },
});

/** Tints the request that Ctrl Enter would run. */
const atCursor = ViewPlugin.fromClass(
  class {
    decorations: DecorationSet;
    constructor(view: EditorView) {
      this.decorations = mark(view);
    }
    update(update: ViewUpdate) {
      if (update.docChanged || update.selectionSet) this.decorations = mark(update.view);
    }
  },
  { decorations: (plugin) => plugin.decorations },
);

const line = Decoration.line({ class: "cm-request" });
/** Length above which a text is not parsed on every key: suggestions and the tint are left out. */
const LONG = 2_000_000;

function mark(view: EditorView): DecorationSet {
  const { doc, selection } = view.state;
  const builder = new RangeSetBuilder<Decoration>();
  if (doc.length > LONG) return builder.finish();
  const { from, to } = selection.main;
  for (const request of requestsAt(doc.toString(), from, to)) {
    for (let at = doc.lineAt(request.from); ; at = doc.line(at.number + 1)) {
      builder.add(at.from, at.from, line);
      if (at.to >= request.to || at.number >= doc.lines) break;
    }
  }
  return builder.finish();
}

export interface EditorOptions {
  readonly label: string;
  readonly onChange: (text: string) => void;
  readonly onRun: () => void;
  readonly complete: CompletionSource;
}

const shared: Extension = [look, syntaxHighlighting(colours), consoleLanguage, folds, indents, lineNumbers(), foldGutter(), drawSelection(), search({ top: true })];

function mount(host: HTMLElement, state: EditorState): EditorView {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const box = document.createElement("div");
  box.part.add("editor");
  root.replaceChildren(box);
  const view = new EditorView({ state, parent: box, root });
  box.style.height = "100%";
  return view;
}

/** An editor of requests. `open` changes the text, and keeps the undo history of each text. */
export function requestEditor(host: HTMLElement, options: EditorOptions) {
  const states = new Map<string, EditorState>();
  let shown = "";
  const extensions: Extension = [
    shared,
    history(),
    closeBrackets(),
    bracketMatching(),
    highlightActiveLine(),
    highlightSelectionMatches(),
    atCursor,
    autocompletion({ override: [options.complete], icons: false, maxRenderedOptions: 60 }),
    EditorView.contentAttributes.of({ "aria-label": options.label }),
    EditorView.updateListener.of((update) => update.docChanged && options.onChange(update.state.doc.toString())),
    Prec.highest(
      keymap.of([
        { key: "Mod-Enter", run: () => (options.onRun(), true) },
        { key: "Mod-/", run: toggleComment },
        { key: "Tab", run: acceptCompletion },
      ]),
    ),
    keymap.of([...closeBracketsKeymap, ...completionKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap, ...defaultKeymap]),
  ];
  const view = mount(host, EditorState.create({ extensions }));
  return {
    view,
    open(id: string, text: string) {
      if (shown && shown !== id) states.set(shown, view.state);
      const kept = states.get(id);
      shown = id;
      view.setState(kept?.doc.toString() === text ? kept : EditorState.create({ doc: text, extensions }));
    },
    forget: (id: string) => states.delete(id),
    insert(text: string) {
      const { doc, selection } = view.state;
      const end = doc.lineAt(selection.main.to).to;
      const piece = `${end > 0 ? "\n\n" : ""}${text}`;
      view.dispatch({ changes: { from: end, insert: piece }, selection: { anchor: end + (end > 0 ? 2 : 0) }, scrollIntoView: true });
      view.focus();
    },
  };
}

/** Shows answers. Only the visible lines are drawn, so a long answer costs no more than a short one. */
export function answerView(host: HTMLElement, label: string) {
  const wrapping = new Compartment();
  const extensions = (wrap: boolean): Extension => [
    shared,
    EditorState.readOnly.of(true),
    wrapping.of(wrap ? EditorView.lineWrapping : []),
    EditorView.contentAttributes.of({ "aria-label": label, "aria-readonly": "true" }),
    keymap.of([...searchKeymap, ...foldKeymap, ...defaultKeymap]),
  ];
  const view = mount(host, EditorState.create({ extensions: extensions(false) }));
  return {
    view,
    show: (text: string, wrap: boolean) => view.setState(EditorState.create({ doc: text, extensions: extensions(wrap) })),
    wrap: (wrap: boolean) => view.dispatch({ effects: wrapping.reconfigure(wrap ? EditorView.lineWrapping : []) }),
  };
}
