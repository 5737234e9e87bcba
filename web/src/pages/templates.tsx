// Templates of both kinds: the list, the editor of one, and the answer to which of them sets a value.
import { useState } from "preact/hooks";
import { Confirm } from "../call.tsx";
import { visible } from "../format.ts";
import { reaches, roleOn } from "../roles.ts";
import { link, requery, route } from "../router.ts";
import { clusterOf } from "../state.ts";
import { t } from "../strings.ts";
import { loadTemplates, type AllTemplates } from "../template_load.ts";
import { toFields, whoSets, type Origin } from "../templates.ts";
import { Button, Empty, Header, Loading, Name, Note, Num, Tag, Trouble } from "../ui/bits.tsx";
import { Text } from "../ui/field.tsx";
import { RoleNote } from "../ui/forbidden.tsx";
import { Heads, numbers } from "../ui/heads.tsx";
import { usePoll } from "../ui/poll.ts";
import { Editor } from "./template_edit.tsx";

const s = t.templates;

export function Templates({ id }: { id: string }) {
  const { data, problem, again } = usePoll((signal) => loadTemplates(id, signal), 0, [id]);
  const [, , , kind, name] = route.value.parts;
  const entry = clusterOf(id);
  const lead = entry ? (
    <span class="lead">
      <Name value={entry.name} />
      {entry.read_only ? <Tag icon="lock">{t.cluster.readOnly}</Tag> : null}
    </span>
  ) : null;
  const role = roleOn(id);
  const readOnly = (entry?.read_only ?? false) || !reaches(role, "operator");
  let content;
  if (!data) content = problem ? <Trouble text={problem} onRetry={again} /> : <Loading />;
  else if (kind === "who") content = <Who all={data} />;
  else if (kind === "new") content = <Editor key="new" cluster={id} template={null} all={data.templates} readOnly={readOnly} onChanged={again} />;
  else if (name !== undefined) {
    const found = data.templates.find((one) => one.kind === kind && one.name === name);
    content = found ? <Editor key={`${kind} ${name}`} cluster={id} template={found} all={data.templates} readOnly={readOnly} onChanged={again} /> : <Empty title={s.missing} />;
  } else content = <List id={id} all={data} />;
  return (
    <div class="env-page" style={entry?.colour ? { "--env": entry.colour } : undefined} data-env={entry?.colour ? "" : undefined}>
      <Header title={kind === "new" ? s.create : name !== undefined ? <Name value={name} /> : kind === "who" ? s.whoTitle : s.title} lead={lead}>
        {kind ? (
          <a class="button" href={link(["c", id, "templates"])}>
            {s.title}
          </a>
        ) : (
          <>
            <input type="search" class="filter" data-filter aria-label={s.filter} placeholder={`${s.filter}  /`} value={route.value.query.get("q") ?? ""} onInput={(e) => requery({ q: e.currentTarget.value })} />
            <a class="button" href={link(["c", id, "templates", "who"])}>
              {s.who}
            </a>
            {readOnly ? null : (
              <a class="button primary" href={link(["c", id, "templates", "new"])}>
                {s.create}
              </a>
            )}
          </>
        )}
      </Header>
      {data?.problems.map((why) => <Trouble key={why} text={why} onRetry={again} />)}
      {entry?.read_only ? <Note kind="info">{s.readOnly}</Note> : readOnly ? <RoleNote needs="operator" has={role} what={t.roles.saving} /> : null}
      {content}
      <Confirm />
    </div>
  );
}

function List({ id, all }: { id: string; all: AllTemplates }) {
  const word = (route.value.query.get("q") ?? "").toLowerCase();
  const [system, setSystem] = useState(false);
  const found = all.templates.filter((one) => `${one.name} ${one.patterns.join(" ")}`.toLowerCase().includes(word));
  const hidden = found.filter((one) => one.name.startsWith(".")).length;
  const list = found.filter((one) => system || !one.name.startsWith(".")).sort((a, b) => (a.name < b.name ? -1 : 1));
  const c = s.columns;
  return (
    <>
      {list.length ? (
        <section class="panel">
          <table class="grid rows">
            <Heads of={[[c.name, "wide"], c.kind, c.patterns, ...numbers(c.rank, c.shards, c.replicas, c.refresh)]} />
            <tbody>
              {list.map((one) => {
                const fields = toFields(one.kind, one.body);
                return (
                  <tr key={`${one.kind} ${one.name}`} data-row>
                    <th scope="row" class="wide" data-label={c.name}>
                      <a href={link(["c", id, "templates", one.kind, one.name])}>
                        <Name value={one.name} />
                      </a>
                    </th>
                    <td data-label={c.kind} class="nowrap">
                      {s.kinds[one.kind]}
                    </td>
                    <td data-label={c.patterns} class="mono">
                      <Name value={one.patterns.join(", ")} />
                    </td>
                    <td class="right" data-label={c.rank}>
                      <Num value={one.rank} />
                    </td>
                    <td class="right num" data-label={c.shards}>
                      {fields.shards || t.none}
                    </td>
                    <td class="right num" data-label={c.replicas}>
                      {fields.replicas || t.none}
                    </td>
                    <td class="right num" data-label={c.refresh}>
                      {fields.refresh || t.none}
                    </td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </section>
      ) : word ? (
        <Empty title={t.overview.noMatch(visible(word))} />
      ) : (
        <Empty title={s.empty} text={s.emptyText} />
      )}
      {hidden ? (
        <p class="more">
          {s.system(hidden)} <Button onClick={() => setSystem(!system)}>{system ? s.hideSystem : s.showSystem}</Button>
        </p>
      ) : null}
    </>
  );
}

function Who({ all }: { all: AllTemplates }) {
  const index = route.value.query.get("index") ?? "";
  const answer = index ? whoSets(index, all.templates, all.components) : null;
  return (
    <>
      <section class="panel form">
        <Text label={s.whoLabel} help={s.whoHelp} value={index} onValue={(v) => requery({ index: v.trim() })} data-filter autofocus class="mono" autocomplete="off" />
      </section>
      {answer && !answer.winner ? <Empty title={s.whoNone(visible(index))} /> : null}
      {answer?.winner ? (
        <>
          <Origins title={s.settings} list={answer.settings} />
          <Origins title={s.mappings} list={answer.mappings} />
          {answer.others.length && answer.winner.kind === "index" ? (
            <p>
              {s.whoLost}:{" "}
              {answer.others.map((one) => (
                <span key={`${one.kind} ${one.name}`} class="item">
                  {s.kinds[one.kind]} <Name value={one.name} /> ({one.rank})
                </span>
              ))}
            </p>
          ) : null}
          <p class="sub">{s.whoNote}</p>
        </>
      ) : null}
    </>
  );
}

export function Origins({ title, list }: { title: string; list: readonly Origin[] }) {
  return (
    <section class="panel">
      <table class="grid">
        <caption>
          <h2>{title}</h2>
        </caption>
        <Heads of={[s.whoSetting, s.whoValue, s.whoBy, s.whoOver]} />
        <tbody>
          {list.map((one) => (
            <tr key={one.key}>
              <th scope="row" class="mono" data-label={s.whoSetting}>
                <Name value={one.key} />
              </th>
              <td class="mono" data-label={s.whoValue}>
                <Name value={one.value} />
              </td>
              <td data-label={s.whoBy}>
                <Name value={one.by} />
              </td>
              <td data-label={s.whoOver} class="sub">
                {one.over.map((o, i) => (
                  <div key={i}>
                    <Name value={`${o.value} (${o.by})`} />
                  </div>
                ))}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {list.length ? null : <p class="none pad">{s.whoNothing}</p>}
    </section>
  );
}

