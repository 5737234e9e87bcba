// What all editors share: their look, and the shadow root, where CodeMirror's styles are adopted style
// sheets, which the page's strict policy allows.
import { type EditorState } from "@codemirror/state";
import { EditorView } from "@codemirror/view";

export const look = EditorView.theme({
  "&": { height: "100%", fontSize: "13px", color: "var(--text)", backgroundColor: "var(--panel)" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55", overflow: "auto", contain: "strict" },
  ".cm-content": { caretColor: "var(--text)", padding: "6px 0" },
  ".cm-activeLine": { backgroundColor: "transparent" },
  // The panel around the editor is drawn as focused.
  "&.cm-focused": { outline: "none" },
  ".cm-cursor": { borderLeftColor: "var(--text)", borderLeftWidth: "2px" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--select) !important" },
  ".cm-gutters": { backgroundColor: "var(--panel)", color: "var(--text-2)", border: "none" },
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

export function mount(host: HTMLElement, state: EditorState): EditorView {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const box = document.createElement("div");
  box.part.add("editor");
  root.replaceChildren(box);
  const view = new EditorView({ state, parent: box, root });
  box.style.height = "100%";
  return view;
}
