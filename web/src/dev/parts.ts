// Reads long texts in parts, with time for keys between them: to read a text of 10 MB at once, and to hand it
// to the browser, takes some hundred milliseconds.
import type { Tabs } from "../types.ts";

/** Number of characters that are read at once. */
export const PART = 250_000;

/** Waits until what is due has been done. Timers would take a second each in a tab that is not in front. */
export const turn = (): Promise<void> =>
  new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => (port1.close(), done());
    port2.postMessage(0);
  });

/** The tabs as JSON. */
export async function jsonOf({ tabs, ...more }: Tabs, between = turn): Promise<Blob> {
  const parts: (string | Blob)[] = [`{"tabs":[`];
  for (const [n, { text, ...tab }] of tabs.entries()) {
    parts.push(`${n ? "," : ""}${JSON.stringify({ ...tab, text: "" }).slice(0, -2)}`);
    for (let from = 0; from < text.length; from += PART) {
      // JSON has an escape for half of a surrogate pair, and two such halves are a pair again.
      parts.push(new Blob([JSON.stringify(text.slice(from, from + PART)).slice(1, -1)]));
      if (text.length > PART) await between();
    }
    parts.push(`"}`);
  }
  return new Blob([...parts, `],${JSON.stringify(more).slice(1)}`]);
}
