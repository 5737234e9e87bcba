// Who did what, when and why. The server searches, a bounded part of the log at once, and says how far it came.
import { useState } from "preact/hooks";
import { api } from "../api.ts";
import { differences } from "../differences.ts";
import { dateTime, exact, localTime, span, visible } from "../format.ts";
import { serverNow } from "../live.ts";
import { link, requery, route } from "../router.ts";
import { t } from "../strings.ts";
import type { AuditEntry, AuditPage } from "../types.ts";
import { ago, Button, Empty, Header, Loading, Name, Trouble } from "../ui/bits.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Text } from "../ui/field.tsx";
import { Heads } from "../ui/heads.tsx";
import { usePoll } from "../ui/poll.ts";

const a = t.audit;
const FILTERS = ["q", "user", "target", "from", "to"] as const;
type Filter = Readonly<Partial<Record<(typeof FILTERS)[number], string>>>;

/** The query of the server's, from that of the address: times there are ISO 8601. */
function asked(filter: Filter): URLSearchParams {
  const words = new URLSearchParams();
  for (const name of ["q", "user", "target"] as const) if (filter[name]) words.set(name, filter[name]);
  for (const name of ["from", "to"] as const) {
    const ms = Date.parse(filter[name] ?? "");
    if (Number.isFinite(ms)) words.set(`${name}_ms`, String(ms));
  }
  return words;
}

export function Audit() {
  const query = route.value.query;
  const filter: Filter = Object.fromEntries(FILTERS.flatMap((name) => (query.get(name) ? [[name, query.get(name)!]] : [])));
  const words = asked(filter).toString();
  const before = query.get("before") ?? "";
  const page = new URLSearchParams(words);
  if (before) page.set("before", before);
  // What is older does not change.
  const { data, problem, again } = usePoll((signal) => api<AuditPage>(`audit?${page}`, { signal }), before ? 0 : 5000, [page.toString()]);
  const [shown, show] = useState<AuditEntry | null>(null);
  const filtered = words !== "";
  const set = (name: (typeof FILTERS)[number]) => (value: string) => requery({ [name]: value || undefined, before: undefined });
  return (
    <>
      <Header title={a.title}>
        <a class="button" download="audit.ndjson" href={`api/audit/_download${words ? `?${words}` : ""}`}>
          {a.download}
        </a>
      </Header>
      <form class="panel audit-filter" role="search" aria-label={a.filter} onSubmit={(e) => e.preventDefault()}>
        <Text label={a.filter} type="search" data-filter value={filter.q ?? ""} onValue={set("q")} placeholder="/" autocomplete="off" />
        <Text label={a.who} value={filter.user ?? ""} onValue={set("user")} autocomplete="off" />
        <Text label={a.target} value={filter.target ?? ""} onValue={set("target")} autocomplete="off" />
        {(["from", "to"] as const).map((name) => (
          <Text key={name} label={a[name]} type="datetime-local" value={filter[name] ? localTime(Date.parse(filter[name])) : ""} onValue={(v) => set(name)(v ? new Date(v).toISOString() : "")} />
        ))}
        {filtered ? <Button onClick={() => requery({ q: undefined, user: undefined, target: undefined, from: undefined, to: undefined, before: undefined })}>{a.clear}</Button> : null}
      </form>
      {problem ? <Trouble text={problem} onRetry={again} /> : null}
      {data ? <Found page={data} filtered={filtered} before={before} onShow={show} /> : problem ? null : <Loading />}
      {shown ? <Shown entry={shown} onClose={() => show(null)} /> : null}
    </>
  );
}

function Found({ page, filtered, before, onShow }: { page: AuditPage; filtered: boolean; before: string; onShow: (entry: AuditEntry) => void }) {
  const { entries, searched, back_to_ms: back, next } = page;
  const done = back === null ? "" : a.searched(exact(searched), dateTime(back));
  const older = next === null ? null : <Button onClick={() => requery({ before: next })}>{entries.length ? a.older : a.goOn}</Button>;
  if (!entries.length) {
    const title = next !== null ? a.noneYet(exact(searched), dateTime(back ?? 0)) : filtered ? a.noMatch : before ? a.beginning : a.empty;
    return (
      <Empty title={title} text={filtered || before ? "" : a.emptyText}>
        {older}
        {before ? <Button onClick={() => requery({ before: undefined })}>{a.newest}</Button> : null}
      </Empty>
    );
  }
  return (
    <section class="panel">
      <Entries entries={entries} onShow={onShow} />
      <p class="more">
        {filtered ? `${done} ` : null}
        {next === null ? `${a.beginning} ` : null}
        {before ? <Button onClick={() => requery({ before: undefined })}>{a.newest}</Button> : null} {older}
      </p>
    </section>
  );
}

function Entries({ entries, onShow }: { entries: readonly AuditEntry[]; onShow: (entry: AuditEntry) => void }) {
  const c = a.columns;
  return (
    <table class="grid rows audit">
      <Heads of={[c.at, c.user, c.what, c.target, c.reason, c.change]} />
      <tbody>
        {entries.map((e) => (
          <tr key={e.id} data-row>
            <td data-label={c.at} class="num nowrap">
              <time title={ago(Math.max(0, serverNow.value - e.at_ms))} dateTime={new Date(e.at_ms).toISOString()}>
                {dateTime(e.at_ms)}
              </time>
            </td>
            <td data-label={c.user}>
              <Only name="user" value={e.user} />
            </td>
            <td data-label={c.what}>
              <bdi>{visible(e.what)}</bdi>
            </td>
            <td data-label={c.target}>
              <Only name="target" value={e.target} />
            </td>
            <td data-label={c.reason}>
              <bdi>{visible(e.reason ?? "")}</bdi>
            </td>
            <td data-label={c.change}>
              {e.before != null || e.after != null ? (
                <Button look="quiet" onClick={() => onShow(e)} aria-label={`${a.show}: ${visible(e.what)} ${visible(e.target)}, ${span(Math.max(0, serverNow.value - e.at_ms))}`}>
                  {a.show}
                </Button>
              ) : null}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** A name that narrows the list to itself. */
function Only({ name, value }: { name: "user" | "target"; value: string }) {
  const query = Object.fromEntries(route.value.query);
  return (
    <a class="plain" href={link(["audit"], { ...query, before: undefined, [name]: value })} title={a.only(visible(value))}>
      <Name value={value} />
    </a>
  );
}

function Shown({ entry, onClose }: { entry: AuditEntry; onClose: () => void }) {
  const rows = differences(entry.before, entry.after);
  const text = (value: unknown) => (value === undefined ? a.absent : visible(typeof value === "string" ? value : JSON.stringify(value)));
  return (
    <Dialog title={`${visible(entry.what)} ${visible(entry.target)}`} onClose={onClose}>
      <p class="sub">
        {dateTime(entry.at_ms)}, <Name value={entry.user} />
        {entry.reason ? (
          <>
            : <bdi>{visible(entry.reason)}</bdi>
          </>
        ) : null}
      </p>
      {rows.length ? (
        <table class="grid diff">
          <Heads of={[a.key, a.before, a.after]} />
          <tbody>
            {rows.map(({ key, before, after }) => (
              <tr key={key}>
                <th scope="row">
                  <Name value={key} />
                </th>
                <td class={before === undefined ? "none" : ""}>
                  <bdi>{text(before)}</bdi>
                </td>
                <td class={after === undefined ? "none" : ""}>
                  <bdi>{text(after)}</bdi>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : (
        <p>{a.unchanged}</p>
      )}
      <details>
        <summary>{a.all}</summary>
        {(["before", "after"] as const).map((side) => (
          <div key={side}>
            <h3>{a[side]}</h3>
            <pre tabIndex={0}>{entry[side] == null ? t.none : JSON.stringify(entry[side], null, 2)}</pre>
          </div>
        ))}
      </details>
    </Dialog>
  );
}
