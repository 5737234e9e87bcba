// Short messages about what was just done. They are read out, and disappear after a while.
import { signal } from "@preact/signals";
import { t } from "../strings.ts";
import { visible } from "../format.ts";
import { Button } from "./bits.tsx";
import { Icon } from "./icon.tsx";

const words = signal<readonly { id: number; kind: "ok" | "bad"; text: string }[]>([]);
let last = 0;

export function tell(text: string, kind: "ok" | "bad" = "ok"): void {
  const id = ++last;
  words.value = [...words.value.slice(-2), { id, kind, text }];
  setTimeout(() => drop(id), kind === "bad" ? 12_000 : 5000);
}

const drop = (id: number) => (words.value = words.value.filter((w) => w.id !== id));

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {words.value.map(({ id, kind, text }) => (
        <div key={id} class={`toast ${kind}`}>
          <Icon name={kind} />
          <bdi>{visible(text)}</bdi>
          <Button look="quiet" icon="close" aria-label={t.toast.dismiss} onClick={() => drop(id)} />
        </div>
      ))}
    </div>
  );
}
