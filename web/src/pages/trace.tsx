// Answers where a document or a request is: what each queue of a gateway and each of its clusters say about
// it. The page says "indexed" only if the cluster says so, and "not seen" only with how far it has looked.
import { useEffect, useRef, useState } from "preact/hooks";
import { isAbort, reason } from "../api.ts";
import { bytes, dateTime, exact, span, visible } from "../format.ts";
import { ask, pathOf, type Wait } from "../gateway_call.ts";
import { link, requery, route } from "../router.ts";
import { registry } from "../state.ts";
import { t } from "../strings.ts";
import { Button, Empty, Header, Loading, Name, Note, Tag, Trouble } from "../ui/bits.tsx";
import { Choice, Text } from "../ui/field.tsx";

const r = t.trace;

interface Pending {
  readonly position: number;
  readonly time_ms: number;
  readonly lane: number;
  readonly documents_ahead: number | null;
  readonly estimated_s: number | null;
  readonly held_by: readonly Wait[];
}
interface Parked {
  readonly position: number;
  readonly key: string;
  readonly why: string;
  readonly since_ms: number;
  readonly attempts: number;
  readonly next_try_s: number;
}
interface Dead {
  readonly id: number;
  readonly died_ms: number;
  readonly status: number;
  readonly type: string;
  readonly reason: string;
}
interface Group {
  readonly group: string;
  readonly cluster: string | null;
  readonly state: keyof typeof r.states;
  readonly pending: readonly Pending[];
  readonly parked: readonly Parked[] | null;
  readonly dead: readonly Dead[];
}
interface Searched {
  readonly from: number;
  readonly to: number;
  readonly start: number;
  readonly end: number;
  readonly since_ms: number | null;
  readonly records: number;
  readonly bytes: number;
  readonly unreadable: number;
  readonly next: number | null;
}
interface InQueue {
  readonly queue: string;
  readonly searched: Searched | null;
  readonly not_searched: string | null;
  readonly parked_searched: boolean;
  readonly dead_letters_searched: boolean;
  readonly write_count: number | null;
  readonly groups: readonly Group[];
}
interface AtCluster {
  readonly asked: boolean;
  readonly found?: boolean;
  readonly why?: string;
  readonly index?: string;
  readonly version?: number;
  readonly seq_no?: number;
  readonly no_index?: boolean;
}
interface Answer {
  readonly queues: readonly InQueue[];
  readonly clusters: Readonly<Record<string, AtCluster>>;
  readonly took_ms: number;
}

type Now = { at: "nothing" } | { at: "loading" } | { at: "failed"; why: string } | { at: "told"; answer: Answer; gateway: string };

const WORDS = ["g", "index", "id", "routing"] as const;

export function Trace() {
  const q = route.value.query;
  const gateways = registry.value?.gateways ?? [];
  const [g, asked, wanted, along] = WORDS.map((word) => q.get(word) ?? "") as [string, string, string, string];
  const [gateway, setGateway] = useState(g);
  const [index, setIndex] = useState(asked);
  const [id, setId] = useState(wanted);
  const [routing, setRouting] = useState(along);
  const [now, set] = useState<Now>({ at: "nothing" });
  const control = useRef<AbortController | null>(null);
  const chosen = gateway || gateways[0]?.id || "";
  // The address says what to look for; the form only changes the address.
  const look = async (more: { queue?: string; from?: number } = {}) => {
    control.current?.abort();
    const from = g || gateways[0]?.id;
    if (!asked || !wanted || !from) return set({ at: "nothing" });
    const mine = (control.current = new AbortController());
    set({ at: "loading" });
    try {
      const answer = await ask<Answer>(from, { method: "GET", path: pathOf(["trace"], { index: asked, id: wanted, routing: along, ...more }) }, mine.signal);
      set({ at: "told", answer, gateway: from });
    } catch (error) {
      if (!isAbort(error)) set({ at: "failed", why: reason(error) });
    }
  };
  useEffect(() => {
    if (!registry.value) return;
    setGateway(g);
    setIndex(asked);
    setId(wanted);
    setRouting(along);
    void look();
    return () => control.current?.abort();
  }, [JSON.stringify([g, asked, wanted, along]), Boolean(registry.value)]);
  if (registry.value && !gateways.length)
    return (
      <>
        <Header title={t.nav.trace} />
        <Empty title={r.noGateway} text={r.noGatewayText}>
          <a class="button" href={link(["registry", "gateway", "new"])}>
            {t.palette.newGateway}
          </a>
        </Empty>
      </>
    );
  return (
    <>
      <Header title={t.nav.trace} />
      <section class="panel trace" aria-label={t.nav.trace}>
        <form
          class="panel-head"
          onSubmit={(e) => {
            e.preventDefault();
            const same = [chosen, index, id, routing].join("\n") === [g, asked, wanted, along].join("\n");
            if (same) void look();
            else requery({ g: chosen, index, id, routing });
          }}
        >
          {gateways.length > 1 ? <Choice label={t.nav.switchGateway} value={chosen} onValue={setGateway} options={gateways.map((g) => [g.id, visible(g.name).slice(0, 60)] as const)} /> : null}
          <Text label={r.index} value={index} onValue={setIndex} autocomplete="off" spellcheck={false} />
          <Text label={r.id} value={id} onValue={setId} autocomplete="off" spellcheck={false} />
          <Text label={r.routing} value={routing} onValue={setRouting} autocomplete="off" spellcheck={false} />
          <Button type="submit" look="primary" busy={now.at === "loading"}>
            {r.look}
          </Button>
        </form>
      </section>
      {now.at === "nothing" ? <Empty title={r.nothing} text={r.nothingText} /> : null}
      {now.at === "loading" ? <Loading /> : null}
      {now.at === "failed" ? <Trouble text={now.why} onRetry={() => void look()} /> : null}
      {now.at === "told" ? <Told answer={now.answer} gateway={now.gateway} onMore={(queue, from) => void look({ queue, from })} /> : null}
    </>
  );
}

type More = (queue: string, from: number) => void;

function Told({ answer, gateway, onMore }: { answer: Answer; gateway: string; onMore: More }) {
  const clusters = Object.entries(answer.clusters);
  return (
    <div class="traced">
      {answer.queues.length ? null : <Note kind="info">{r.noQueue}</Note>}
      {answer.queues.map((one) => (
        <section key={one.queue} class="panel trace" aria-label={`${t.nav.queue}: ${visible(one.queue)}`}>
          <div class="panel-head">
            <h2>
              <a href={link(["g", gateway, "q", one.queue])}>
                <Name value={one.queue} />
              </a>
            </h2>
          </div>
          {one.groups.map((group) => (
            <OfGroup key={group.group} group={group} gateway={gateway} queue={one.queue} />
          ))}
          <p class="sub searched">
            <Looked one={one} />
          </p>
          {one.searched?.next != null ? (
            <Note kind="warn">
              {r.timeOver} <Button onClick={() => onMore(one.queue, one.searched!.next!)}>{r.on}</Button>
            </Note>
          ) : null}
          {one.parked_searched && one.dead_letters_searched ? null : <Note kind="warn">{r.partial}</Note>}
        </section>
      ))}
      <section class="panel trace" aria-label={r.clusters}>
        <div class="panel-head">
          <h2>{r.clusters}</h2>
        </div>
        <ul class="at-clusters">
          {clusters.map(([name, said]) => (
            <li key={name}>
              <Name value={name} /> <AtOne said={said} />
            </li>
          ))}
        </ul>
      </section>
    </div>
  );
}

function AtOne({ said }: { said: AtCluster }) {
  if (!said.asked) return <Trouble title={r.notAsked} text={said.why ?? ""} />;
  if (said.no_index) return <span>{r.noIndex}</span>;
  if (!said.found) return <span>{r.hasNot}</span>;
  return (
    <span>
      {r.has} <Name value={said.index ?? ""} /> {r.version(exact(said.version ?? 0), exact(said.seq_no ?? 0))}
    </span>
  );
}

const KINDS: Readonly<Record<string, string>> = { indexed: "ok", dead: "bad", parked: "warn", unknown: "warn", absent: "warn" };

function OfGroup({ group, gateway, queue }: { group: Group; gateway: string; queue: string }) {
  return (
    <div class="fate">
      <h3>
        <Name value={group.group} /> <Tag kind={KINDS[group.state] ?? ""}>{r.states[group.state] ?? visible(group.state)}</Tag>
      </h3>
      <ul>
        {group.pending.map((one) => (
          <li key={one.position}>
            {r.pending(exact(one.lane), dateTime(one.time_ms))} <a href={link(["g", gateway, "q", queue, "records"], { from: String(one.position) })}>{r.record(exact(one.position))}</a>{" "}
            {one.documents_ahead === null ? "" : r.ahead(exact(one.documents_ahead))} {one.estimated_s === null ? "" : r.estimate(span(one.estimated_s * 1000))}
            {one.held_by.map((wait) => (
              <p key={wait.why} class="held">
                <bdi>{visible(wait.why)}</bdi>
              </p>
            ))}
          </li>
        ))}
        {group.parked?.map((one) => (
          <li key={`${one.position} ${one.key}`}>
            {r.parked(dateTime(one.since_ms), exact(one.attempts), span(one.next_try_s * 1000))} <Name value={one.key} />
            <p class="held">
              <bdi>{visible(one.why)}</bdi>
            </p>
          </li>
        ))}
        {group.dead.map((one) => (
          <li key={one.id}>
            <a href={link(["g", gateway, "q", queue, "letters"], { letter: String(one.id) })}>{r.letter(String(one.id))}</a> {r.died(dateTime(one.died_ms), exact(one.status))} <Name value={one.type} />
            <p class="held">
              <bdi>{visible(one.reason)}</bdi>
            </p>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Looked({ one }: { one: InQueue }) {
  const s = one.searched;
  if (!s) return <bdi>{visible(one.not_searched ?? "")}</bdi>;
  const since = s.since_ms === null ? "" : r.since(dateTime(s.since_ms));
  return (
    <>
      {r.looked(exact(one.write_count ?? 0), exact(s.records), bytes(s.bytes), exact(s.from), exact(s.to), exact(s.start), exact(s.end))} {since} {s.unreadable ? r.unreadable(exact(s.unreadable)) : ""}
    </>
  );
}
