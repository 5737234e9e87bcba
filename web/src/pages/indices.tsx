// The indices of a cluster, a page at a time, and one of them with its settings, fields and shards.
import { useRef } from "preact/hooks";
import { api } from "../api.ts";
import { dateTime, exact, bytes as size, short, span, visible } from "../format.ts";
import { serverNow } from "../live.ts";
import { link, requery, route } from "../router.ts";
import { clusterOf } from "../state.ts";
import { t } from "../strings.ts";
import type { IndexPage, IndexRow } from "../types.ts";
import { Button, Empty, Header, Loading, Name, Num, Tag, Trouble } from "../ui/bits.tsx";
import { Heads, numbers } from "../ui/heads.tsx";
import { usePoll } from "../ui/poll.ts";
import { OneIndex } from "./index_detail.tsx";
import { Health } from "./overview.tsx";

const s = t.indices;
/** The console asks the cluster less often than the page asks the console. */
const EVERY_MS = 5000;
/** The cluster is asked twice a minute. An older list is shown with its age. */
const OLD_MS = 45_000;

export function Indices({ id }: { id: string }) {
  const name = route.value.parts[3];
  const entry = clusterOf(id);
  return (
    <div class="env-page" style={entry?.colour ? { "--env": entry.colour } : undefined} data-env={entry?.colour ? "" : undefined}>
      {name === undefined ? <List id={id} /> : <OneIndex key={name} id={id} name={name} />}
    </div>
  );
}

function List({ id }: { id: string }) {
  const { query } = route.value;
  const [q, sort, from] = [query.get("q") ?? "", query.get("sort") ?? "name", query.get("from") ?? ""];
  const [reverse, hidden] = [query.has("reverse"), query.has("hidden")];
  const words = new URLSearchParams({ q, sort: Object.hasOwn(s.orders, sort) ? sort : "name", reverse: String(reverse), hidden: String(hidden), from: /^\d{1,9}$/.test(from) ? from : "0" });
  const at = `clusters/${encodeURIComponent(id)}/indices?${words}`;
  const { data: fresh, problem, again } = usePoll((signal) => api<IndexPage>(at, { signal }), EVERY_MS, [at]);
  // What was shown stays until there is something else, so that nothing jumps while somebody types.
  const kept = useRef<IndexPage | null>(null);
  if (fresh) kept.current = fresh;
  const data = fresh ?? kept.current;
  const change = (to: Readonly<Record<string, string | undefined>>) => requery({ from: undefined, ...to });
  const entry = clusterOf(id);
  return (
    <>
      <Header
        title={s.title}
        lead={
          entry ? (
            <span class="lead">
              <Name value={entry.name} />
              {data ? <span>{s.sums(exact(data.matched), short(data.docs), size(data.bytes))}</span> : null}
            </span>
          ) : null
        }
      >
        <input type="search" class="filter" data-filter aria-label={s.filter} placeholder={`${s.filter}  /`} value={q} onInput={(e) => change({ q: e.currentTarget.value })} />
        <select aria-label={s.sort} value={sort} onChange={(e) => change({ sort: e.currentTarget.value === "name" ? undefined : e.currentTarget.value, reverse: undefined })}>
          {Object.entries(s.orders).map(([key, label]) => (
            <option key={key} value={key}>
              {label}
            </option>
          ))}
        </select>
        <Button aria-pressed={reverse} onClick={() => change({ reverse: reverse ? undefined : "1" })}>
          {s.reverse}
        </Button>
      </Header>
      {problem ? <Trouble text={problem} onRetry={again} /> : null}
      {data?.problem ? <Trouble text={data.problem} onRetry={again} /> : null}
      {data ? <Rows id={id} page={data} filter={q} hidden={hidden} old={problem !== null} /> : problem ? null : <Loading lines={10} />}
    </>
  );
}

function Rows({ id, page, filter, hidden, old }: { id: string; page: IndexPage; filter: string; hidden: boolean; old: boolean }) {
  const c = s.columns;
  const age = Math.max(0, serverNow.value - page.at_ms);
  const stale = old || page.problem !== null || age > OLD_MS;
  const last = Math.min(page.matched, page.from + page.rows.length);
  const step = (from: number) => requery({ from: from > 0 ? String(from) : undefined });
  return (
    <div class={stale ? "stale" : undefined}>
      {stale ? <p class="age">{s.old(span(age))}</p> : null}
      {page.rows.length ? (
        <section class="panel">
          <table class="grid rows indices">
            <Heads of={[[c.name, "wide"], c.health, ...numbers(c.shards, c.replicas, c.docs, c.deleted, c.bytes, c.created)]} />
            <tbody>
              {page.rows.map((row) => (
                <One key={row.name} id={id} row={row} />
              ))}
            </tbody>
          </table>
        </section>
      ) : filter ? (
        <Empty title={t.overview.noMatch(visible(filter))} />
      ) : page.matched ? (
        <Empty title={s.range("0", "0", exact(page.matched))}>
          <Button onClick={() => step(0)}>{s.earlier}</Button>
        </Empty>
      ) : (
        <Empty title={s.empty} text={s.emptyText} />
      )}
      <p class="more">
        {page.matched > page.rows.length && page.rows.length ? (
          <>
            {s.range(exact(page.from + 1), exact(last), exact(page.matched))}{" "}
            <Button disabled={page.from === 0} onClick={() => step(page.from - page.page_rows)}>
              {s.earlier}
            </Button>{" "}
            <Button disabled={last >= page.matched} onClick={() => step(page.from + page.page_rows)}>
              {s.later}
            </Button>{" "}
          </>
        ) : null}
        {page.hidden ? (
          <>
            {s.hidden(page.hidden)}{" "}
            <Button aria-pressed={hidden} onClick={() => requery({ from: undefined, hidden: hidden ? undefined : "1" })}>
              {hidden ? s.hide : s.show}
            </Button>
          </>
        ) : null}
      </p>
      {stale ? null : <p class="sub">{s.age(span(age))}</p>}
    </div>
  );
}

function One({ id, row }: { id: string; row: IndexRow }) {
  const c = s.columns;
  return (
    <tr data-row>
      <th scope="row" class="wide" data-label={c.name}>
        <a href={link(["c", id, "indices", row.name])}>
          <Name value={row.name} />
        </a>
        {row.status === "close" ? (
          <>
            {" "}
            <Tag>{s.closed}</Tag>
          </>
        ) : null}
      </th>
      <td data-label={c.health}>{row.health ? <Health value={row.health} /> : <span class="none">{s.noHealth}</span>}</td>
      {(
        [
          [c.shards, row.primaries, "count"],
          [c.replicas, row.replicas, "count"],
          [c.docs, row.docs, "count"],
          [c.deleted, row.deleted, "count"],
          [c.bytes, row.bytes, "bytes"],
        ] as const
      ).map(([label, value, as]) => (
        <td key={label} class="right" data-label={label}>
          <Num value={value} as={as} />
        </td>
      ))}
      <td class="right nowrap num" data-label={c.created}>
        {row.created_ms === null ? t.none : <time dateTime={new Date(row.created_ms).toISOString()} title={dateTime(row.created_ms)}>{span(Math.max(0, serverNow.value - row.created_ms))}</time>}
      </td>
    </tr>
  );
}
