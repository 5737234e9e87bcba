// Dead letters of a queue: what they have in common, changes to all of them with a preview, and replay.
import { useRef, useState } from "preact/hooks";
import { reason } from "../api.ts";
import { layOut } from "../dev/layout.ts";
import { clock, dateTime, exact, visible } from "../format.ts";
import { ask, askText, pathOf, traceLink } from "../gateway_call.ts";
import { tokenActs } from "../live.ts";
import { rawItems, rawMembers } from "../raw_json.ts";
import { reaches, roleOnGateway } from "../roles.ts";
import { requery, route } from "../router.ts";
import { gatewayOf } from "../state.ts";
import { t } from "../strings.ts";
import { Button, Empty, Loading, Name, Note, Num, Trouble } from "../ui/bits.tsx";
import { Ask, Dialog } from "../ui/dialog.tsx";
import { Text } from "../ui/field.tsx";
import { RoleNote, TokenNote } from "../ui/forbidden.tsx";
import { Heads } from "../ui/heads.tsx";
import { usePoll } from "../ui/poll.ts";
import { tell } from "../ui/toast.tsx";

const l = t.letters;
const FACETS = ["like", "field", "index", "type", "status", "group"] as const;
type FacetName = (typeof FACETS)[number];
const PAGE = 50;

export interface Letter {
  readonly id: number;
  readonly died_ms: number;
  readonly edited_ms?: number;
  readonly index: string | null;
  readonly action: unknown;
  readonly status: number;
  readonly type: string;
  readonly reason: string;
  readonly attempts: number;
  readonly group: string;
  readonly cluster: string;
}
interface Facet {
  readonly values: readonly { readonly value: string; readonly letters: number }[];
  readonly others: number;
}
type Facets = Readonly<Record<FacetName, Facet>> & {
  readonly letters: number;
  /** An action that says it means the letters that were counted, and none that came since; older gateways leave it out. */
  readonly before?: number;
};
interface Page {
  readonly dead_letters: readonly Letter[];
  readonly next: number | null;
}
interface Refused {
  readonly id: number;
  readonly why: string;
}
interface Patched {
  readonly would?: number;
  readonly patched?: number;
  readonly unchanged: number;
  readonly refused: number;
  readonly refusals: readonly Refused[];
  readonly preview: readonly { readonly before: Letter; readonly after: Letter }[];
  /** The sources of the preview, laid out. */
  readonly sources: readonly { readonly id: number; readonly before: string; readonly after: string }[];
  readonly more: boolean;
  /** Where the next request goes on; the same request again would change the same letters again. */
  readonly next?: number | null;
}
interface Replayed {
  readonly replayed: number;
  readonly refused: number;
  readonly refusals: readonly Refused[];
  readonly stopped: string | null;
  readonly more: boolean;
  /** What a request sends that goes on with this one. */
  readonly before?: number;
}
type Words = Readonly<Record<string, string | undefined>>;
/** What is done, and with which letters: those that had been counted when it was begun. */
interface Doing {
  readonly what: "patch" | "replay" | "purge";
  readonly which: Words;
  readonly n: number;
}

export function Letters({ id, queue }: { id: string; queue: string }) {
  const q = route.value.query;
  const filter: Record<string, string | undefined> = { queue, reason: q.get("reason") };
  for (const name of FACETS) filter[name] = q.get(name);
  const key = JSON.stringify(filter);
  const facets = usePoll((signal) => ask<Facets>(id, { method: "GET", path: pathOf(["dead_letters", "_facets"], filter) }, signal), 0, [id, key]);
  // A letter has an address of its own, so that a trace or a colleague can link to it.
  const opened = q.get("letter");
  const open = (one: number | null) => requery({ letter: one === null ? undefined : String(one) });
  const [doing, act] = useState<Doing | null>(null);
  const [round, setRound] = useState(0);
  const again = () => (facets.again(), setRound(round + 1));
  const done = () => (act(null), again());
  const role = roleOnGateway(gatewayOf(id));
  const reached = reaches(role, "operator");
  const may = reached && tokenActs(id);
  const n = facets.data?.letters ?? 0;
  // An action names its letters: without a filter it means all of them, and must say so.
  const narrowed = Object.entries(filter).some(([name, word]) => name !== "queue" && word);
  const which: Words = { ...filter, ...(narrowed ? {} : { all: "true" }), before: facets.data?.before?.toString() };
  const begin = (what: Doing["what"]) => act({ what, which, n });
  return (
    <section class="panel letters" aria-label={t.nav.letters}>
      <div class="panel-head">
        <h2>{t.nav.letters}</h2>
        <span class="sub" data-numbers="letters">
          {facets.data ? (
            <>
              <Num value={n} /> {l.countedAt(clock(facets.at))}
            </>
          ) : null}
        </span>
        <Button onClick={again}>{l.reload}</Button>
        <span class="actions">
          <Button disabled={!n || !may} onClick={() => begin("patch")}>
            {l.patch}
          </Button>
          <Button look="primary" disabled={!n || !may} onClick={() => begin("replay")}>
            {l.replay}
          </Button>
          <Button look="danger" disabled={!n || !may} onClick={() => begin("purge")}>
            {l.purge}
          </Button>
        </span>
        <input type="search" class="filter" data-filter aria-label={l.filter} placeholder={`${l.filter}  /`} value={q.get("reason") ?? ""} onChange={(e) => requery({ reason: e.currentTarget.value })} />
      </div>
      {reached ? <TokenNote gateway={id} what={t.roles.acting} /> : <RoleNote needs="operator" has={role} what={t.roles.acting} />}
      {facets.problem ? <Trouble text={facets.problem} onRetry={facets.again} /> : null}
      {facets.data ? <FacetLists facets={facets.data} filter={filter} /> : facets.problem ? null : <Loading />}
      <List key={`${key} ${round}`} id={id} filter={filter} onOpen={open} narrowed={narrowed} />
      {opened ? <Opened key={opened} id={id} queue={queue} letter={opened} onClose={() => open(null)} onChanged={() => (open(null), again())} /> : null}
      {doing?.what === "patch" ? <PatchForm id={id} which={doing.which} n={doing.n} onDone={done} onClose={() => act(null)} /> : null}
      {doing?.what === "replay" ? <Replay id={id} which={doing.which} n={doing.n} onClose={done} /> : null}
      {doing?.what === "purge" ? <Purge id={id} which={doing.which} n={doing.n} onDone={done} onClose={() => act(null)} /> : null}
    </section>
  );
}

function Purge({ id, which, n, onDone, onClose }: { id: string; which: Words; n: number; onDone: () => void; onClose: () => void }) {
  const purge = () =>
    void ask<{ purged: number }>(id, { method: "POST", path: pathOf(["dead_letters", "_purge"], { ...which, confirm: true }) }).then(
      ({ purged }) => (tell(l.purged(exact(purged))), onDone()),
      (error: unknown) => (tell(reason(error), "bad"), onClose()),
    );
  return <Ask title={l.purgeTitle(exact(n))} text={l.purgeText(which.before !== undefined)} yes={l.purge} onClose={onClose} onYes={purge} />;
}

function FacetLists({ facets, filter }: { facets: Facets; filter: Words }) {
  return (
    <div class="facets">
      {FACETS.map((name) => {
        const { values, others } = facets[name];
        if (!values.length && !filter[name]) return null;
        const shown = values.slice(0, 8);
        const rest = others + values.slice(8).reduce((sum, one) => sum + one.letters, 0);
        return (
          <div key={name} role="group" aria-label={l.facets[name]} data-numbers={`facet ${name}`}>
            <h3>{l.facets[name]}</h3>
            <ul>
              {shown.map(({ value, letters }) => (
                <li key={value}>
                  <button type="button" aria-pressed={filter[name] === value} onClick={() => requery({ [name]: filter[name] === value ? undefined : value })}>
                    <Name value={value} />
                    <Num value={letters} />
                  </button>
                </li>
              ))}
            </ul>
            {rest ? <p class="sub">{l.others(exact(rest))}</p> : null}
            {filter[name] && !values.some((one) => one.value === filter[name]) ? <Button onClick={() => requery({ [name]: undefined })}>{l.drop(visible(filter[name]!))}</Button> : null}
          </div>
        );
      })}
    </div>
  );
}

function List({ id, filter, onOpen, narrowed }: { id: string; filter: Words; onOpen: (letter: number) => void; narrowed: boolean }) {
  const [from, setFrom] = useState<readonly number[]>([0]);
  const at = from.at(-1)!;
  const { data, problem, again } = usePoll((signal) => ask<Page>(id, { method: "GET", path: pathOf(["dead_letters"], { ...filter, from: at, limit: PAGE }) }, signal), 0, [id, JSON.stringify(filter), at]);
  const c = l.columns;
  if (!data) return problem ? <Trouble text={problem} onRetry={again} /> : <Loading />;
  if (!data.dead_letters.length) return <Empty title={narrowed ? l.noMatch : l.none} text={narrowed ? "" : l.noneText} />;
  return (
    <>
      <table class="grid rows">
        <Heads of={[c.id, c.died, c.group, c.index, c.status, c.reason]} />
        <tbody>
          {data.dead_letters.map((one) => (
            <tr key={one.id} data-row>
              <th scope="row" data-label={c.id}>
                <Button look="quiet" onClick={() => onOpen(one.id)} aria-label={`${c.id} ${one.id}`}>
                  {one.id}
                </Button>
              </th>
              <td data-label={c.died} class="num nowrap">
                {dateTime(one.died_ms)}
                {one.edited_ms ? <span class="sub"> {l.edited}</span> : null}
              </td>
              <td data-label={c.group}>
                <Name value={one.group} />
              </td>
              <td data-label={c.index}>{one.index === null ? t.none : <Name value={one.index} />}</td>
              <td data-label={c.status} class="num">
                {one.status}
              </td>
              <td data-label={c.reason}>
                <bdi>{visible(one.reason)}</bdi>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="more">
        {from.length > 1 ? <Button onClick={() => setFrom(from.slice(0, -1))}>{l.before}</Button> : null} {data.next !== null ? <Button onClick={() => setFrom([...from, data.next!])}>{l.next}</Button> : null}
      </p>
    </>
  );
}

/** A letter, with its lines as they are written: a browser would write some numbers otherwise. Nothing is "". */
interface Written {
  readonly letter: Letter;
  readonly action: string;
  readonly source: string;
  readonly original: string | null;
}

/** A part of a letter, laid out; "" if there is none. */
async function laidOut(of: ReadonlyMap<string, string>, name: string): Promise<string> {
  const raw = of.get(name) ?? "null";
  return raw === "null" ? "" : layOut(raw);
}

async function askLetter(id: string, letter: string, queue: string, signal: AbortSignal): Promise<Written> {
  const { value, text } = await askText<Letter>(id, { method: "GET", path: pathOf(["dead_letters", letter], { queue }) }, signal);
  const parts = rawMembers(text);
  const before = parts.get("original") ?? "null";
  const original = before === "null" ? null : await laidOut(rawMembers(before), "source");
  return { letter: value, action: await laidOut(parts, "action"), source: await laidOut(parts, "source"), original };
}

/** Runs one piece of work at a time: a second click, which may come before the page is drawn anew, does nothing. */
function useOnce(): (work: () => Promise<void>) => Promise<void> {
  const underWay = useRef(false);
  return async (work) => {
    if (underWay.current) return;
    underWay.current = true;
    try {
      await work();
    } finally {
      underWay.current = false;
    }
  };
}

/** The letter that the address names, as it is now. It may no longer exist. */
function Opened({ letter, ...rest }: { id: string; queue: string; letter: string; onClose: () => void; onChanged: () => void }) {
  const { data, problem, again } = usePoll((signal) => askLetter(rest.id, letter, rest.queue, signal), 0, [rest.id, rest.queue, letter]);
  if (data) return <One {...rest} opened={data} />;
  return (
    <Dialog title={`${l.columns.id} ${visible(letter)}`} onClose={rest.onClose}>
      {problem ? <Trouble text={problem} onRetry={again} /> : <Loading />}
    </Dialog>
  );
}

function One({ id, queue, opened, onClose, onChanged }: { id: string; queue: string; opened: Written; onClose: () => void; onChanged: () => void }) {
  const { letter } = opened;
  const [source, setSource] = useState(opened.source);
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState<"" | "save" | "replay">("");
  const once = useOnce();
  const may = reaches(roleOnGateway(gatewayOf(id)), "operator") && tokenActs(id);
  const edited = source !== opened.source;
  const doing = (what: "save" | "replay", work: () => Promise<string | null>) =>
    once(async () => {
      setBusy(what);
      setProblem(null);
      try {
        const wrong = await work();
        if (wrong === null) return onChanged();
        setProblem(wrong);
      } catch (error) {
        setProblem(reason(error));
      }
      setBusy("");
    });
  // The text is sent as it stands here: nobody reads its numbers on the way.
  const save = () =>
    doing("save", async () => {
      JSON.parse(source); // or else the answer would be about another key than the source
      await ask(id, { method: "PUT", path: pathOf(["dead_letters", String(letter.id)], { queue }), body: `{"source":${source}}` });
      tell(l.saved(letter.id));
      return null;
    });
  const replay = () =>
    doing("replay", async () => {
      const told = await ask<Replayed>(id, { method: "POST", path: pathOf(["dead_letters", "_replay"], { queue, id: String(letter.id) }) });
      const refused = told.refusals?.[0]?.why ?? told.stopped;
      if (refused) return refused;
      if (told.replayed !== 1) return l.gone(letter.id);
      tell(l.replayedOne(letter.id));
      return null;
    });
  const traced = traceLink(id, letter.action, letter.index);
  return (
    <Dialog title={`${l.columns.id} ${letter.id}`} onClose={onClose}>
      <p>
        <bdi>
          {letter.status} {visible(letter.type)}: {visible(letter.reason)}
        </bdi>
      </p>
      <pre tabIndex={0} aria-label={l.action}>
        {opened.action}
      </pre>
      {opened.source ? (
        <label class="field">
          <span>{l.source}</span>
          <textarea class="mono" rows={10} value={source} readOnly={!may || busy !== ""} spellcheck={false} onInput={(e) => setSource(e.currentTarget.value)} />
        </label>
      ) : null}
      {opened.original !== null ? (
        <details>
          <summary>{l.original}</summary>
          <pre tabIndex={0}>{opened.original}</pre>
        </details>
      ) : null}
      {edited ? <Note kind="info">{l.unsaved}</Note> : null}
      {problem ? <Trouble text={problem} /> : null}
      <div class="actions">
        {traced ? (
          <a class="button" href={traced}>
            {t.trace.where}
          </a>
        ) : null}
        <Button busy={busy === "save"} disabled={!may || !edited} onClick={() => void save()}>
          {l.save}
        </Button>
        <Button look="primary" busy={busy === "replay"} disabled={!may || edited} onClick={() => void replay()}>
          {l.replayOne}
        </Button>
      </div>
    </Dialog>
  );
}

/** An answer to a patch, with the sources of its preview as they are written. */
async function askPatch(id: string, path: string, body: string): Promise<Patched> {
  const { value, text } = await askText<Omit<Patched, "sources">>(id, { method: "POST", path, body });
  const pairs = rawItems(rawMembers(text).get("preview") ?? "[]").map(rawMembers);
  const of = (pair: ReadonlyMap<string, string>, side: string) => laidOut(rawMembers(pair.get(side) ?? ""), "source");
  const sources = await Promise.all(pairs.map(async (pair, n) => ({ id: value.preview[n]!.before.id, before: await of(pair, "before"), after: await of(pair, "after") })));
  return { ...value, sources };
}

/** The sum of the answers to a patch that took several requests. */
function sumOf(one: Patched | null, part: Patched): Patched {
  if (!one) return part;
  return {
    ...part,
    would: (one.would ?? 0) + (part.would ?? 0),
    patched: (one.patched ?? 0) + (part.patched ?? 0),
    unchanged: one.unchanged + part.unchanged,
    refused: one.refused + part.refused,
    refusals: [...one.refusals, ...part.refusals],
    sources: [...one.sources, ...part.sources].slice(0, 20),
  };
}

const KINDS = ["convert", "set", "remove", "rename"] as const;

function PatchForm({ id, which, n, onDone, onClose }: { id: string; which: Words; n: number; onDone: () => void; onClose: () => void }) {
  const [kind, setKind] = useState<(typeof KINDS)[number]>("convert");
  const [field, setField] = useState(which["field"] ?? "");
  const [word, setWord] = useState("");
  const [to, setTo] = useState("long");
  const [shown, setShown] = useState<{ body: string; told: Patched } | null>(null);
  // What was done of a change that broke off. Pressed again, it goes on from there.
  const [begun, setBegun] = useState<{ body: string; told: Patched } | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const step = { convert: { field, to }, set: { field, value: "" }, remove: { field }, rename: { field, to: word } }[kind];
  // A value is sent as it was typed; if it is not JSON, it is text.
  const value = () => {
    try {
      JSON.parse(word);
      return word;
    } catch {
      return JSON.stringify(word);
    }
  };
  const body = `{"patch":[{${JSON.stringify(kind)}:${kind === "set" ? `{"field":${JSON.stringify(field)},"value":${value()}}` : JSON.stringify(step)}}]}`;
  const once = useOnce();
  const send = async (dry: boolean) => {
    setBusy(true);
    setProblem(null);
    let told = !dry && begun?.body === body ? begun.told : null;
    try {
      do {
        const from = typeof told?.next === "number" ? String(told.next) : undefined;
        const path = pathOf(["dead_letters", "_patch"], { ...which, dry_run: dry ? "true" : undefined, from });
        told = sumOf(told, await askPatch(id, path, body));
      } while (typeof told.next === "number");
      if (dry) return setShown({ body, told });
      tell(`${l.patched(exact(told.patched ?? 0))}${told.more ? ` ${l.partly}` : ""}`);
      return onDone();
    } catch (error) {
      if (!dry && told) setBegun({ body, told });
      setProblem(reason(error));
    } finally {
      setBusy(false);
    }
  };
  const fresh = shown?.body === body ? shown.told : null;
  return (
    <Dialog title={l.patchTitle(exact(n))} onClose={onClose}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void once(() => send(true));
        }}
      >
        <label class="field">
          <span>{l.step}</span>
          <select value={kind} onChange={(e) => setKind(e.currentTarget.value as typeof kind)}>
            {KINDS.map((one) => (
              <option key={one} value={one}>
                {l.kinds[one]}
              </option>
            ))}
          </select>
        </label>
        <Text label={l.field} value={field} onValue={setField} autocomplete="off" required />
        {kind === "convert" ? (
          <label class="field">
            <span>{l.to}</span>
            <select value={to} onChange={(e) => setTo(e.currentTarget.value)}>
              {["long", "double", "boolean", "string"].map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          </label>
        ) : kind === "remove" ? null : (
          <Text label={kind === "set" ? l.value : l.newName} value={word} onValue={setWord} autocomplete="off" required={kind === "rename"} />
        )}
        <div class="actions">
          <Button type="submit" busy={busy} disabled={!field}>
            {l.preview}
          </Button>
          <Button look="primary" busy={busy} disabled={!fresh?.would} onClick={() => void once(() => send(false))}>
            {fresh?.would ? l.apply(exact(fresh.would)) : l.applyNone}
          </Button>
        </div>
      </form>
      {problem ? <Trouble text={problem} /> : null}
      {fresh ? (
        <>
          <p role="status">
            {l.would(exact(fresh.would ?? 0), exact(fresh.unchanged), exact(fresh.refused))}
            {fresh.more ? ` ${l.partly}` : ""}
          </p>
          <Refusals list={fresh.refusals} />
          {fresh.sources.map((one) => (
            <div key={one.id} class="two">
              <pre tabIndex={0} aria-label={`${t.audit.before} ${one.id}`}>
                {one.before}
              </pre>
              <pre tabIndex={0} aria-label={`${t.audit.after} ${one.id}`}>
                {one.after}
              </pre>
            </div>
          ))}
        </>
      ) : null}
    </Dialog>
  );
}

function Refusals({ list }: { list: readonly Refused[] }) {
  if (!list.length) return null;
  return (
    <ul class="why bad refusals">
      {list.slice(0, 100).map(({ id, why }) => (
        <li key={id}>
          {id}: <bdi>{visible(why)}</bdi>
        </li>
      ))}
    </ul>
  );
}

/** Replays letters until none is left or the gateway stops; names each refused letter with the reason. */
function Replay({ id, which, n, onClose }: { id: string; which: Words; n: number; onClose: () => void }) {
  const [state, set] = useState<{ at: "asking" | "running" | "done"; replayed: number; refused: Map<number, string>; total: number; stopped: string | null }>({ at: "asking", replayed: 0, refused: new Map(), total: 0, stopped: null });
  const run = async () => {
    let { replayed } = state;
    const refused = new Map<number, string>();
    const now = (at: "running" | "done", total: number, stopped: string | null) => set({ at, replayed, refused: new Map(refused), total, stopped });
    now("running", 0, null);
    // Letters that die once more are not replayed again: those count that were there when it began.
    let bound = which;
    try {
      for (;;) {
        const told = await ask<Replayed>(id, { method: "POST", path: pathOf(["dead_letters", "_replay"], bound) });
        if (told.before !== undefined) bound = { ...bound, before: String(told.before) };
        replayed += told.replayed;
        for (const one of told.refusals) refused.set(one.id, one.why);
        // There is no further progress when only refused letters are left.
        const over = !told.more || told.stopped !== null || told.replayed === 0;
        now(over ? "done" : "running", told.refused, told.stopped);
        if (over) return;
      }
    } catch (error) {
      now("done", refused.size, reason(error));
    }
  };
  return (
    <Dialog title={l.replayTitle(exact(n))} onClose={onClose}>
      {state.at === "asking" ? <p>{l.replayText}</p> : null}
      {state.at === "asking" ? null : (
        <p role="status" data-replayed={state.replayed}>
          {l.replayed(exact(state.replayed), exact(state.total))}
          {state.at === "running" ? ` ${l.goesOn}` : ""}
        </p>
      )}
      {state.stopped ? <Trouble text={state.stopped} /> : null}
      <Refusals list={[...state.refused].map(([one, why]) => ({ id: one, why }))} />
      <div class="actions">
        {state.at === "asking" ? (
          <Button look="primary" onClick={() => void run()}>
            {l.replay}
          </Button>
        ) : (
          <Button disabled={state.at === "running"} onClick={onClose}>
            {t.help.close}
          </Button>
        )}
      </div>
    </Dialog>
  );
}
