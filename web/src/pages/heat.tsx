// Which shards and nodes of a cluster are written to most, as its gateways count. The cluster is not asked.
import { useEffect, useState } from "preact/hooks";
import { api } from "../api.ts";
import { bytes, exact, latency, short, span, visible } from "../format.ts";
import { asTables } from "../keys.ts";
import { serverNow } from "../live.ts";
import { requery, route } from "../router.ts";
import { clusterOf } from "../state.ts";
import { t } from "../strings.ts";
import type { Heat, ShardHeat } from "../types.ts";
import { Button, Empty, Header, Loading, Name, Note, Num, Trouble } from "../ui/bits.tsx";
import { Heads, numbers } from "../ui/heads.tsx";
import { HeatMap, stepOf, STEPS, type Row } from "../ui/heat_map.tsx";
import { usePoll } from "../ui/poll.ts";

const h = t.heat;

/** What the map, the legend and the list are about. */
const SHOWS = {
  docs: { of: (one: ShardHeat): number => one.docs_per_s, short: (v: number) => short(v < 10 ? Math.round(v * 10) / 10 : Math.round(v)), isSum: true },
  bytes: { of: (one: ShardHeat): number => one.bytes_per_s, short: bytes, isSum: true },
  rejected: { of: (one: ShardHeat): number => one.rejected_per_s, short: (v: number) => short(Math.round(v * 10) / 10), isSum: true },
  latency: { of: (one: ShardHeat): number => one.latency_ms ?? 0, short: latency, isSum: false },
} as const;
type Show = keyof typeof SHOWS;
const shown = (): Show => {
  const asked = route.value.query.get("show") ?? "";
  return asked in SHOWS ? (asked as Show) : "docs";
};
const NODES_SHOWN = 200;
const TABLE_ROWS = 500;
const TOP = 10;
/** Older figures are shown with their age. */
const OLD_MS = 5000;
/** A shard with this many times the mean of its index is named. */
const HOT = 2;

export function HeatPage({ id }: { id: string }) {
  const { data, problem, again } = usePoll((signal) => api<Heat>(`clusters/${encodeURIComponent(id)}/heat`, { signal }), 1000, [id]);
  const entry = clusterOf(id);
  const age = data ? serverNow.value - data.at_ms : 0;
  const old = problem !== null || age > OLD_MS;
  return (
    <div class="env-page" style={entry?.colour ? { "--env": entry.colour } : undefined} data-env={entry?.colour ? "" : undefined}>
      <Header
        title={
          <>
            {h.title}: <Name value={entry?.name ?? id} />
          </>
        }
      />
      {problem ? <Trouble text={problem} onRetry={again} /> : null}
      {data?.problems.map((one, i) => <Trouble key={i} text={h.gatewayProblem(one.gateway === null ? h.aGateway : visible(one.gateway), one.why)} />)}
      {data ? <Found heat={data} old={old} age={age} /> : problem ? null : <Loading lines={8} />}
    </div>
  );
}

function Found({ heat, old, age }: { heat: Heat; old: boolean; age: number }) {
  if (!heat.gateways) return <Empty title={h.noGateway} text={h.noGatewayText} />;
  if (!heat.shards.length) return heat.problems.length === heat.gateways ? null : <Empty title={h.nothing} text={h.nothingText} />;
  const hot = hottest(heat);
  return (
    <div class={old ? "stale" : undefined} data-numbers="heat">
      {old ? <p class="age">{h.old(span(age))}</p> : null}
      {hot.length && !old ? (
        <Note kind="warn">
          <ul>
            {hot.map(({ shard, times, of }) => (
              <li key={nameOf(shard)}>{h.hot(visible(nameOf(shard)), visible(nodeOf(heat, shard)), exact(Math.round(times * 10) / 10), of)}</li>
            ))}
          </ul>
        </Note>
      ) : null}
      <div class="segments heat-shows" role="group" aria-label={h.show}>
        {(Object.keys(SHOWS) as Show[]).map((one) => (
          <button key={one} type="button" aria-pressed={one === shown()} onClick={() => requery({ show: one === "docs" ? undefined : one })}>
            {h.shows[one]}
          </button>
        ))}
      </div>
      <Plan heat={heat} show={shown()} />
      <Top heat={heat} show={shown()} />
    </div>
  );
}

const nameOf = (one: ShardHeat): string => `${one.index}[${one.shard}]`;
const nodeOf = (heat: Heat, one: ShardHeat): string => (one.node === null ? h.noNode : (heat.nodes[one.node] ?? h.noNode));

/** The shards that get many times the mean of their index. */
function hottest(heat: Heat): { shard: ShardHeat; times: number; of: number }[] {
  const sums = new Map<string, { rate: number; shards: number }>();
  for (const one of heat.shards) {
    const sum = sums.get(one.index) ?? { rate: 0, shards: 0 };
    sums.set(one.index, { rate: sum.rate + one.docs_per_s, shards: sum.shards + 1 });
  }
  const all = heat.shards.flatMap((shard) => {
    const { rate, shards: of } = sums.get(shard.index)!;
    const times = rate > 0 ? (shard.docs_per_s * of) / rate : 0;
    return of > 1 && times >= HOT ? [{ shard, times, of }] : [];
  });
  return all.slice(0, 3);
}

function words(heat: Heat, one: ShardHeat): string {
  return `${visible(nameOf(one))}  ·  ${visible(nodeOf(heat, one))}  ·  ${h.rate(exact(one.docs_per_s))}  ·  ${h.bytes(bytes(one.bytes_per_s))}  ·  ${h.rejected(exact(one.rejected_per_s))}  ·  ${h.latency(one.latency_ms === null ? t.none : latency(one.latency_ms))}  ·  ${h.total(exact(one.docs))}`;
}

function rowsOf(heat: Heat, show: Show): Row[] {
  const { of, short: shortOf, isSum } = SHOWS[show];
  const byNode = new Map<string, ShardHeat[]>();
  for (const name of heat.nodes) byNode.set(name, []);
  for (const one of heat.shards) {
    const name = nodeOf(heat, one);
    byNode.set(name, [...(byNode.get(name) ?? []), one]);
  }
  const order = new Intl.Collator("en", { numeric: true });
  const rows = [...byNode].map(([name, shards]) => {
    const most = Math.max(0, ...shards.map(of));
    const sum = isSum ? shards.reduce((all, one) => all + of(one), 0) : most;
    // The order stays, whatever the rates are: what is looked at does not jump.
    const cells = shards.sort((a, b) => order.compare(a.index, b.index) || a.shard - b.shard).map((one) => ({ key: nameOf(one), value: of(one), words: words(heat, one) }));
    return { name: visible(name), sum: shortOf(sum), cells, total: sum };
  });
  const shown = rows.sort((a, b) => b.total - a.total).slice(0, NODES_SHOWN);
  return shown.sort((a, b) => order.compare(a.name, b.name));
}

function Plan({ heat, show }: { heat: Heat; show: Show }) {
  const [own, setOwn] = useState<boolean | null>(null);
  const table = own ?? asTables.value;
  const all = asTables.value;
  useEffect(() => setOwn(null), [all]);
  const most = Math.max(0, ...heat.shards.map(SHOWS[show].of));
  return (
    <section class="panel chart" aria-label={h.map}>
      <header>
        <h2>{h.map}</h2>
        <span class="unit">{h.units[show](exact(Math.round(heat.window_s)))}</span>
        {table ? <span class="legend" /> : <Legend most={most} show={show} />}
        <Button look="quiet" icon={table ? "chart" : "table"} aria-label={`${table ? t.cluster.asChart : t.cluster.asTable}: ${h.map}`} title={table ? t.cluster.asChart : t.cluster.asTable} onClick={() => setOwn(!table)} />
      </header>
      {table ? (
        <div class="scroll" tabIndex={0} role="region" aria-label={h.map}>
          <Shards heat={heat} shards={highest(heat, show).slice(0, TABLE_ROWS)} />
        </div>
      ) : (
        <HeatMap title={h.map} rows={rowsOf(heat, show)} most={most} />
      )}
      <p class="more">
        {heat.shards.length + heat.left_out > TABLE_ROWS && table ? `${h.shown(TABLE_ROWS, heat.shards.length + heat.left_out)} ` : null}
        {heat.left_out ? `${h.leftOut(heat.left_out)} ` : null}
        {heat.nodes.length > NODES_SHOWN && !table ? `${h.nodesShown(NODES_SHOWN, heat.nodes.length)} ` : null}
        {heat.others_per_s > 0 ? h.others(short(Math.round(heat.others_per_s))) : null}
      </p>
    </section>
  );
}

/** The shards, those with most of what is shown first. */
const highest = (heat: Heat, show: Show): readonly ShardHeat[] => (show === "docs" ? heat.shards : [...heat.shards].sort((a, b) => SHOWS[show].of(b) - SHOWS[show].of(a)));

function Legend({ most, show }: { most: number; show: Show }) {
  const ends = Array.from({ length: STEPS }, (_, i) => (most * (i + 1)) / STEPS);
  return (
    <ul class="legend heat-legend" aria-label={h.legend}>
      <li>
        <span class="key h0" aria-hidden="true" /> 0
      </li>
      {ends.map((end, i) => (
        <li key={i}>
          <span class={`key h${stepOf(end, most)}`} aria-hidden="true" /> {h.upTo(SHOWS[show].short(end))}
        </li>
      ))}
    </ul>
  );
}

function Top({ heat, show }: { heat: Heat; show: Show }) {
  return (
    <section class="panel">
      <h2 class="panel-head">{h.tops[show]}</h2>
      <Shards heat={heat} shards={highest(heat, show).slice(0, TOP)} />
    </section>
  );
}

function Shards({ heat, shards }: { heat: Heat; shards: readonly ShardHeat[] }) {
  const c = h.columns;
  const all = heat.shards.reduce((sum, one) => sum + one.docs_per_s, 0);
  return (
    <table class="grid rows heat">
      <Heads of={[c.index, ...numbers(c.shard), c.node, ...numbers(c.rate, c.bytes, c.share, c.rejected, c.latency, c.docs)]} />
      <tbody>
        {shards.map((one) => (
          <tr key={nameOf(one)} data-row>
            <th scope="row" data-label={c.index}>
              <Name value={one.index} />
            </th>
            <td class="right num" data-label={c.shard}>
              {one.shard}
            </td>
            <td data-label={c.node}>
              <Name value={nodeOf(heat, one)} />
            </td>
            <td class="right" data-label={c.rate}>
              <Num value={one.docs_per_s} as="rate" />
            </td>
            <td class="right" data-label={c.bytes}>
              <Num value={one.bytes_per_s} as="bytes" />
            </td>
            <td class="right num" data-label={c.share}>
              {all > 0 ? `${exact(Math.round((1000 * one.docs_per_s) / all) / 10)} %` : t.none}
            </td>
            <td class="right" data-label={c.rejected}>
              <Num value={one.rejected_per_s} as="rate" />
            </td>
            <td class="right" data-label={c.latency}>
              <Num value={one.latency_ms} as="ms" />
            </td>
            <td class="right" data-label={c.docs}>
              <Num value={one.docs} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
