// The editor of requests, and the view of answers.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, acceptCompletion, type CompletionSource } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, toggleComment } from "@codemirror/commands";
import { bracketMatching, foldGutter, foldKeymap, syntaxHighlighting } from "@codemirror/language";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState, type Extension, Prec, RangeSetBuilder } from "@codemirror/state";
import { Decoration, type DecorationSet, drawSelection, EditorView, keymap, lineNumbers, ViewPlugin, type ViewUpdate } from "@codemirror/view";
import { look, mount } from "./frame.ts";
import { colours, consoleLanguage, folds, indents } from "./language.ts";
import { requestsAt } from "./parser.ts";
import { PART, turn } from "./parts.ts";

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
/**
 * Length above which a text is not read as a whole on every key: suggestions and the tint are left out, and changes
 * are told after a pause.
 */
export const LONG = 2_000_000;
const PAUSE_MS = 400;

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
  /** A text has changed: the one that was opened by this id. */
  readonly onChange: (id: string, text: string) => void;
  readonly onRun: () => void;
  readonly complete: CompletionSource;
}

const shared: Extension = [look, syntaxHighlighting(colours), consoleLanguage, folds, indents, lineNumbers(), foldGutter(), drawSelection(), search({ top: true })];

/** An editor of requests. `open` changes the text, and keeps the undo history of each text. */
export function requestEditor(host: HTMLElement, options: EditorOptions) {
  const states = new Map<string, EditorState>();
  let shown = "";
  let timer = 0;
  const tell = () => {
    clearTimeout(timer);
    timer = 0;
    options.onChange(shown, view.state.doc.toString());
  };
  const tellInParts = async () => {
    const { doc } = view.state;
    const parts: string[] = [];
    for (let from = 0; from < doc.length; from += PART) {
      parts.push(doc.sliceString(from, from + PART));
      await turn();
      // It has changed again, or has been told of.
      if (!timer || view.state.doc !== doc) return;
    }
    timer = 0;
    options.onChange(shown, parts.join(""));
  };
  const changed = (length: number) => {
    clearTimeout(timer);
    if (length <= LONG) tell();
    else timer = window.setTimeout(() => void tellInParts(), PAUSE_MS);
  };
  const extensions: Extension = [
    shared,
    history(),
    closeBrackets(),
    bracketMatching(),
    highlightSelectionMatches(),
    atCursor,
    autocompletion({ override: [options.complete], icons: false, maxRenderedOptions: 60 }),
    EditorView.contentAttributes.of({ "aria-label": options.label }),
    EditorView.updateListener.of((update) => update.docChanged && changed(update.state.doc.length)),
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
      if (timer) tell();
      if (shown && shown !== id) states.set(shown, view.state);
      const kept = states.get(id);
      shown = id;
      view.setState(kept?.doc.toString() === text ? kept : EditorState.create({ doc: text, extensions }));
    },
    forget: (id: string) => states.delete(id),
    close() {
      if (timer) tell();
      view.destroy();
    },
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
