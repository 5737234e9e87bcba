// One index: its settings and where each of them comes from, its fields, and its shards.
import { useState } from "preact/hooks";
import { callJson } from "../call.tsx";
import { exact, visible } from "../format.ts";
import { fieldsOf, settingsOf, shardsOf, type Field, type Setting, type Shard } from "../index_settings.ts";
import { link } from "../router.ts";
import { t } from "../strings.ts";
import { loadTemplates } from "../template_load.ts";
import { dict, nameForTemplates, whoSets, type Json } from "../templates.ts";
import { Button, Empty, Header, Loading, Name, Num, Trouble } from "../ui/bits.tsx";
import { Text } from "../ui/field.tsx";
import { Heads } from "../ui/heads.tsx";
import { usePoll } from "../ui/poll.ts";

const s = t.indices;
const ROWS_SHOWN = 500;

interface Told {
  /** The indices that the name stands for. */
  readonly names: readonly string[];
  readonly settings: readonly Setting[];
  readonly fields: readonly Field[];
  readonly shards: readonly Shard[];
  /** If a part could not be read, the others are still shown. */
  readonly problems: readonly string[];
}

async function load(id: string, name: string, signal: AbortSignal): Promise<Told> {
  const at = encodeURIComponent(name);
  const get = (path: string) => callJson<Json>(id, { method: "GET", path }, signal);
  const [settings, mapping, shards, templates] = await Promise.allSettled([
    get(`/${at}/_settings?flat_settings=true&include_defaults=true`),
    get(`/${at}/_mapping`),
    get(`/_cat/shards/${at}?format=json&bytes=b&h=shard,prirep,state,docs,store,node,unassigned.reason`),
    loadTemplates(id, signal),
  ]);
  signal.throwIfAborted();
  if (settings.status === "rejected") throw settings.reason;
  const told = dict(settings.value);
  const names = Object.keys(told);
  const all = templates.status === "fulfilled" ? templates.value : { templates: [], components: new Map(), problems: [String((templates.reason as Error).message)] };
  const why = (r: PromiseSettledResult<unknown>, what: string) => (r.status === "rejected" ? [s.partly(what, String((r.reason as Error).message))] : []);
  const value = (r: PromiseSettledResult<Json>): Json => (r.status === "fulfilled" ? r.value : null);
  return {
    names,
    settings: settingsOf(dict(told[name]), whoSets(nameForTemplates(name, all.templates), all.templates, all.components)),
    fields: fieldsOf(dict(dict(dict(value(mapping))[name])["mappings"])),
    shards: shardsOf(value(shards)),
    problems: [...why(mapping, "_mapping"), ...why(shards, "_cat/shards"), ...all.problems],
  };
}

export function OneIndex({ id, name }: { id: string; name: string }) {
  const { data, problem, again } = usePoll((signal) => load(id, name, signal), 0, [id, name]);
  return (
    <>
      <Header title={<Name value={name} />}>
        <a class="button" href={link(["c", id, "indices"])}>
          {s.back}
        </a>
      </Header>
      {problem ? <Trouble text={problem} onRetry={again} /> : null}
      {data?.problems.map((one) => <Trouble key={one} text={one} onRetry={again} />)}
      {data ? <Found id={id} name={name} told={data} /> : problem ? null : <Loading lines={10} />}
    </>
  );
}

function Found({ id, name, told }: { id: string; name: string; told: Told }) {
  if (!told.names.includes(name)) {
    return (
      <Empty title={s.many(visible(name))}>
        <ul>
          {told.names.slice(0, ROWS_SHOWN).map((one) => (
            <li key={one}>
              <a href={link(["c", id, "indices", one])}>
                <Name value={one} />
              </a>
            </li>
          ))}
        </ul>
      </Empty>
    );
  }
  return (
    <>
      <Settings all={told.settings} />
      <Fields all={told.fields} />
      <Shards all={told.shards} />
    </>
  );
}

/** A caption and a table, the first of its rows, and how many there are. */
function Panel<T>({ title, heads, all, row, none }: { title: string; heads: readonly string[]; all: readonly T[]; row: (one: T) => preact.ComponentChild; none: string }) {
  return (
    <section class="panel" aria-label={title}>
      {all.length ? (
        <table class="grid rows">
          <caption>
            <h2>
              {title} <span class="sub">{exact(all.length)}</span>
            </h2>
          </caption>
          <Heads of={heads} />
          <tbody>{all.slice(0, ROWS_SHOWN).map(row)}</tbody>
        </table>
      ) : (
        <>
          <h2 class="panel-head">{title}</h2>
          <p class="none pad">{none}</p>
        </>
      )}
      {all.length > ROWS_SHOWN ? <p class="more">{s.shown(ROWS_SHOWN, exact(all.length))}</p> : null}
    </section>
  );
}

function Settings({ all }: { all: readonly Setting[] }) {
  const [word, setWord] = useState("");
  const [defaults, setDefaults] = useState(false);
  const matching = all.filter((one) => `${one.key} ${one.value} ${one.by ?? ""}`.toLowerCase().includes(word.toLowerCase()));
  const shown = matching.filter((one) => defaults || one.source !== "default");
  const left = all.filter((one) => one.source === "default").length;
  return (
    <>
      <section class="panel form">
        <Text label={s.settingsFilter} value={word} onValue={setWord} data-filter autocomplete="off" />
        {left ? (
          <p class="more">
            {s.defaults(left)}{" "}
            <Button aria-pressed={defaults} onClick={() => setDefaults(!defaults)}>
              {defaults ? s.hide : s.show}
            </Button>
          </p>
        ) : null}
      </section>
      <Panel
        title={s.settings}
        heads={[s.setting, s.value, s.source]}
        all={shown}
        none={t.overview.noMatch(visible(word))}
        row={(one) => (
          <tr key={one.key} data-row>
            <th scope="row" class="mono" data-label={s.setting}>
              <Name value={one.key} />
            </th>
            <td class="mono" data-label={s.value}>
              <Name value={one.value} />
            </td>
            <td data-label={s.source}>
              <Name value={sourceOf(one)} />
            </td>
          </tr>
        )}
      />
      <p class="more">{s.settingsNote}</p>
    </>
  );
}

function sourceOf(one: Setting): string {
  if (one.by !== null && one.there !== null) {
    if (one.source === "template") return one.by;
    return one.source === "changed" ? s.changed(one.by, one.there) : s.defaultBeside(one.by, one.there);
  }
  return s.sources[one.source] ?? "";
}

function Fields({ all }: { all: readonly Field[] }) {
  return (
    <Panel
      title={s.mapping}
      heads={[s.field, s.type, s.more]}
      all={all}
      none={s.noFields}
      row={(one) => (
        <tr key={one.path} data-row>
          <th scope="row" class="mono" data-label={s.field}>
            <Name value={one.path} />
          </th>
          <td class="mono" data-label={s.type}>
            <Name value={one.type} />
          </td>
          <td class="mono sub" data-label={s.more}>
            {one.more ? <Name value={one.more} /> : null}
          </td>
        </tr>
      )}
    />
  );
}

function Shards({ all }: { all: readonly Shard[] }) {
  return (
    <Panel
      title={s.shards}
      heads={[s.shard, s.copy, s.state, s.node, s.columns.docs, s.columns.bytes]}
      all={all}
      none={t.none}
      row={(one) => (
        <tr key={`${one.shard} ${one.primary} ${one.node} ${one.state}`} data-row>
          <th scope="row" class="num" data-label={s.shard}>
            {one.shard}
          </th>
          <td data-label={s.copy}>{one.primary ? s.primary : s.replica}</td>
          <td data-label={s.state}>
            <Name value={one.why ? `${one.state}: ${one.why}` : one.state} />
          </td>
          <td data-label={s.node}>
            <Name value={one.node || s.noNode} />
          </td>
          <td data-label={s.columns.docs}>
            <Num value={one.docs} />
          </td>
          <td data-label={s.columns.bytes}>
            <Num value={one.bytes} as="bytes" />
          </td>
        </tr>
      )}
    />
  );
}
