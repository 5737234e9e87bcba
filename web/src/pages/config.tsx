// A gateway's configuration: its text is checked, compared with what is in force, and applied. The gateway
// takes it back by itself unless somebody keeps it in time.
import { useEffect, useRef, useState } from "preact/hooks";
import { isAbort, reason } from "../api.ts";
import { Confirm } from "../call.tsx";
import { configEditor } from "../config_editor.ts";
import { dateTime, exact, visible } from "../format.ts";
import { ask, pathOf } from "../gateway_call.ts";
import { lineDiff } from "../line_diff.ts";
import { tokenActs } from "../live.ts";
import { link } from "../router.ts";
import { gatewayOf } from "../state.ts";
import { t } from "../strings.ts";
import { Button, Header, Loading, Name, Note, Trouble } from "../ui/bits.tsx";
import { TokenNote } from "../ui/forbidden.tsx";
import { Heads } from "../ui/heads.tsx";
import { usePoll } from "../ui/poll.ts";

const c = t.config;

interface Problem {
  readonly severity: "error" | "warning";
  readonly line?: number;
  readonly column?: number;
  readonly path: string;
  readonly message: string;
  readonly help: string | null;
}
interface Verdict {
  readonly valid: boolean;
  readonly problems: readonly Problem[];
  readonly words?: string;
  readonly changes?: { readonly restart: readonly string[] };
}
interface Applied {
  readonly actor: string;
  readonly state: "unconfirmed" | "confirmed" | "reverted" | "overtaken";
  readonly changes: string;
  readonly why: string | null;
  readonly at_ms: number;
  readonly within_s: number;
  readonly left_s: number | null;
  readonly was_ready: boolean;
  readonly not_ready: readonly string[];
}
interface File {
  readonly file: string;
  readonly version: string | null;
  readonly in_force: boolean;
  readonly text: string | null;
  readonly read_only: string | null;
  readonly has_former: boolean;
}

/** A text that was in force, by the gateway's name for it. */
interface Base {
  readonly text: string;
  readonly version: string | null;
}

const call = <T,>(id: string, method: string, name: string, body?: string, query: Readonly<Record<string, string | number>> = {}, abort?: AbortSignal) =>
  ask<T>(id, { method, path: pathOf(["config", name], query), ...(body === undefined ? {} : { body }) }, abort);

export function ConfigPage({ id }: { id: string }) {
  const [file, setFile] = useState<File | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const load = () => {
    setProblem(null);
    call<File>(id, "GET", "_file").then(setFile, (error) => isAbort(error) || setProblem(reason(error)));
  };
  useEffect(load, [id]);
  const applied = usePoll((signal) => call<Applied | null>(id, "GET", "_applied", undefined, {}, signal), (told) => (told?.state === "unconfirmed" ? 500 : 2000), [id]);
  const last = applied.data;
  // What is in force is another text once something was applied or taken back.
  const seen = last ? `${last.at_ms} ${last.state}` : "";
  const before = useRef<string | null>(null);
  useEffect(() => {
    if (applied.at === 0) return;
    if (before.current !== null && before.current !== seen) load();
    before.current = seen;
  }, [seen, applied.at === 0]);
  return (
    <>
      <Header
        title={
          <>
            {c.title}: <Name value={gatewayOf(id)?.name ?? id} />
          </>
        }
      >
        <a class="button" href={link(["g", id])}>
          {c.back}
        </a>
      </Header>
      {problem ? <Trouble text={problem} onRetry={load} /> : null}
      {applied.problem && !problem ? <Trouble text={c.noNews(applied.problem)} /> : null}
      {last ? <Outcome id={id} last={last} again={applied.again} /> : null}
      {file ? <Text id={id} file={file} pending={last?.state === "unconfirmed"} again={applied.again} reload={load} /> : problem ? null : <Loading lines={10} />}
      <Confirm />
    </>
  );
}

/** What was applied last: a count-down while it is not confirmed, or what became of it. */
function Outcome({ id, last, again }: { id: string; last: Applied; again: () => void }) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const decide = async (name: "_confirm" | "_revert") => {
    if (busy) return;
    setBusy(true);
    setProblem(null);
    try {
      await call(id, "POST", name);
    } catch (error) {
      setProblem(reason(error));
    }
    setBusy(false);
    again();
  };
  const who = visible(last.actor);
  if (last.state !== "unconfirmed") {
    const words = { confirmed: c.confirmed, reverted: c.reverted, overtaken: c.overtaken }[last.state];
    return (
      <Note kind={last.state === "confirmed" ? "ok" : last.state === "reverted" ? "warn" : "info"}>
        <bdi>
          {words(who, dateTime(last.at_ms))} {last.changes ? `(${visible(last.changes)})` : ""} {last.why ? visible(last.why) : ""}
        </bdi>
      </Note>
    );
  }
  const left = Math.max(0, Math.ceil(last.left_s ?? 0));
  return (
    <section class="panel applied" aria-label={c.pending}>
      <h2>{c.pending}</h2>
      <p>
        <bdi>{c.by(who, visible(last.changes))}</bdi>
      </p>
      <p class="count-down">
        <strong class="num">{c.left(left)}</strong> <progress value={last.within_s - (last.left_s ?? 0)} max={last.within_s} aria-label={c.time} />
      </p>
      {last.not_ready.length ? (
        <Note kind="warn">
          <bdi>{c.notReady(last.not_ready.map(visible).join("; "), last.was_ready)}</bdi>
        </Note>
      ) : (
        <Note kind="ok">{c.ready}</Note>
      )}
      {problem ? <Trouble text={problem} /> : null}
      <div class="actions">
        <Button look="primary" busy={busy} onClick={() => void decide("_confirm")}>
          {c.keep}
        </Button>
        <Button look="danger" onClick={() => void decide("_revert")}>
          {c.takeBack}
        </Button>
      </div>
    </section>
  );
}

function Text({ id, file, pending, again, reload }: { id: string; file: File; pending: boolean; again: () => void; reload: () => void }) {
  const box = useRef<HTMLDivElement>(null);
  const editor = useRef<ReturnType<typeof configEditor> | null>(null);
  const inForce: Base = { text: file.text ?? "", version: file.version };
  const [text, setText] = useState(inForce.text);
  /** What the text is a change of. It stays so while somebody works on the text: the gateway then refuses to undo what
   * somebody else has applied meanwhile. */
  const [base, setBase] = useState(inForce);
  const [verdict, setVerdict] = useState<(Verdict & { readonly of: string }) | null>(null);
  /** A comparison holds for the text that was compared. */
  const [compared, setReview] = useState<{ readonly told: Verdict; readonly text: string } | null>(null);
  const review = compared?.text === text ? compared : null;
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState<"" | "check" | "compare" | "apply">("");
  useEffect(() => {
    const made = (editor.current = configEditor(box.current!, c.editor, (now) => (setText(now), setReview(null))));
    made.open(file.text ?? "");
    return () => made.view.destroy();
  }, []);
  // Another text in force replaces this one, unless somebody works on it here.
  useEffect(() => {
    const told = inForce.text;
    if (text === base.text && told !== text) {
      editor.current?.open(told);
      setText(told);
      setVerdict(null);
    }
    if (text === base.text || told === text) setBase(inForce);
    setReview(null);
  }, [file.text, file.version]);
  const isBehind = !pending && base.text !== inForce.text && text !== base.text;
  useEffect(() => {
    const marks = (verdict?.problems ?? []).map((one) => ({ line: one.line ?? 1, kind: one.severity === "error" ? ("bad" as const) : ("warn" as const), words: wordsOf(one) }));
    editor.current?.mark(marks);
  }, [verdict]);
  const doing = async (what: "check" | "compare" | "apply", work: () => Promise<void>) => {
    if (busy) return;
    setBusy(what);
    setProblem(null);
    try {
      await work();
    } catch (error) {
      setProblem(reason(error));
    }
    setBusy("");
  };
  const check = () => doing("check", async () => setVerdict({ ...(await call<Verdict>(id, "POST", "_check", text)), of: text }));
  const compare = () =>
    doing("compare", async () => {
      const told = await call<Verdict>(id, "POST", "_diff", text);
      setVerdict({ ...told, of: text });
      setReview(told.valid ? { told, text } : null);
    });
  const apply = () =>
    doing("apply", async () => {
      await call(id, "POST", "_apply", text, { version: (base.text === inForce.text ? inForce : base).version ?? "" });
      setBase({ text, version: base.version });
      setReview(null);
      setVerdict(null);
      again();
    });
  const errors = verdict?.problems.filter((one) => one.severity === "error").length ?? 0;
  const acts = tokenActs(id);
  const mayNot = file.read_only !== null || !file.in_force || pending || !acts || isBehind;
  return (
    <>
      {file.read_only !== null ? <Note kind="info">{c.readOnly(visible(file.file), visible(file.read_only))}</Note> : null}
      <TokenNote gateway={id} what={t.roles.configuring} />
      {file.in_force ? null : <Note kind="warn">{c.notInForce(visible(file.file))}</Note>}
      {isBehind ? (
        <Note kind="warn">
          {c.behind} <Button onClick={() => (setBase(inForce), setProblem(null))}>{c.rebase}</Button>
        </Note>
      ) : null}
      <section class="panel config" aria-label={c.text}>
        <div class="panel-head">
          <h2 class="mono">
            <Name value={file.file} />
          </h2>
          <span class="sub">{c.masked}</span>
          <div class="actions">
            <Button busy={busy === "check"} disabled={!acts} onClick={() => void check()}>
              {c.check}
            </Button>
            <Button look="primary" busy={busy === "compare"} disabled={mayNot} onClick={() => void compare()}>
              {c.compare}
            </Button>
          </div>
        </div>
        <div ref={box} class="editor" />
      </section>
      {problem ? <Trouble text={problem} onRetry={() => (setProblem(null), reload())} /> : null}
      {verdict && !review ? (
        verdict.problems.length ? (
          <section class="panel" aria-label={c.problems}>
            <h2 class="panel-head">{c.found(errors, verdict.problems.length - errors)}</h2>
            <ul class="problems">
              {verdict.problems.map((one, n) => (
                <li key={n}>
                  <Button look="quiet" onClick={() => editor.current?.goTo(one.line ?? 1)}>
                    {c.at(one.line ?? 1, one.column ?? 1)}
                  </Button>{" "}
                  <bdi>{wordsOf(one)}</bdi>
                </li>
              ))}
            </ul>
          </section>
        ) : verdict.of === text ? (
          <Note kind="ok">{c.good}</Note>
        ) : null
      ) : null}
      {review ? <Review before={file.text ?? ""} after={review.text} told={review.told} busy={busy === "apply"} onApply={() => void apply()} onClose={() => setReview(null)} /> : null}
    </>
  );
}

const wordsOf = (one: Problem): string => visible(`${one.path ? `${one.path}: ` : ""}${one.message}${one.help ? `; ${one.help}` : ""}`);

function Review({ before, after, told, busy, onApply, onClose }: { before: string; after: string; told: Verdict; busy: boolean; onApply: () => void; onClose: () => void }) {
  const lines = lineDiff(before, after);
  const restart = told.changes?.restart ?? [];
  const head = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    head.current?.focus();
    head.current?.scrollIntoView({ block: "nearest" });
  }, []);
  return (
    <section class="panel review" aria-label={c.review}>
      <h2 class="panel-head" tabIndex={-1} ref={head}>
        {c.review}
      </h2>
      <p>
        <bdi>{visible(told.words ?? "")}</bdi>
      </p>
      {lines.length ? (
        <div class="scroll" tabIndex={0} role="region" aria-label={c.lines}>
          <table class="line-diff">
            <Heads of={[c.before, c.after, c.change, c.line]} unseen />
            <tbody>
              {lines.map((line, n) =>
                line.kind === "gap" ? (
                  <tr key={n} class="gap">
                    <td colSpan={4}>{c.same(line.before)}</td>
                  </tr>
                ) : (
                  <tr key={n} class={line.kind}>
                    <td class="num">{line.before || ""}</td>
                    <td class="num">{line.after || ""}</td>
                    <td>
                      <span aria-hidden="true">{{ added: "+", removed: "−", same: "" }[line.kind]}</span>
                      <span class="hidden">{line.kind === "same" ? "" : c.kinds[line.kind]}</span>
                    </td>
                    <td class="mono">{visible(line.text)}</td>
                  </tr>
                ),
              )}
            </tbody>
          </table>
        </div>
      ) : (
        <p class="sub">{c.noLines}</p>
      )}
      {restart.length ? <Note kind="warn">{c.restart(restart.map(visible).join(", "))}</Note> : null}
      <p class="sub">{c.how(exact(30))}</p>
      <div class="actions">
        <Button look="primary" busy={busy} disabled={restart.length > 0 || !lines.length} onClick={onApply}>
          {c.apply}
        </Button>
        <Button onClick={onClose}>{c.cancel}</Button>
      </div>
    </section>
  );
}
