// A gateway's queues: what became of the accepted documents, how far behind each cluster is, and who holds
// back whom.
import { api, reason } from "../api.ts";
import { ask, pathOf, STATES, type DocState, type Group, type Lag, type Lane, type Queue, type Queues, type Wait } from "../gateway_call.ts";
import { Confirm } from "../call.tsx";
import { exact, span, visible } from "../format.ts";
import { now, tokenActs } from "../live.ts";
import { reaches, roleEverywhere, roleOnGateway } from "../roles.ts";
import { link, requery, route } from "../router.ts";
import { gatewayOf } from "../state.ts";
import { t } from "../strings.ts";
import { Button, Empty, Header, Loading, Name, Note, Num, StateBadge, Tag, Trouble } from "../ui/bits.tsx";
import { Chart } from "../ui/chart.tsx";
import { Ask } from "../ui/dialog.tsx";
import { TokenNote } from "../ui/forbidden.tsx";
import { Heads, numbers } from "../ui/heads.tsx";
import { usePoll, type Polled } from "../ui/poll.ts";
import { tell } from "../ui/toast.tsx";
import { Letters } from "./letters.tsx";
import { Records } from "./records.tsx";
import { Traffic } from "./traffic.tsx";
import { rowOf, Whys } from "../ui/whys.tsx";
import { useState } from "preact/hooks";

const q = t.queue;
const RANGES = [5, 15, 60, 120];
const LANES_SHOWN = 64;

export function QueuesPage({ id }: { id: string }) {
  const [, , third, name, view] = route.value.parts;
  const polled = usePoll((signal) => api<Queues>(`gateways/${encodeURIComponent(id)}/queues`, { signal }), 1000, [id]);
  const entry = gatewayOf(id);
  const row = rowOf("gateway", id);
  const age = polled.at ? now.value - polled.at : 0;
  const queue = third === "q" && name !== undefined ? name : null;
  const title = queue ?? entry?.name ?? id;
  return (
    <>
      <Header
        title={<Name value={title} />}
        lead={
          <div class="lead">
            {row ? <StateBadge state={row.state} /> : null}
            {queue !== null ? <Name value={entry?.name ?? id} /> : <span>{["tidegate", row?.version].filter(Boolean).map((x) => visible(String(x))).join(" ")}</span>}
            {row?.docs_per_s != null ? (
              <span>
                <Num value={row.docs_per_s} as="rate" /> docs/s
              </span>
            ) : null}
            {polled.problem && polled.data ? <span class="age">{q.oldNumbers(span(age))}</span> : null}
          </div>
        }
      >
        {queue !== null ? (
          <a class="button" href={link(["g", id])}>
            {q.back}
          </a>
        ) : reaches(roleEverywhere(), "admin") ? (
          <>
            <a class="button" href={link(["g", id, "config"])}>
              {t.config.open}
            </a>
            <a class="button" href={link(["registry", "gateway", id])}>
              {t.cluster.edit}
            </a>
          </>
        ) : null}
      </Header>
      <Whys row={row} aged />
      {queue === null ? <Traffic key={id} id={id} /> : null}
      {polled.problem ? <Trouble text={polled.problem} onRetry={polled.again} /> : null}
      {polled.data ? (
        <div class={polled.problem ? "stale" : undefined}>
          {queue === null ? (
            <>
              <h2 class="section">{t.traffic.queues}</h2>
              <All id={id} queues={polled.data.queues} />
            </>
          ) : <One key={queue} id={id} name={queue} polled={polled} view={view} />}
        </div>
      ) : polled.problem ? null : (
        <Loading lines={8} />
      )}
      <Confirm />
    </>
  );
}

function All({ id, queues }: { id: string; queues: Queues["queues"] }) {
  const names = Object.keys(queues);
  if (!names.length) return <Empty title={q.none} text={q.noneText} />;
  return (
    <>
      {names.map((name) => (
        <section key={name} class="panel queue-panel" aria-label={visible(name)}>
          <div class="panel-head" data-row>
            <h2>
              <a href={link(["g", id, "q", name])}>
                <Name value={name} />
              </a>
            </h2>
            <Facts name={name} queue={queues[name]!} />
          </div>
          <Refuses queue={queues[name]!} />
          <Groups id={id} name={name} queue={queues[name]!} />
        </section>
      ))}
    </>
  );
}

function Facts({ name, queue }: { name: string; queue: Queue }) {
  return (
    <span class="sub facts" data-numbers={`queue ${name}`}>
      {q.accepted} <Num value={queue.accepted} /> · {q.bytes} <Num value={queue.bytes} as="bytes" /> · {q.dead} <Num value={queue.dead_letters} />
      {queue.topic ? <Tag>{visible(queue.topic)}</Tag> : null}
    </span>
  );
}

function Refuses({ queue }: { queue: Queue }) {
  const why = queue.poisoned ?? (queue.refuses ? (typeof queue.refuses === "string" ? queue.refuses : JSON.stringify(queue.refuses)) : null);
  return why ? <Trouble text={q.refuses(why)} /> : null;
}

function Groups({ id, name, queue }: { id: string; name: string; queue: Queue }) {
  return (
    <>
      {Object.entries(queue.groups).map(([group, one]) => (
        <div key={group} class="group" data-numbers={`group ${name} ${group}`}>
          <div class="group-head">
            <h3>
              <Name value={group} />
            </h3>
            <span class="sub">{one.cluster ? q.to(visible(one.cluster)) : q.noPipeline}</span>
            {one.pipeline ? <Pipeline id={id} name={one.pipeline} state={one.state ?? ""} /> : null}
            {one.lag_s != null ? (
              <span class="sub">
                {q.lag} <data class="num" value={one.lag_s} title={`${exact(one.lag_s)} s`}>{span(one.lag_s * 1000)}</data>
              </span>
            ) : null}
          </div>
          <Accounts one={one} />
        </div>
      ))}
    </>
  );
}

const COLOURS: Readonly<Record<DocState, string>> = { indexed: "ok", dead: "bad", parked: "warn", pending: "pending", replayed: "quiet", purged: "quiet", skipped: "quiet", lost: "bad" };

/** The sum of the accounts, state by state, and whether it adds up. */
function Accounts({ one }: { one: Group }) {
  const shown = STATES.filter((state) => one[state] || ["indexed", "dead", "parked", "pending"].includes(state));
  const whole = Math.max(1, STATES.reduce((sum, state) => sum + one[state], 0));
  let at = 0;
  const off = (one.states ?? 0) - (one.accounted ?? 0);
  return (
    <div class={`accounts${one.adds_up === false ? " wrong" : ""}`}>
      <svg viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">
        <rect class="track" width="1000" height="10" />
        {STATES.map((state) => {
          const width = (1000 * one[state]) / whole;
          const x = at;
          at += width;
          return width ? <rect key={state} class={`part ${COLOURS[state]}`} x={x} width={Math.max(width, 3)} height="10" /> : null;
        })}
      </svg>
      <p>
        {one.accounted !== null ? (
          <>
            <span class="sub">
              <Num value={one.accounted} /> accepted{one.rewound ? <> (with <Num value={one.rewound} /> gone back over)</> : null} ={" "}
            </span>
          </>
        ) : null}
        {shown.map((state, i) => (
          <span key={state} class={`item ${one[state] ? COLOURS[state] : "quiet"}`}>
            {i ? "+ " : ""}
            <Num value={one[state]} /> {q.states[state]}
          </span>
        ))}
        {one.adds_up === true ? (
          <span class="adds" title={q.addsUp}>
            ✓<span class="hidden"> {q.addsUp}</span>
          </span>
        ) : null}
      </p>
      {one.adds_up === false ? (
        <div class="note bad" role="alert">
          <div>{q.wrong(exact(one.accounted ?? 0), exact(one.states ?? 0), `${off > 0 ? "+" : "−"}${exact(Math.abs(off))}`)}</div>
        </div>
      ) : null}
      {one.adds_up === null ? <p class="sub">{q.notKnown}</p> : null}
    </div>
  );
}

function Pipeline({ id, name, state }: { id: string; name: string; state: string }) {
  const [stopping, setStopping] = useState(false);
  const order = async (what: "_start" | "_stop") => {
    setStopping(false);
    try {
      await ask(id, { method: "POST", path: pathOf(["pipeline", name, what], what === "_stop" ? { wait_s: 5 } : {}) });
      tell(what === "_start" ? q.started(visible(name)) : q.stopped(visible(name)));
    } catch (error) {
      tell(reason(error), "bad");
    }
  };
  const runs = state === "running";
  return (
    <span class="pipeline">
      <Tag kind={runs ? "" : "warn"}>
        {visible(name)}: {q.pipeline[state] ?? visible(state)}
      </Tag>
      {state === "stopping" || !reaches(roleOnGateway(gatewayOf(id)), "operator") || !tokenActs(id) ? null : (
        <Button look="quiet" icon={runs ? "stop" : "play"} aria-label={`${runs ? q.stop : q.start} ${visible(name)}`} title={runs ? q.stop : q.start} onClick={() => (runs ? setStopping(true) : void order("_start"))} />
      )}
      {stopping ? <Ask title={q.stopTitle(visible(name))} text={q.stopText} yes={q.stop} onYes={() => void order("_stop")} onClose={() => setStopping(false)} /> : null}
    </span>
  );
}

const VIEWS = [
  [undefined, t.nav.queue],
  ["letters", t.nav.letters],
  ["records", t.nav.records],
] as const;

function One({ id, name, polled, view }: { id: string; name: string; polled: Polled<Queues>; view: string | undefined }) {
  return (
    <>
      <nav class="segments views" aria-label={q.views}>
        {VIEWS.map(([to, label]) => (
          <a key={label} href={link(["g", id, "q", name, ...(to ? [to] : [])])} aria-current={view === to ? "page" : undefined}>
            {label}
          </a>
        ))}
      </nav>
      {view === undefined ? <TokenNote gateway={id} what={t.roles.ordering} /> : null}
      {view === "letters" ? <Letters id={id} queue={name} /> : view === "records" && polled.data?.queues[name] ? <Records id={id} name={name} queue={polled.data.queues[name]} /> : <Backlog id={id} name={name} polled={polled} />}
    </>
  );
}

function Backlog({ id, name, polled }: { id: string; name: string; polled: Polled<Queues> }) {
  const asked = Number(route.value.query.get("minutes"));
  const minutes = RANGES.includes(asked) ? asked : 15;
  const lag = usePoll((signal) => api<Lag>(`gateways/${encodeURIComponent(id)}/lag?queue=${encodeURIComponent(name)}&minutes=${minutes}`, { signal }), 2000, [id, name, minutes]);
  const queue = polled.data?.queues[name];
  if (!queue) return <Empty title={q.none} />;
  const groups = Object.keys(lag.data?.groups ?? {}).slice(0, 6);
  const lines = (key: "lag_s" | "pending") => groups.map((group, i) => ({ label: visible(group), colour: i + 1, values: lag.data!.groups[group]![key] }));
  const time = { fromMs: lag.data?.from_ms ?? 0, stepMs: lag.data?.step_ms ?? 1000 };
  return (
    <div class="backlog">
      <section class="panel queue-panel" aria-label={q.groups}>
        <div class="panel-head">
          <h2>{q.groups}</h2>
          <Facts name={name} queue={queue} />
        </div>
        <Refuses queue={queue} />
        <Groups id={id} name={name} queue={queue} />
      </section>
      <Waits groups={queue.groups} />
      <div class="segments" role="group" aria-label={q.range}>
        {RANGES.map((m) => (
          <button key={m} type="button" aria-pressed={m === minutes} onClick={() => requery({ minutes: m === 15 ? undefined : String(m) })}>
            {t.cluster.ranges[m]}
          </button>
        ))}
      </div>
      {lag.problem ? <Trouble text={lag.problem} onRetry={lag.again} /> : null}
      {lag.data ? (
        <div class="quarters">
          <Chart title={q.lagChart} unit={q.lagUnit} {...time} lines={lines("lag_s")} height={140} say={(v) => span(v * 1000)} />
          <Chart title={q.pendingChart} {...time} lines={lines("pending")} height={140} />
        </div>
      ) : lag.problem ? null : (
        <Loading />
      )}
      {Object.entries(queue.groups).map(([group, one]) => (one.lanes ? <Lanes key={group} queue={name} group={group} lanes={one.lanes} /> : null))}
    </div>
  );
}

function Waits({ groups }: { groups: Queue["groups"] }) {
  const all: [string, Wait, Group][] = Object.entries(groups).flatMap(([name, group]) => group.waits.map((wait): [string, Wait, Group] => [name, wait, group]));
  const c = q.columns;
  if (!all.length) return <Note kind="ok">{q.waitsNone}</Note>;
  return (
    <section class="panel">
      <table class="grid rows waits">
        <caption>
          <h2>{q.waits}</h2>
        </caption>
        <Heads of={[c.what, q.group, c.why, c.lanes, c.docs, c.since, c.next]} />
        <tbody>
          {all.slice(0, 100).map(([name, wait, group], i) => {
            const held = wait.documents ?? wait.lanes?.reduce((sum, n) => sum + pendingOf(group.lanes?.[n]), 0);
            return (
              <tr key={i}>
                <td data-label={c.what}>
                  <Tag kind="warn">{q.reasons[wait.reason] ?? visible(wait.reason)}</Tag>
                </td>
                <td data-label={q.group}>
                  <Name value={name} />
                </td>
                <td data-label={c.why}>
                  <bdi>{visible(wait.why)}</bdi>
                </td>
                <td data-label={c.lanes}>{wait.lanes ? <span title={wait.lanes.slice(0, 200).join(", ")}>{exact(wait.lanes.length)}</span> : t.none}</td>
                <td data-label={c.docs}>{held === undefined ? t.none : exact(held)}</td>
                <td data-label={c.since}>{wait.for_s != null ? span(wait.for_s * 1000) : t.none}</td>
                <td data-label={c.next}>{wait.next_try_s != null ? span(wait.next_try_s * 1000) : t.none}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}

const pendingOf = (lane: Lane | undefined): number => (lane ? lane.accepted - lane.done : 0);

function Lanes({ queue, group, lanes }: { queue: string; group: string; lanes: readonly Lane[] }) {
  const c = q.columns;
  const busy = lanes.map((lane, n) => ({ lane, n })).filter(({ lane }) => pendingOf(lane) || lane.doing !== "idle");
  const shown = busy.sort((a, b) => pendingOf(b.lane) - pendingOf(a.lane) || a.n - b.n).slice(0, LANES_SHOWN);
  return (
    <section class="panel" data-numbers={`lanes ${queue} ${group}`}>
      <div class="panel-head">
        <h2>
          {q.lanes}: <Name value={group} />
        </h2>
        <span class="sub">{shown.length ? q.lanesShown(shown.length, lanes.length) : q.allIdle(lanes.length)}</span>
      </div>
      {shown.length ? (
        <table class="grid rows">
          <Heads of={[c.lane, c.doing, c.why, c.nodes, ...numbers(c.pending, c.bytes, c.position)]} />
          <tbody>
            {shown.map(({ lane, n }) => (
              <tr key={n}>
                <th scope="row" data-label={c.lane} class="num">
                  {n}
                </th>
                <td data-label={c.doing}>{visible(lane.doing)}</td>
                <td data-label={c.why}>
                  <bdi>{visible(lane.why ?? "")}</bdi>
                </td>
                <td data-label={c.nodes}>
                  {lane.waits_for?.slice(0, 8).map((at, i) => (
                    <p key={i}>
                      <Name value={at.node} /> <span class="sub">{q.atNode(exact(at.documents), span(at.for_s * 1000))}</span>
                    </p>
                  ))}
                </td>
                <td class="right" data-label={c.pending}>
                  {exact(pendingOf(lane))}
                </td>
                <td class="right" data-label={c.bytes}>
                  <Num value={lane.pending_bytes} as="bytes" />
                </td>
                <td class="right num" data-label={c.position}>
                  {exact(lane.position)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : null}
    </section>
  );
}
