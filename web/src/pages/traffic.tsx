// What comes into a gateway and where it goes: rates by entry, why bulks were passed on whole, memory, nodes.
import { api } from "../api.ts";
import { exact, latency, span, visible } from "../format.ts";
import { serverNow } from "../live.ts";
import { requery, route } from "../router.ts";
import { gatewayOf } from "../state.ts";
import { t } from "../strings.ts";
import type { FlowTraffic, Num as Maybe, Traffic as Told, TrafficNow } from "../types.ts";
import { Loading, Name, Note, Num, Tag, Trouble } from "../ui/bits.tsx";
import { Chart } from "../ui/chart.tsx";
import { Heads, numbers } from "../ui/heads.tsx";
import { usePoll } from "../ui/poll.ts";
import { Trial } from "./trial.tsx";

const f = t.traffic;
const RANGES = [5, 15, 60, 120];
/** Older figures are shown with their age. */
const OLD_MS = 5000;
const SHOWN = 200;
/** Reasons that are shown of each flow. */
const WHYS_SHOWN = 3;

export function Traffic({ id }: { id: string }) {
  const asked = Number(route.value.query.get("minutes"));
  const minutes = RANGES.includes(asked) ? asked : 15;
  const { data, problem, again } = usePoll((signal) => api<Told>(`gateways/${encodeURIComponent(id)}/traffic?minutes=${minutes}`, { signal }), 1000, [id, minutes]);
  if (!data) return problem ? <Trouble text={problem} onRetry={again} /> : <Loading lines={6} />;
  const told = data.now;
  const age = told ? serverNow.value - told.at_ms : 0;
  const old = problem !== null || age > OLD_MS;
  const line = (key: string, label: string, colour: number, more = {}) => ({ label, colour, values: data.series[key] ?? [], ...more });
  const time = { fromMs: data.from_ms, stepMs: data.step_ms };
  return (
    <div class={`traffic${old ? " stale" : ""}`} data-numbers="traffic">
      {problem ? <Trouble text={problem} onRetry={again} /> : null}
      {told ? <Tiles told={told} /> : <Note kind="info">{f.nothing}</Note>}
      {told && old ? <p class="age">{f.old(span(age))}</p> : null}
      <div class="segments" role="group" aria-label={t.queue.range}>
        {RANGES.map((m) => (
          <button key={m} type="button" aria-pressed={m === minutes} onClick={() => requery({ minutes: m === 15 ? undefined : String(m) })}>
            {t.cluster.ranges[m]}
          </button>
        ))}
      </div>
      <div class="quarters">
        <Chart title={f.docs} {...time} lines={[line("split_per_s", f.split, 1, { fill: true }), line("queued_per_s", f.queued, 2, { dash: [6, 3] })]} height={150} />
        <Chart title={f.requests} {...time} lines={[line("requests_per_s", f.all, 3), line("passed_per_s", f.passedOn, 4)]} height={150} />
      </div>
      {told ? (
        <>
          <Entries entries={told.entries} />
          <Flows flows={told.flows ?? {}} />
          <Gain id={id} told={told} />
          <Passed told={told} />
          <Clusters id={id} told={told} />
        </>
      ) : null}
    </div>
  );
}

function Tiles({ told }: { told: TrafficNow }) {
  const rate = (name: string): Maybe => told.counters[name]?.per_s ?? null;
  const { buffers_bytes: used, buffers_bytes_max: most } = told.memory;
  const part = used !== null && most ? (100 * used) / most : null;
  const { bytes: held, bytes_max: heldMost } = told.delivery_memory ?? { bytes: null, bytes_max: null };
  return (
    <dl class="tiles">
      {(
        [
          [f.split, rate("docs")],
          [f.queued, rate("docs_queued")],
          [f.requests, rate("requests")],
          [f.passedOn, rate("bulk_passed")],
        ] as const
      ).map(([label, value]) => (
        <div key={label}>
          <dt>{f.perSecond(label)}</dt>
          <dd>
            <Num value={value} as="rate" />
          </dd>
        </div>
      ))}
      <div>
        <dt>{f.memory}</dt>
        <dd>
          <Num value={used} as="bytes" />
          <span class="sub">
            {" "}
            {f.of} <Num value={most} as="bytes" />
            {part !== null && part >= 80 ? <Tag kind="warn">{f.nearlyFull}</Tag> : null}
          </span>
        </dd>
      </div>
      <div>
        <dt>{f.deliveryMemory}</dt>
        <dd>
          <Num value={held} as="bytes" />
          <span class="sub">
            {" "}
            {f.of} <Num value={heldMost} as="bytes" />
          </span>
        </dd>
      </div>
    </dl>
  );
}

function Entries({ entries }: { entries: TrafficNow["entries"] }) {
  const c = f.columns;
  return (
    <section class="panel">
      <table class="grid rows">
        <caption>
          <h2>{f.entries}</h2>
        </caption>
        <Heads of={[c.entry, c.address, ...numbers(c.connections, c.requests, c.inFlight, c.refused, c.turnedAway, c.handshakes)]} />
        <tbody>
          {Object.entries(entries)
            .slice(0, SHOWN)
            .map(([name, one]) => (
              <tr key={name} data-row>
                <th scope="row" data-label={c.entry}>
                  <Name value={name} />
                </th>
                <td data-label={c.address} class="mono">
                  <Name value={one.address} />
                </td>
                {(
                  [
                    [c.connections, one.connections],
                    [c.requests, one.requests_per_s],
                    [c.inFlight, one.in_flight],
                    [c.refused, one.refused],
                    [c.turnedAway, one.turned_away],
                    [c.handshakes, one.handshakes_failed],
                  ] as const
                ).map(([label, value]) => (
                  <td key={label} data-label={label} class="right">
                    <Num value={value} />
                  </td>
                ))}
              </tr>
            ))}
        </tbody>
      </table>
    </section>
  );
}

/** An estimate, named as such, with its formulas. */
function Gain({ id, told }: { id: string; told: TrafficNow }) {
  const gain = told.gain;
  if (!gain) return null;
  return (
    <section class="panel gain" aria-label={f.gain}>
      <h2 class="panel-head">{f.gain}</h2>
      <dl class="counts">
        {(
          [
            [f.gainHops, gain.hops_per_s],
            [f.gainRequests, gain.requests_per_s],
            [f.gainCores, gain.cores],
          ] as const
        ).map(([label, value]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>
              <Num value={value} as="rate" />
            </dd>
          </div>
        ))}
      </dl>
      {told.counters["docs_queued"]?.total ? <p>{f.gainQueued}</p> : null}
      <details>
        <summary>{f.gainHow}</summary>
        <ul>
          <li>{f.gainHopsHow(gain.nodes === null ? "n" : exact(gain.nodes))}</li>
          <li>{f.gainRequestsHow}</li>
          <li>{f.gainCoresHow(exact(gain.request_cpu_ms))}</li>
        </ul>
      </details>
      <Trial id={id} />
    </section>
  );
}

/** What each flow takes, and why it passes requests on whole, the busiest flow first. */
function Flows({ flows }: { flows: NonNullable<TrafficNow["flows"]> }) {
  const c = f.columns;
  const rate = (one: FlowTraffic, name: string): number => one.counters[name]?.per_s ?? 0;
  const busiest = Object.entries(flows).sort(([, a], [, b]) => rate(b, "requests") - rate(a, "requests") || (b.counters["requests"]?.total ?? 0) - (a.counters["requests"]?.total ?? 0));
  if (!busiest.length) return null;
  const columns = [
    [c.requests, "requests"],
    [c.split, "docs"],
    [c.queued, "docs_queued"],
    [c.passed, "bulk_passed"],
  ] as const;
  return (
    <section class="panel">
      <table class="grid rows flows">
        <caption>
          <h2>{f.flows}</h2>
        </caption>
        <Heads of={[c.flow, ...numbers(...columns.map(([head]) => head), c.total), c.whys]} />
        <tbody>
          {busiest.slice(0, SHOWN).map(([name, one]) => (
            <tr key={name} data-row>
              <th scope="row" data-label={c.flow}>
                <Name value={name} />
              </th>
              {columns.map(([head, counter]) => (
                <td key={head} data-label={head} class="right">
                  <Num value={one.counters[counter]?.per_s} as="rate" />
                </td>
              ))}
              <td data-label={c.total} class="right">
                <Num value={one.counters["requests"]?.total} />
              </td>
              <td data-label={c.whys}>
                {one.passed.length ? (
                  <div>
                    {one.passed.slice(0, WHYS_SHOWN).map((why) => (
                      <span key={`${why.kind} ${why.why}`} class="item" title={visible(why.meaning ?? f.whys[why.why] ?? "")}>
                        <code>{visible(why.why)}</code> <Num value={why.total} />{" "}
                      </span>
                    ))}
                    {one.passed.length > WHYS_SHOWN ? <span class="sub">{f.more(one.passed.length - WHYS_SHOWN)}</span> : null}
                  </div>
                ) : null}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** Why bulks and single writes went on whole, the most frequent reason first. */
function Passed({ told }: { told: TrafficNow }) {
  const c = f.columns;
  if (!told.passed.length) return <Note kind="ok">{f.passedNone}</Note>;
  return (
    <section class="panel">
      <table class="grid rows passed">
        <caption>
          <h2>{f.passed}</h2>
        </caption>
        <Heads of={[c.why, c.kind, ...numbers(c.perSecond, c.total)]} />
        <tbody>
          {told.passed.slice(0, SHOWN).map((one) => (
            <tr key={`${one.kind} ${one.why}`} data-row>
              <th scope="row" data-label={c.why}>
                <code>{visible(one.why)}</code> <span class="sub">{visible(one.meaning ?? f.whys[one.why] ?? "")}</span>
              </th>
              <td data-label={c.kind}>{f.kinds[one.kind] ?? visible(one.kind)}</td>
              <td data-label={c.perSecond} class="right">
                <Num value={one.per_s} as="rate" />
              </td>
              <td data-label={c.total} class="right">
                <Num value={one.total} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Clusters({ id, told }: { id: string; told: TrafficNow }) {
  const c = f.columns;
  return (
    <>
      {Object.entries(told.clusters ?? {})
        .slice(0, 20)
        .map(([name, cluster]) => {
          const to = gatewayOf(id)?.clusters.find((one) => one.name === name)?.cluster_id;
          const passed = Object.entries(cluster.indices_passed ?? {});
          return (
            <section key={name} class="panel" aria-label={visible(name)}>
              <div class="panel-head">
                <h2>{to ? <a href={`#/c/${encodeURIComponent(to)}`}><Name value={name} /></a> : <Name value={name} />}</h2>
                <Tag kind={cluster.state === "watching" ? "ok" : "warn"}>{f.watch[cluster.state] ?? visible(cluster.state)}</Tag>
                <span class="sub">
                  {f.split_} <Num value={cluster.indices_split ?? null} />
                  {passed.map(([why, n]) => (
                    <span key={why}>
                      {" "}
                      · {visible(why)} <Num value={n} />
                    </span>
                  ))}
                </span>
              </div>
              {cluster.warnings?.map((words) => <Note key={words} kind="warn"><bdi>{visible(words)}</bdi></Note>)}
              <table class="grid rows at-nodes">
                <Heads of={[c.node, c.state, ...numbers(c.inFlight, c.limit, c.latency, c.slowness, c.busy, c.failures)]} />
                <tbody>
                  {cluster.nodes?.slice(0, SHOWN).map(({ name: node, address, health }) => (
                    <tr key={`${node} ${address}`}>
                      <th scope="row" data-label={c.node}>
                        <Name value={node} /> <span class="sub mono"><Name value={address} /></span>
                      </th>
                      <td data-label={c.state}>
                        <Tag kind={health.up ? "ok" : "bad"}>{health.up ? f.up : f.out}</Tag>
                      </td>
                      <td data-label={c.inFlight} class="right">
                        <Num value={health.in_flight} />
                      </td>
                      <td data-label={c.limit} class="right">
                        <Num value={health.limit} />
                      </td>
                      <td data-label={c.latency} class="right">
                        <data class="num" value={health.latency_us} title={`${exact(health.latency_us)} µs`}>
                          {latency(health.latency_us / 1000)}
                        </data>
                      </td>
                      <td data-label={c.slowness} class="right">
                        <Num value={health.slowness} />
                      </td>
                      <td data-label={c.busy} class="right">
                        <Num value={health.busy} />
                      </td>
                      <td data-label={c.failures} class="right">
                        <Num value={health.failures} />
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </section>
          );
        })}
    </>
  );
}
