// One cluster: how many documents arrive, through gateways and in all, and how its nodes cope.
import { useMemo } from "preact/hooks";
import { api } from "../api.ts";
import { bytes, clock, exact, latency, span, visible } from "../format.ts";
import { heardAt, now, overview, serverNow } from "../live.ts";
import { link, requery, route } from "../router.ts";
import { reaches, roleOn } from "../roles.ts";
import { clusterOf } from "../state.ts";
import { t } from "../strings.ts";
import type { NodeRow, Nodes, Row, Series } from "../types.ts";
import { Empty, Header, Loading, Meter, Name, Num, StateBadge, Tag, Trouble } from "../ui/bits.tsx";
import { Chart, newest, type Line } from "../ui/chart.tsx";
import { Heads, numbers } from "../ui/heads.tsx";
import { Icon } from "../ui/icon.tsx";
import { usePoll } from "../ui/poll.ts";
import { Whys } from "../ui/whys.tsx";
import { Health } from "./overview.tsx";

const RANGES = [5, 15, 60, 120];
const NODES_SHOWN = 200;

/** The interval of requests: as often as there may be a new point, but at most once a second. */
const pace = (series: Series) => Math.min(10_000, Math.max(1000, series.step_ms));

export function ClusterPage({ id }: { id: string }) {
  const asked = Number(route.value.query.get("minutes"));
  const minutes = RANGES.includes(asked) ? asked : 15;
  const at = `clusters/${encodeURIComponent(id)}`;
  const series = usePoll((signal) => api<Series>(`${at}/series?minutes=${minutes}`, { signal }), pace, [id, minutes]);
  const nodes = usePoll((signal) => api<Nodes>(`${at}/nodes`, { signal }), 2000, [id]);
  const row = overview.value?.rows.find((r) => r.kind === "cluster" && r.id === id);
  const entry = clusterOf(id);
  return (
    <div class="env-page" style={entry?.colour ? { "--env": entry.colour } : undefined} data-env={entry?.colour ? "" : undefined}>
      <Header title={<Name value={row?.name ?? entry?.name ?? id} />} lead={<Lead row={row} readOnly={entry?.read_only ?? false} guarded={entry?.protected ?? false} />}>
        <div class="segments" role="group" aria-label={t.cluster.range}>
          {RANGES.map((m) => (
            <button key={m} type="button" aria-pressed={m === minutes} onClick={() => requery({ minutes: m === 15 ? undefined : String(m) })}>
              {t.cluster.ranges[m]}
            </button>
          ))}
        </div>
        {reaches(roleOn(id), "admin") ? (
          <a class="button" href={link(["registry", "cluster", id])}>
            {t.cluster.edit}
          </a>
        ) : null}
      </Header>
      <Whys row={row} />
      {series.problem ? <Trouble text={series.problem} onRetry={series.again} /> : null}
      {series.data ? <Charts series={series.data} old={series.problem !== null} /> : series.problem ? null : <Loading lines={8} />}
      <NodeTable nodes={nodes.data} problem={nodes.problem} again={nodes.again} />
    </div>
  );
}

function Lead({ row, readOnly, guarded }: { row: Row | undefined; readOnly: boolean; guarded: boolean }) {
  const age = row?.seen_ms_ago == null ? null : row.seen_ms_ago + Math.max(0, now.value - heardAt.value);
  return (
    <div class="lead">
      {row ? <StateBadge state={row.state} /> : null}
      {row ? <Health value={row.health} /> : null}
      <span>{[row?.flavour, row?.version].filter(Boolean).map((x) => visible(String(x))).join(" ")}</span>
      {row?.docs != null ? (
        <span>
          <Num value={row.docs} /> docs
        </span>
      ) : null}
      {row?.bytes != null ? <Num value={row.bytes} as="bytes" /> : null}
      {readOnly ? <Tag icon="lock">{t.cluster.readOnly}</Tag> : null}
      {guarded ? <Tag icon="shield">{t.cluster.guarded}</Tag> : null}
      {row && (age === null || age > 5000) ? (
        <span class="age">
          <Icon name="clock" size={13} /> {age === null ? t.cluster.neverSeen : t.cluster.seen(span(age))}
        </span>
      ) : null}
    </div>
  );
}


function Charts({ series, old }: { series: Series; old: boolean }) {
  const s = series.series;
  const time = { fromMs: series.from_ms, stepMs: series.step_ms };
  const lines = useMemo(() => {
    const line = (label: string, colour: number, key: string, more: Partial<Line> = {}): Line[] => [{ label, colour, values: s[key] ?? [], ...more }];
    return {
      docs: [...line(t.cluster.whole, 1, "cluster_docs_per_s", { fill: true }), ...line(t.cluster.gateway, 2, "gateway_docs_per_s", { dash: [6, 3] })],
      latency: line(t.cluster.latency, 3, "index_latency_ms"),
      rejected: line(t.cluster.rejected, 4, "rejected_per_s"),
      heap: line(t.cluster.heap, 5, "heap_pct"),
      disk: line(t.cluster.disk, 6, "disk_pct"),
    };
  }, [series]);
  const last = (key: string) => newest(s[key] ?? [], series.step_ms);
  const whole = last("cluster_docs_per_s");
  const through = last("gateway_docs_per_s");
  // The share that is not written through gateways. The two rates are measured separately, so the gateways'
  // may be a little higher.
  const direct = whole && through !== null && through <= whole ? Math.round(100 * (1 - through / whole)) : null;
  const tiles = t.cluster.tiles;
  const pct = (v: number) => `${Math.round(v)} %`;
  return (
    <div class={old ? "stale" : undefined}>
      <dl class="tiles">
        {(
          [
            [tiles.rate, whole, "rate"],
            [tiles.gateway, through, "rate"],
            [tiles.latency, last("index_latency_ms"), "ms"],
            [tiles.rejected, last("rejected_per_s"), "rate"],
            [tiles.heap, last("heap_pct"), "pct"],
            [tiles.disk, last("disk_pct"), "pct"],
          ] as const
        ).map(([label, value, as]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>
              <Num value={value} as={as} />
              {label === tiles.gateway && direct !== null ? <span class="sub"> {t.cluster.direct(direct)}</span> : null}
            </dd>
          </div>
        ))}
      </dl>
      <Chart title={t.cluster.docs} {...time} lines={lines.docs} height={220} />
      <div class="quarters">
        <Chart title={t.cluster.latency} unit={t.cluster.latencyUnit} {...time} lines={lines.latency} height={120} say={latency} />
        <Chart title={t.cluster.rejected} {...time} lines={lines.rejected} height={120} />
        <Chart title={t.cluster.heap} {...time} lines={lines.heap} height={120} top={100} say={pct} />
        <Chart title={t.cluster.disk} {...time} lines={lines.disk} height={120} top={100} say={pct} />
      </div>
    </div>
  );
}

function NodeTable({ nodes, problem, again }: { nodes: Nodes | null; problem: string | null; again: () => void }) {
  const word = (route.value.query.get("node") ?? "").toLowerCase();
  const c = t.cluster;
  if (!nodes) return problem ? <Trouble title={c.nodes} text={problem} onRetry={again} /> : <Loading />;
  const found = nodes.nodes.filter((n) => n.name.toLowerCase().includes(word));
  const age = nodes.at_ms === null ? 0 : Math.max(0, serverNow.value - nodes.at_ms);
  return (
    <section class={`panel${problem ? " stale" : ""}`}>
      <div class="panel-head">
        <h2>{c.nodes}</h2>
        <span class="sub">
          {exact(nodes.nodes.length)}
          {nodes.at_ms === null ? "" : ` · ${clock(nodes.at_ms)}`}
          {age > 10_000 ? ` · ${c.oldNodes(span(age))}` : ""}
        </span>
        <input type="search" class="filter" data-filter aria-label={c.nodeFilter} placeholder={`${c.nodeFilter}  /`} value={route.value.query.get("node") ?? ""} onInput={(e) => requery({ node: e.currentTarget.value })} />
      </div>
      {problem ? <Trouble text={problem} onRetry={again} /> : null}
      {found.length ? (
        <table class="grid rows nodes">
          <Heads of={[[c.node, "wide"], c.roles, c.cpu, c.heapShort, c.diskShort, ...numbers(c.rate, c.rejectedShort, c.queue)]} />
          <tbody>
            {found.slice(0, NODES_SHOWN).map((n) => (
              <NodeLine key={`${n.name} ${n.address}`} node={n} />
            ))}
          </tbody>
        </table>
      ) : (
        <Empty title={word ? t.overview.noMatch(visible(word)) : c.noNodes} />
      )}
    </section>
  );
}

function NodeLine({ node: n }: { node: NodeRow }) {
  const c = t.cluster;
  const disk = n.disk_total_bytes && n.disk_used_bytes != null ? (100 * n.disk_used_bytes) / n.disk_total_bytes : null;
  const diskTitle = disk === null ? undefined : `${bytes(n.disk_used_bytes!)} / ${bytes(n.disk_total_bytes!)}`;
  return (
    <tr>
      <th scope="row" class="wide" data-label={c.node}>
        <span class="name-cell">
          <StateBadge state={n.state} compact />
          <Name value={n.name} />
          <span class="sub">
            <bdi>{visible(n.address ?? "")}</bdi>
          </span>
        </span>
      </th>
      <td data-label={c.roles} class="sub">
        <bdi>{visible((n.roles ?? []).join(", "))}</bdi>
      </td>
      <td data-label={c.cpu}>
        <Meter value={n.cpu_pct} />
      </td>
      <td data-label={c.heapShort}>
        <Meter value={n.heap_pct} />
      </td>
      <td data-label={c.diskShort}>
        <Meter value={disk} title={diskTitle} />
      </td>
      <td class="right" data-label={c.rate}>
        <Num value={n.docs_per_s} as="rate" />
      </td>
      <td class="right" data-label={c.rejectedShort}>
        <Num value={n.rejected} />
      </td>
      <td class="right" data-label={c.queue}>
        <Num value={n.queue} />
      </td>
    </tr>
  );
}
