// Answers whether anything is wrong: a row for each cluster and gateway, the worst first.
import { useComputed } from "@preact/signals";
import { heardAt, isStale, now, overview } from "../live.ts";
import { reaches, roleEverywhere } from "../roles.ts";
import { link, requery, route } from "../router.ts";
import { clusterOf, registry, registryProblem, loadRegistry } from "../state.ts";
import { t } from "../strings.ts";
import type { Row, State } from "../types.ts";
import { span, visible } from "../format.ts";
import { Button, Empty, Header, Loading, Name, Num, StateBadge, Tag, Trouble } from "../ui/bits.tsx";
import { Heads, numbers, type Head } from "../ui/heads.tsx";
import { Icon } from "../ui/icon.tsx";
import { Paced, usePortion } from "../ui/paced.ts";
import { Spark } from "../ui/spark.tsx";

const STATES: readonly State[] = ["bad", "warn", "unknown", "ok"];
/** Figures older than this are shown with their age. */
const OLD_MS = 5000;
/** About as many as there are on a screen. */
const ROWS_AT_FIRST = 16;

export function Overview() {
  const snapshot = overview.value;
  const entries = registry.value;
  const word = route.value.query.get("q") ?? "";
  const only = route.value.query.get("state") as State | undefined;
  if (!snapshot) {
    return (
      <>
        <Header title={t.overview.title} />
        {registryProblem.value ? <Trouble text={registryProblem.value} onRetry={() => void loadRegistry()} /> : <Loading />}
      </>
    );
  }
  if (!snapshot.rows.length && entries && !entries.clusters.length && !entries.gateways.length) return reaches(roleEverywhere(), "admin") ? <FirstSteps /> : <Nothing />;
  const rows = snapshot.rows.filter((r) => (!only || r.state === only) && r.name.toLowerCase().includes(word.toLowerCase()));
  return (
    <>
      <Header title={t.overview.title}>
        <div class="chips" role="group" aria-label={t.overview.columns.state}>
          {STATES.map((state) => {
            const n = snapshot.rows.filter((r) => r.state === state).length;
            return n ? (
              <button key={state} type="button" class={`chip ${state}`} aria-pressed={only === state} onClick={() => requery({ state: only === state ? undefined : state })}>
                <Icon name={state} size={13} />
                {t.overview.counts(n, t.states[state])}
              </button>
            ) : null;
          })}
        </div>
        <input type="search" class="filter" data-filter aria-label={t.overview.filter} placeholder={`${t.overview.filter}  /`} value={word} onInput={(e) => requery({ q: e.currentTarget.value })} />
      </Header>
      {rows.length ? null : (
        <Empty title={t.overview.noMatch(visible(word))}>
          <Button onClick={() => requery({ q: undefined, state: undefined })}>{t.overview.clear}</Button>
        </Empty>
      )}
      <Lists rows={rows} />
    </>
  );
}

/** Both lists; what is out of sight at first is drawn a little later. */
function Lists({ rows }: { rows: readonly Row[] }) {
  const clusters = rows.filter((row) => row.kind === "cluster");
  const gateways = rows.filter((row) => row.kind === "gateway");
  const drawn = usePortion(rows.length, ROWS_AT_FIRST);
  const lists = [
    ["cluster", clusters.slice(0, drawn)],
    ["gateway", gateways.slice(0, Math.max(0, drawn - clusters.length))],
  ] as const;
  return <div class={isStale() ? "stale" : undefined}>{lists.map(([kind, list]) => (list.length ? <List key={kind} kind={kind} rows={list} /> : null))}</div>;
}

/** Nothing is registered, or nothing of it is for this user. */
function Nothing() {
  const hidden = !reaches(roleEverywhere(), "viewer");
  return (
    <>
      <Header title={t.overview.title} />
      <Empty title={hidden ? t.roles.nothing : t.overview.emptyTitle} text={hidden ? t.roles.nothingText : t.roles.missingText(t.roles.names["admin"], t.roles.everywhere, t.roles.names[roleEverywhere()])} />
    </>
  );
}

function FirstSteps() {
  return (
    <>
      <Header title={t.overview.title} />
      <Empty title={t.overview.emptyTitle} text={t.overview.emptyText}>
        <a class="button primary" href={link(["registry", "gateway", "new"])}>
          {t.overview.addGateway}
        </a>
        <a class="button" href={link(["registry", "cluster", "new"])}>
          {t.overview.addCluster}
        </a>
        <a class="button" href={link(["registry", "import"])}>
          {t.overview.importYaml}
        </a>
      </Empty>
    </>
  );
}

function List({ kind, rows }: { kind: Row["kind"]; rows: readonly Row[] }) {
  const c = t.overview.columns;
  const title = kind === "cluster" ? t.overview.clusters : t.overview.gateways;
  const heads = kind === "cluster" ? [c.health, c.nodes, c.docs, c.size] : [c.requests, c.errors, c.queue];
  return (
    <section class="panel">
      <table class={`grid rows ${kind}`}>
        <caption>
          <h2>{title}</h2>
        </caption>
        <Heads of={[c.state, [c.name, "wide"], ...numbers(c.rate), c.spark, ...heads.map((head): Head => (head === c.health || head === c.queue ? head : [head, "right"]))]} />
        <tbody>
          {rows.map((row) => (
            <Paced key={`${row.kind} ${row.id}`} of={row} draw={() => <Line row={row} heads={heads} />} />
          ))}
        </tbody>
      </table>
    </section>
  );
}

function ageOf(row: Row): number | null {
  return row.seen_ms_ago === null ? null : row.seen_ms_ago + Math.max(0, now.value - heardAt.value);
}

/** The age of old figures; it alone is drawn again with each tick of the clock. */
function Age({ row }: { row: Row }) {
  const age = ageOf(row);
  return (
    <span class="age">
      <Icon name="clock" size={12} /> {age === null ? t.cluster.neverSeen : t.cluster.seen(span(age))}
    </span>
  );
}

function Line({ row, heads }: { row: Row; heads: readonly string[] }) {
  const old = useComputed(() => {
    const age = ageOf(row);
    return age === null || age > OLD_MS;
  }).value;
  const to = row.kind === "cluster" ? link(["c", row.id]) : link(["g", row.id]);
  const entry = row.kind === "cluster" ? clusterOf(row.id) : undefined;
  const c = t.overview.columns;
  return (
    <tr data-row class={old ? "old" : undefined}>
      <td data-label={c.state}>
        <StateBadge state={row.state} />
      </td>
      <th scope="row" class="wide" data-label={c.name}>
        <span class="env" data-on={row.colour ? "" : undefined} style={row.colour ? { "--env": row.colour } : undefined} />
        <span class="name-cell">
          <a href={to}>
            <Name value={row.name} />
          </a>
          {entry?.read_only ? <Tag icon="lock">{t.cluster.readOnly}</Tag> : null}
          {entry?.protected ? <Tag icon="shield">{t.cluster.guarded}</Tag> : null}
          <span class="sub">
            {[row.flavour, row.version].filter(Boolean).map((x) => visible(String(x))).join(" ")}
            {old ? <Age row={row} /> : null}
          </span>
          {row.alerts?.length ? (
            <a class="alerts-link" href={link(["alerts"])}>
              <Tag icon="bell" kind={row.alerts.every((one) => one.silenced) ? "" : row.alerts.some((one) => one.severity === "bad") ? "bad" : "warn"}>
                {t.alerts.count(row.alerts.length)}
              </Tag>
            </a>
          ) : null}
          {row.why.length ? (
            <ul class={`why ${row.state}`}>
              {row.why.slice(0, 3).map((why) => (
                <li key={why}>
                  <bdi>{visible(why)}</bdi>
                </li>
              ))}
            </ul>
          ) : null}
        </span>
      </th>
      <td class="right big" data-label={c.rate}>
        <Num value={row.docs_per_s} as="rate" />
      </td>
      <td data-label={c.spark}>
        <Spark values={row.spark} />
      </td>
      {row.kind === "cluster" ? (
        <>
          <td data-label={heads[0]}>
            <Health value={row.health} />
          </td>
          <td class="right" data-label={heads[1]}>
            <Num value={row.nodes} />
          </td>
          <td class="right" data-label={heads[2]}>
            <Num value={row.docs} />
          </td>
          <td class="right" data-label={heads[3]}>
            <Num value={row.bytes} as="bytes" />
          </td>
        </>
      ) : (
        <>
          <td class="right" data-label={heads[0]}>
            <Num value={row.requests_per_s} as="rate" />
          </td>
          <td class="right" data-label={heads[1]}>
            <Num value={row.errors_per_s} as="rate" />
          </td>
          <td data-label={heads[2]}>
            <Queue row={row} />
          </td>
        </>
      )}
    </tr>
  );
}

const HEALTHS = ["green", "yellow", "red"];

export function Health({ value }: { value: string | null | undefined }) {
  if (!value) return <span class="none">{t.none}</span>;
  const known = HEALTHS.includes(value) ? value : "grey";
  return <span class={`health ${known}`}>{visible(value)}</span>;
}

function Queue({ row }: { row: Row }) {
  const q = row.queues;
  if (!q) return <span class="none">{t.overview.noQueue}</span>;
  return (
    <span class="queue">
      <Num value={q.pending} /> waiting
      {q.dead ? (
        <span class="dead">
          , <Num value={q.dead} /> dead
        </span>
      ) : null}
      {q.parked ? (
        <span>
          , <Num value={q.parked} /> parked
        </span>
      ) : null}
    </span>
  );
}

