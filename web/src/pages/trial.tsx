// A trial: the same documents are written to a scratch index directly and through the gateway, beside the estimate.
import { useState } from "preact/hooks";
import { api, reason } from "../api.ts";
import { exact, short, visible } from "../format.ts";
import { serverNow } from "../live.ts";
import { reaches, roleOnGateway } from "../roles.ts";
import { clusterOf, gatewayOf } from "../state.ts";
import { t } from "../strings.ts";
import type { Change, TrialLoad, TrialPhase, TrialRow, Trials } from "../types.ts";
import { ago, Button, Note, Num, Tag, Trouble } from "../ui/bits.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Check, Choice, Text } from "../ui/field.tsx";
import { Heads, numbers } from "../ui/heads.tsx";
import { usePoll } from "../ui/poll.ts";

const l = t.trial;

export function Trial({ id }: { id: string }) {
  const path = `gateways/${encodeURIComponent(id)}/trial`;
  const { data, problem, again } = usePoll((signal) => api<Trials>(path, { signal }), (told) => (told.running ? 1000 : 2000), [id]);
  const [asking, setAsking] = useState(false);
  const [failed, setFailed] = useState<string | null>(null);
  const may = reaches(roleOnGateway(gatewayOf(id)), "operator");
  if (!data) return problem ? <Trouble text={problem} onRetry={again} /> : null;
  const cancel = async () => {
    setFailed(null);
    try {
      await api(path, { method: "DELETE" });
    } catch (error) {
      setFailed(reason(error));
    }
    again();
  };
  const why = data.refused ? l.refused(visible(data.refused[1])) : !data.can_run ? l.cannotRun : !Object.keys(data.entries).length ? l.noEntry : data.is_busy && !data.running ? l.busy : null;
  return (
    <section class="trial" aria-label={l.title} data-numbers="trial">
      <h3>{l.title}</h3>
      {problem ? <Trouble text={problem} onRetry={again} /> : null}
      {failed ? <Trouble text={failed} /> : null}
      {data.running ? (
        <Running trial={data.running} onCancel={may ? () => void cancel() : null} />
      ) : (
        <>
          <p>{l.text}</p>
          {why ? <p class="sub"><bdi>{why}</bdi></p> : null}
          {may && !why ? (
            <div class="actions">
              <Button onClick={() => setAsking(true)}>{l.open}</Button>
            </div>
          ) : null}
        </>
      )}
      {data.last ? <Last trial={data.last} why={data.why} leftovers={data.leftovers} /> : null}
      {asking ? <Start told={data} path={path} onClose={() => setAsking(false)} onBegun={() => (setAsking(false), again())} /> : null}
    </section>
  );
}

function Running({ trial: { trial, progress }, onCancel }: { trial: NonNullable<Trials["running"]>; onCancel: (() => void) | null }) {
  const stopping = progress.state !== "running";
  return (
    <div class="running">
      <p class="count-down">
        <strong>{stopping ? l.stopping : l.runs(progress.done, progress.runs)}</strong>
        <progress value={progress.done} max={progress.runs} aria-label={l.progress} />
        {onCancel && !stopping ? <Button look="danger" onClick={onCancel}>{l.cancel}</Button> : null}
      </p>
      <p class="sub">
        <bdi>{l.by(visible(trial.user), visible(clusterOf(trial.cluster)?.name ?? trial.cluster), `${visible(trial.indices)}-…`)}</bdi>
      </p>
      <p class="sub mono" role="status">
        <bdi>{visible(progress.said)}</bdi>
      </p>
    </div>
  );
}

function Last({ trial, why, leftovers }: { trial: TrialRow; why: string | null; leftovers: Trials["leftovers"] }) {
  const words = `${l.states[trial.state] ?? visible(trial.state)}${why && trial.state === "failed" ? `: ${visible(why)}` : ""}`;
  const figures = trial.figures;
  return (
    <>
      <p>
        <Tag kind={trial.state === "compared" ? "ok" : trial.state === "failed" || trial.state === "flawed" ? "bad" : "warn"}>{ago(serverNow.value - (trial.ended_ms ?? trial.began_ms))}</Tag>{" "}
        <bdi>{l.last(words, visible(trial.user))}</bdi>
      </p>
      {figures ? (
        <>
          <p class="sub">
            <bdi>{l.load(visible(figures.cluster), loadWords(trial.load))}</bdi>
          </p>
          {figures.flawed_runs ? <Note kind="warn">{l.flawed(figures.flawed_runs, figures.runs)}</Note> : null}
          {figures.phases.map((phase) => (
            <Figures key={phase.phase} phase={phase} documents={trial.load.documents} />
          ))}
        </>
      ) : null}
      {leftovers === null ? <Note kind="warn">{l.notAsked(`${visible(trial.indices)}-*`)}</Note> : null}
      {leftovers?.length ? (
        <Note kind="warn">
          {l.left}{" "}
          {leftovers.map((name) => (
            <code key={name} class="item">{visible(`DELETE /${name}`)}</code>
          ))}
        </Note>
      ) : null}
    </>
  );
}

const loadWords = (load: TrialLoad): string => l.loadWords(exact(load.rounds), exact(load.documents), exact(load.batch), exact(load.clients), exact(load.shards), exact(load.replicas), load.ids);

function Figures({ phase, documents }: { phase: TrialPhase; documents: number }) {
  const c = l.columns;
  const perMillion = (seconds: number | null | undefined) => (seconds === null || seconds === undefined ? null : (seconds * 1e6) / documents);
  const rows = [
    [l.counted, phase.direct?.counted_per_s, phase.gateway?.counted_per_s, phase.counted],
    [l.acknowledged, phase.direct?.acknowledged_per_s, phase.gateway?.acknowledged_per_s, phase.acknowledged],
    [l.cpu, perMillion(phase.direct?.cpu_s), perMillion(phase.gateway?.cpu_s), phase.cpu],
  ] as const;
  return (
    <table class="grid rows figures">
      <Heads of={[c.what, ...numbers(c.direct, c.gateway, c.change)]} />
      <tbody>
        {rows.map(([what, direct, gateway, change]) => (
          <tr key={what}>
            <th scope="row" data-label={c.what}>{what}</th>
            <td data-label={c.direct} class="right"><Num value={direct ?? null} as="rate" /></td>
            <td data-label={c.gateway} class="right"><Num value={gateway ?? null} as="rate" /></td>
            <td data-label={c.change} class="right">{changeWords(change)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const signed = (value: number): string => `${value < 0 ? "−" : "+"}${exact(Math.abs(Math.round(value * 10) / 10))}`;

/** The change with its interval. Without an interval that leaves zero out, it is said to be no difference. */
function changeWords(change: Change | null): string {
  if (!change || change.percent === null) return t.none;
  const [low, high] = change.interval ?? [null, null];
  const interval = low === null || high === null ? l.oneRound : l.interval(signed(low), signed(high));
  const words = `${signed(change.percent)} % (${interval})`;
  return change.verdict === "within_noise" ? l.noise(words) : words;
}

const NUMBERS = [
  ["documents", 20_000, 1, 1_000_000],
  ["batch", 1000, 1, 10_000],
  ["rounds", 4, 1, 10],
  ["clients", 4, 1, 64],
  ["shards", 3, 1, 64],
  ["replicas", 0, 0, 5],
] as const;
type Field = (typeof NUMBERS)[number][0];

function Start({ told, path, onClose, onBegun }: { told: Trials; path: string; onClose: () => void; onBegun: () => void }) {
  const clusters = told.clusters.filter((one) => !one.refused);
  // The names stay those that are shown, whatever later polls propose.
  const [indices] = useState(told.indices);
  const [cluster, setCluster] = useState(clusters[0]?.id ?? "");
  const entries = Object.entries(told.entries).filter(([name]) => told.reach[name]?.includes(cluster));
  const [chosen, setEntry] = useState("");
  const entry = entries.some(([name]) => name === chosen) ? chosen : (entries[0]?.[0] ?? "");
  const [ids, setIds] = useState(true);
  const [values, setValues] = useState(() => Object.fromEntries(NUMBERS.map(([name, value]) => [name, String(value)])) as Record<Field, string>);
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const numbers = NUMBERS.map(([name, , least, most]) => {
    const value = /^\d+$/.test(values[name].trim()) ? Number(values[name]) : NaN;
    return { name, value, good: value >= least && value <= most, bounds: l.bounds(exact(least), exact(most)) };
  });
  const good = numbers.every((one) => one.good);
  const of = (name: Field) => numbers.find((one) => one.name === name)!.value;
  // Each round writes them both ways; a tenth of them, before that, to warm up.
  const writes = of("documents") * of("rounds") * 2 + Math.floor(of("documents") / 10) * 2;
  const begin = async (event: Event) => {
    event.preventDefault();
    if (!good || busy) return;
    setBusy(true);
    setProblem(null);
    try {
      const load = { ...Object.fromEntries(numbers.map(({ name, value }) => [name, value])), ids };
      await api(path, { method: "POST", body: { cluster, entry, indices, load } });
      onBegun();
    } catch (error) {
      setProblem(reason(error));
      setBusy(false);
    }
  };
  return (
    <Dialog title={l.startTitle} onClose={onClose}>
      <form noValidate onSubmit={(event) => void begin(event)}>
        <Note kind="warn">
          <bdi>{l.warning(visible(clusters.find((one) => one.id === cluster)?.name ?? ""), `${visible(indices)}-…`, good ? short(writes) : "?")}</bdi>
        </Note>
        {clusters.length > 1 ? <Choice label={l.cluster} value={cluster} onValue={setCluster} options={clusters.map((one) => [one.id, visible(one.name)] as const)} /> : null}
        <Choice label={l.entry} value={entry} onValue={setEntry} options={entries.map(([name, url]) => [name, `${visible(name)} (${visible(url)})`] as const)} />
        <div class="numbers">
          {numbers.map(({ name, good: fits, bounds }) => (
            <Text key={name} label={l.numbers[name]} value={values[name]} onValue={(value) => setValues({ ...values, [name]: value })} inputMode="numeric" autocomplete="off" problem={fits ? null : bounds} />
          ))}
        </div>
        <Check label={l.ids} checked={ids} onValue={setIds} />
        {problem ? <Trouble text={problem} /> : null}
        <div class="actions">
          <Button onClick={onClose}>{t.confirm.cancel}</Button>
          <Button type="submit" look="primary" busy={busy} disabled={!good}>
            {l.start}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
