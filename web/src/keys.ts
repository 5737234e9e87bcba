// Keys that work on every page. While the user types into a field, only Ctrl K works.
import { signal } from "@preact/signals";

export const helpOpen = signal(false);
/** Whether charts are shown as tables. */
export const asTables = signal(false);
export const paletteOpen = signal(false);

let pending = "";
let timer = 0;

function typing(event: KeyboardEvent): boolean {
  const at = event.composedPath()[0];
  return at instanceof HTMLElement && (at.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName));
}

/** Moves the focus among the rows of the page's first list: `j` and `k`. */
function step(by: 1 | -1): void {
  const rows = [...document.querySelectorAll<HTMLElement>("main [data-row]")];
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by));
  const row = rows[next]!;
  (row.querySelector<HTMLElement>("a, button") ?? row).focus();
}

export function startKeys(places: () => Readonly<Record<string, (() => void) | undefined>>): void {
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
      // It works in fields and in the editor too, since it leads from anywhere to anywhere. Before the login
      // there is nowhere to go.
      if (!document.querySelector("main") || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      paletteOpen.value = true;
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || typing(event)) return;
    if (document.querySelector("dialog[open]")) return;
    const key = event.key;
    if (pending) {
      pending = "";
      const place = places()[key];
      if (place) {
        event.preventDefault();
        place();
      }
      return;
    }
    const act: (() => void) | undefined = {
      g: () => {
        pending = "g";
        clearTimeout(timer);
        timer = window.setTimeout(() => (pending = ""), 1500);
      },
      "/": () => document.querySelector<HTMLElement>("main [data-filter]")?.focus(),
      "?": () => (helpOpen.value = true),
      t: () => (asTables.value = !asTables.value),
      j: () => step(1),
      k: () => step(-1),
    }[key];
    if (act) {
      event.preventDefault();
      act();
    }
  });
}
