// One template: a form with the fields that matter for writing, the same as JSON, and its effect on an index.
import { useMemo, useState } from "preact/hooks";
import { reason } from "../api.ts";
import { callJson } from "../call.tsx";
import { visible } from "../format.ts";
import { go, link } from "../router.ts";
import { t } from "../strings.ts";
import { dict, fromFields, matches, toFields, whoSets, type Dict, type Fields, type Json, type Kind, type Template } from "../templates.ts";
import { Button, Note, Trouble } from "../ui/bits.tsx";
import { Ask } from "../ui/dialog.tsx";
import { Area, Check, Choice, Text } from "../ui/field.tsx";
import { tell } from "../ui/toast.tsx";
import { Origins } from "./templates.tsx";

const s = t.templates;
/** The template that the walk-through begins with, which is made for fast writes. */
const FRESH: Dict = { index_patterns: [], template: {} };

interface Props {
  cluster: string;
  template: Template | null;
  all: readonly Template[];
  readOnly: boolean;
  onChanged: () => void;
}

type Simulated = { kind: "index"; answer: Dict } | { kind: "legacy"; index: string };

const pathOf = (kind: Kind, name: string) => `/${kind === "index" ? "_index_template" : "_template"}/${encodeURIComponent(name)}`;

/** Fields that servers return but do not accept. */
function withoutAnswerOnly(body: Dict): Dict {
  const { created_date: _a, created_date_millis: _b, modified_date: _c, modified_date_millis: _d, ...rest } = body;
  return rest as Dict;
}

export function Editor({ cluster, template, all, readOnly, onChanged }: Props) {
  const [kind, setKind] = useState<Kind>(template?.kind ?? "index");
  const [name, setName] = useState(template?.name ?? "");
  const [body, setBody] = useState<Dict>(withoutAnswerOnly(template?.body ?? FRESH));
  const [json, setJson] = useState<string | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState<"" | "save" | "simulate">("");
  const [simulated, setSimulated] = useState<Simulated | null>(null);
  const [asking, ask] = useState(false);
  const fields = useMemo(() => toFields(kind, body), [kind, body]);
  const [draft, setDraft] = useState<Fields>(fields);
  const jsonProblem = json === null ? null : parseProblem(json);

  const change = (part: Partial<Fields>) => {
    const next = { ...draft, ...part };
    setDraft(next);
    setBody(fromFields(kind, next, body));
    setSimulated(null);
  };
  const changeKind = (to: Kind) => {
    setBody(fromFields(to, draft, to === "index" ? { template: {} } : {}));
    setKind(to);
  };
  const showJson = () => setJson(JSON.stringify(body, null, 2));
  const showForm = () => {
    if (json !== null && jsonProblem === null) {
      const read = dict(JSON.parse(json) as Json);
      setBody(read);
      setDraft(toFields(kind, read));
    }
    if (jsonProblem === null) setJson(null);
  };
  const current = (): Dict => (json === null ? body : dict(JSON.parse(json) as Json));

  const doing = async (what: "save" | "simulate", work: (now: Dict) => Promise<void>) => {
    if (busy) return;
    const patterns = jsonProblem === null ? toFields(kind, current()).patterns : "";
    const missing = !name.trim() ? s.needName : jsonProblem !== null ? s.badJson(jsonProblem) : !patterns ? s.needPattern : null;
    setProblem(missing);
    if (missing) return;
    setBusy(what);
    try {
      await work(current());
    } catch (error) {
      setProblem(reason(error));
    }
    setBusy("");
  };
  const simulate = () =>
    doing("simulate", async (now) => {
      if (kind === "legacy") return setSimulated({ kind, index: exampleOf(now) });
      // The simulated template has the saved one's name, so it replaces the saved one instead of competing
      // with it.
      const path = `/_index_template/_simulate/${encodeURIComponent(name.trim())}`;
      const answer = await callJson<Dict>(cluster, { method: "POST", path, body: JSON.stringify(now) });
      setSimulated({ kind, answer });
    });
  const save = () =>
    doing("save", async (now) => {
      await callJson(cluster, { method: "PUT", path: pathOf(kind, name.trim()), body: JSON.stringify(now) });
      tell(s.saved(visible(name)));
      onChanged();
      if (!template) go(link(["c", cluster, "templates"]));
    });
  const remove = async () => {
    ask(false);
    try {
      await callJson(cluster, { method: "DELETE", path: pathOf(kind, name) });
      tell(s.deleted(visible(name)));
      onChanged();
      go(link(["c", cluster, "templates"]));
    } catch (error) {
      setProblem(reason(error));
    }
  };

  return (
    <div class="form-page">
      <form
        class="panel form"
        noValidate
        onSubmit={(e) => {
          e.preventDefault();
          void save();
        }}
      >
        <div class="two">
          <Text label={s.name} value={name} onValue={setName} disabled={!!template} required autocomplete="off" autofocus={!template} />
          <Choice
            label={s.kind}
            help={s.kindHelp[kind]}
            value={kind}
            onValue={(v) => changeKind(v as Kind)}
            disabled={!!template || json !== null}
            options={[
              ["index", s.kinds.index],
              ["legacy", s.kinds.legacy],
            ]}
          />
        </div>
        <div class="segments" role="group" aria-label={s.tabs}>
          <button type="button" aria-pressed={json === null} onClick={showForm}>
            {s.form}
          </button>
          <button type="button" aria-pressed={json !== null} onClick={() => json === null && showJson()}>
            {s.json}
          </button>
        </div>
        {json === null ? (
          <FormFields kind={kind} draft={draft} change={change} />
        ) : (
          <Area
            label={s.jsonLabel}
            value={json}
            onValue={(v) => {
              setJson(v);
              setSimulated(null);
            }}
            rows={22}
            class="mono"
            problem={jsonProblem === null ? null : s.badJson(jsonProblem)}
          />
        )}
        {problem ? <Trouble text={problem} /> : null}
        <div class="actions">
          {readOnly ? null : (
            <Button type="submit" look="primary" busy={busy === "save"}>
              {busy === "save" ? s.saving : s.save}
            </Button>
          )}
          <Button onClick={() => void simulate()} busy={busy === "simulate"}>
            {busy === "simulate" ? s.simulating : s.simulate}
          </Button>
          {template && !readOnly ? (
            <Button look="danger" onClick={() => ask(true)}>
              {s.delete}
            </Button>
          ) : null}
        </div>
      </form>
      <section class="panel test" aria-label={s.simulateTitle} aria-live="polite">
        <h2>{s.simulateTitle}</h2>
        {simulated ? <Result simulated={simulated} self={{ kind, name, body: jsonProblem === null ? current() : body }} all={all} /> : <p class="none">{s.kindHelp[kind]}</p>}
      </section>
      {asking ? <Ask title={s.deleteTitle(visible(name))} text={s.deleteText} yes={s.delete} onYes={() => void remove()} onClose={() => ask(false)} /> : null}
    </div>
  );
}

function FormFields({ kind, draft, change }: { kind: Kind; draft: Fields; change: (part: Partial<Fields>) => void }) {
  const field = (key: Exclude<keyof Fields, "keywords">) => ({ value: draft[key], onValue: (v: string) => change({ [key]: v }), autocomplete: "off" as const });
  return (
    <>
      <div class="two">
        <Text label={s.patterns} help={s.patternsHelp} {...field("patterns")} class="mono" required />
        <Text label={kind === "index" ? s.priority : s.order} {...field("rank")} inputMode="numeric" />
        <Text label={s.shards} {...field("shards")} inputMode="numeric" />
        <Text label={s.replicas} {...field("replicas")} inputMode="numeric" />
        <Text label={s.refresh} help={s.refreshHelp} {...field("refresh")} />
        <Choice label={s.durability} {...field("durability")} options={Object.entries(s.durabilities)} />
        <Text label={s.sync} {...field("sync")} placeholder="5s" />
        <Text label={s.codec} {...field("codec")} placeholder="default" />
        <Text label={s.perNode} {...field("perNode")} inputMode="numeric" />
      </div>
      <Check label={s.keywords} checked={draft.keywords} onValue={(on) => change(on ? { keywords: true, ignoreAbove: draft.ignoreAbove || "256" } : { keywords: false })} />
      {draft.keywords ? <Text label={s.ignoreAbove} {...field("ignoreAbove")} inputMode="numeric" /> : null}
    </>
  );
}

function parseProblem(text: string): string | null {
  try {
    const value: unknown = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? null : "{ … }";
  } catch (error) {
    return (error as Error).message;
  }
}

/** An index name that the first pattern matches. */
const exampleOf = (body: Dict): string => (toFields("legacy", body).patterns.split(",")[0] ?? "").trim().replaceAll("*", "example");

function Result({ simulated, self, all }: { simulated: Simulated; self: { kind: Kind; name: string; body: Dict }; all: readonly Template[] }) {
  if (simulated.kind === "index") {
    const { overlapping, template } = simulated.answer as { overlapping?: Json; template?: Json };
    const others = (Array.isArray(overlapping) ? overlapping : []).map((o) => String(dict(o)["name"] ?? "")).filter((n) => n !== self.name);
    return (
      <>
        <pre class="mono" tabIndex={0}>
          {JSON.stringify(template ?? {}, null, 2)}
        </pre>
        {others.length ? <Note kind="warn">{`${s.overlaps}: ${others.map(visible).join(", ")}`}</Note> : <p class="sub">{s.noOverlap}</p>}
      </>
    );
  }
  const patterns = toFields("legacy", self.body).patterns.split(", ");
  const now: Template = { kind: "legacy", name: self.name, patterns, rank: Number(self.body["order"] ?? 0), composedOf: [], body: self.body };
  const legacy = all.filter((one) => one.kind === "legacy" && one.name !== self.name);
  const answer = whoSets(simulated.index, [...legacy, now], new Map());
  const beating = all.filter((one) => one.kind === "index" && one.patterns.some((p) => matches(p, simulated.index)));
  return (
    <>
      <p class="sub">{`${s.simulateLegacy} ${visible(simulated.index)}`}</p>
      {beating.length ? <Note kind="warn">{s.beaten(beating.map((one) => visible(one.name)).join(", "))}</Note> : null}
      <Origins title={s.settings} list={answer.settings} />
      <Origins title={s.mappings} list={answer.mappings} />
    </>
  );
}
