// Calls to a cluster through the console. A protected cluster first requires a typed name and a reason.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { api, Problem } from "./api.ts";
import { visible } from "./format.ts";
import { you } from "./roles.ts";
import { route } from "./router.ts";
import { clusterOf } from "./state.ts";
import { t } from "./strings.ts";
import type { CallResult } from "./types.ts";
import { Button, Name } from "./ui/bits.tsx";
import { Dialog } from "./ui/dialog.tsx";
import { Text } from "./ui/field.tsx";

export interface Call {
  readonly method: string;
  readonly path: string;
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

interface Question {
  /** What is to be confirmed: the call, and where it goes. */
  readonly call: string;
  readonly on: string;
  readonly text: string;
  readonly index: string;
  readonly answer: (confirm: { index: string; reason: string } | null) => void;
}
const question = signal<Question | null>(null);
/** How many pages can show a question. */
let shown = 0;

/** Whoever still waits for an answer gets none, and does nothing. */
function put(next: Question | null): void {
  const before = question.peek();
  question.value = next;
  if (before !== next) before?.answer(null);
}

/** Who looks at what. What was called for elsewhere, or by somebody else, is not confirmed here. */
const whereabouts = (): string => `${you.peek()?.name} ${route.peek().parts.join("/")}`;

/** Sends a call, after asking the user if the cluster is protected. Aborting it stops the call at the cluster too. */
export async function call(cluster: string, what: Call, abort?: AbortSignal): Promise<CallResult> {
  return confirmed({ ...what, on: clusterOf(cluster)?.name ?? cluster }, (confirm) =>
    api<CallResult>(`clusters/${encodeURIComponent(cluster)}/call`, {
      method: "POST",
      body: { ...what, ...(confirm ? { confirm } : {}) },
      ...(abort ? { signal: abort } : {}),
    }),
  );
}

/** Sends a call, and sends it again with the user's confirmation if the server requires one. */
export async function confirmed<T>(what: { method: string; path: string; on: string }, send: (confirm?: { index: string; reason: string }) => Promise<T>): Promise<T> {
  let said: { index: string; reason: string } | undefined;
  const began = whereabouts();
  for (;;) {
    try {
      return await send(said);
    } catch (error) {
      const index = confirmOf(error);
      if (index === null || !shown || whereabouts() !== began) throw error;
      const answer = await new Promise<{ index: string; reason: string } | null>((resolve) => {
        const mine: Question = { call: `${what.method} ${what.path}`, on: what.on, text: (error as Problem).message, index, answer: (said) => (resolve(said), question.peek() === mine && put(null)) };
        put(mine);
      });
      if (!answer || whereabouts() !== began) throw error;
      said = answer;
    }
  }
}

function confirmOf(error: unknown): string | null {
  if (!(error instanceof Problem)) return null;
  const confirm = error.body["confirm"] as { index?: string } | undefined;
  return confirm ? (confirm.index ?? "") : null;
}

/** The answer of a call that must succeed and return JSON. */
export async function callJson<T>(cluster: string, what: Call, abort?: AbortSignal): Promise<T> {
  const answer = await call(cluster, what, abort);
  let value: unknown;
  try {
    value = JSON.parse(answer.body);
  } catch {
    throw new Problem(answer.status, "not_json", t.problems.notJson(answer.status));
  }
  if (answer.status >= 400) {
    const error = (value as { error?: { reason?: string; type?: string } | string }).error;
    const why = typeof error === "string" ? error : (error?.reason ?? error?.type ?? "");
    throw new Problem(answer.status, "cluster", `${answer.status}: ${why || answer.body.slice(0, 300)}`);
  }
  return value as T;
}

/** The dialog for confirmations; a page that makes calls contains it once. */
export function Confirm() {
  const asked = question.value;
  useEffect(() => {
    shown++;
    return () => (shown--, put(null));
  }, []);
  const where = `${you.value?.name} ${route.value.parts.join("/")}`;
  useEffect(() => () => put(null), [where]);
  return asked ? <Form key={asked} asked={asked} /> : null;
}

/** A call is shown to its end: what is cut off would be confirmed unseen. */
const whole = (text: string): string => (text.match(/[^]{1,200}/gu) ?? []).map(visible).join("");

function Form({ asked }: { asked: Question }) {
  const [index, setIndex] = useState("");
  const [why, setWhy] = useState("");
  const good = index === asked.index && why.trim() !== "";
  return (
    <Dialog title={t.confirm.title} onClose={() => asked.answer(null)}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (good) asked.answer({ index, reason: why.trim() });
        }}
      >
        <p class="confirms">
          <bdi class="mono">{whole(asked.call)}</bdi> {t.confirm.on} <Name value={asked.on} />
        </p>
        <p>
          <bdi>{visible(asked.text)}</bdi>
        </p>
        <p>{t.confirm.text(visible(asked.index))}</p>
        <Text label={t.confirm.name} value={index} onValue={setIndex} autocomplete="off" autofocus required />
        <Text label={t.confirm.reason} value={why} onValue={setWhy} autocomplete="off" required />
        <div class="actions">
          <Button onClick={() => asked.answer(null)}>{t.confirm.cancel}</Button>
          <Button type="submit" look="danger" disabled={!good}>
            {t.confirm.go}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
