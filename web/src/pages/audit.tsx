// Who did what, when and why.
import { useState } from "preact/hooks";
import { api } from "../api.ts";
import { dateTime, span, visible } from "../format.ts";
import { now } from "../live.ts";
import { requery, route } from "../router.ts";
import { t } from "../strings.ts";
import type { AuditEntry } from "../types.ts";
import { ago, Button, Empty, Header, Loading, Name, Trouble } from "../ui/bits.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { usePoll } from "../ui/poll.ts";

const STEP = 100;

export function Audit() {
  const [limit, setLimit] = useState(STEP);
  const { data, problem, again } = usePoll((signal) => api<{ entries: AuditEntry[] }>(`audit?limit=${limit}`, { signal }), 5000, [limit]);
  const [shown, show] = useState<AuditEntry | null>(null);
  const word = (route.value.query.get("q") ?? "").toLowerCase();
  const c = t.audit.columns;
  const entries = data?.entries.filter((e) => `${e.user} ${e.what} ${e.target} ${e.reason ?? ""}`.toLowerCase().includes(word));
  return (
    <>
      <Header title={t.audit.title}>
        <input type="search" class="filter" data-filter aria-label={t.audit.filter} placeholder={`${t.audit.filter}  /`} value={route.value.query.get("q") ?? ""} onInput={(e) => requery({ q: e.currentTarget.value })} />
      </Header>
      {problem ? <Trouble text={problem} onRetry={again} /> : null}
      {!entries ? (
        problem ? null : <Loading />
      ) : !entries.length ? (
        <Empty title={word ? t.overview.noMatch(visible(word)) : t.audit.empty} text={word ? "" : t.audit.emptyText} />
      ) : (
        <section class="panel">
          <table class="grid rows audit">
            <thead>
              <tr>
                {[c.at, c.user, c.what, c.target, c.reason, c.change].map((head) => (
                  <th key={head} scope="col">
                    {head}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {entries.map((e, i) => (
                <tr key={`${e.at_ms} ${i}`} data-row>
                  <td data-label={c.at} class="num nowrap">
                    <time title={ago(Math.max(0, now.value - e.at_ms))} dateTime={new Date(e.at_ms).toISOString()}>
                      {dateTime(e.at_ms)}
                    </time>
                  </td>
                  <td data-label={c.user}>
                    <Name value={e.user} />
                  </td>
                  <td data-label={c.what}>
                    <bdi>{visible(e.what)}</bdi>
                  </td>
                  <td data-label={c.target}>
                    <Name value={e.target} />
                  </td>
                  <td data-label={c.reason}>
                    <bdi>{visible(e.reason ?? "")}</bdi>
                  </td>
                  <td data-label={c.change}>
                    {e.before != null || e.after != null ? (
                      <Button look="quiet" onClick={() => show(e)} aria-label={`${t.audit.show}: ${visible(e.what)} ${visible(e.target)}, ${span(Math.max(0, now.value - e.at_ms))}`}>
                        {t.audit.show}
                      </Button>
                    ) : null}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          {data && data.entries.length >= limit ? (
            <p class="more">
              {t.audit.newest(data.entries.length)} <Button onClick={() => setLimit(limit + STEP * 4)}>{t.audit.more}</Button>
            </p>
          ) : null}
        </section>
      )}
      {shown ? (
        <Dialog title={`${visible(shown.what)} ${visible(shown.target)}`} onClose={() => show(null)}>
          <div class="two">
            {(["before", "after"] as const).map((side) => (
              <div key={side}>
                <h3>{t.audit[side]}</h3>
                <pre tabIndex={0}>{shown[side] == null ? t.none : typeof shown[side] === "string" ? shown[side] : JSON.stringify(shown[side], null, 2)}</pre>
              </div>
            ))}
          </div>
        </Dialog>
      ) : null}
    </>
  );
}
