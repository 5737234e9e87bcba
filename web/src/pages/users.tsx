// Who may use this console, and with which roles. A change holds at once, for those who are logged in too.
import { useEffect, useState } from "preact/hooks";
import { api, reason } from "../api.ts";
import { dateTime, visible } from "../format.ts";
import { serverNow } from "../live.ts";
import { ROLES, you, type Role } from "../roles.ts";
import { go, link, route } from "../router.ts";
import { clusterOf, registry } from "../state.ts";
import { t } from "../strings.ts";
import type { Account } from "../types.ts";
import { ago, Button, Empty, Header, Loading, Name, Note, Tag, Trouble } from "../ui/bits.tsx";
import { Ask } from "../ui/dialog.tsx";
import { Choice, Text } from "../ui/field.tsx";
import { Heads } from "../ui/heads.tsx";
import { usePoll } from "../ui/poll.ts";
import { tell } from "../ui/toast.tsx";
import { Roles } from "../you.tsx";

const u = t.users;
const names = t.roles.names;
const nameOf = (id: string): string => visible(clusterOf(id)?.name ?? id);

export function Users() {
  const { data, problem, again } = usePoll((signal) => api<{ users: Account[] }>("users", { signal }), 5000, []);
  const [, view, name] = route.value.parts;
  if (!data) {
    return (
      <>
        <Header title={u.title} />
        {problem ? <Trouble text={problem} onRetry={again} /> : <Loading />}
      </>
    );
  }
  if (view === "new") return <Form key="new" account={null} onSaved={again} />;
  if (view === "u" && name !== undefined) {
    const account = data.users.find((one) => one.name === name);
    return account ? <Form key={name} account={account} onSaved={again} /> : <Empty title={u.missing} />;
  }
  return <List users={data.users} problem={problem} again={again} />;
}

function List({ users, problem, again }: { users: readonly Account[]; problem: string | null; again: () => void }) {
  const c = u.columns;
  return (
    <>
      <Header title={u.title}>
        <a class="button primary" href={link(["users", "new"])}>
          {u.add}
        </a>
      </Header>
      {problem ? <Trouble text={problem} onRetry={again} /> : null}
      <section class="panel">
        <table class="grid rows users">
          <Heads of={[c.name, c.role, c.clusters, c.seen, c.made]} />
          <tbody>
            {users.map((one) => (
              <tr key={one.name} data-row>
                <th scope="row" data-label={c.name}>
                  <a href={link(["users", "u", one.name])}>
                    <Name value={one.name} />
                  </a>{" "}
                  {one.name === you.value?.name ? <Tag>{u.you}</Tag> : null} {one.oidc ? <Tag>{u.ofProvider}</Tag> : null}
                </th>
                <td data-label={c.role}>{names[one.role]}</td>
                <td data-label={c.clusters}>
                  {Object.entries(one.clusters).map(([id, role]) => (
                    <span key={id} class="item">
                      {u.onCluster(names[role])} <Name value={nameOf(id)} />
                    </span>
                  ))}
                </td>
                <td data-label={c.seen}>{one.seen_ms === null ? <span class="none">{u.notSeen}</span> : <Seen at={one.seen_ms} />}</td>
                <td data-label={c.made} class="num nowrap">
                  {dateTime(one.made_ms)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </>
  );
}

/** The server knows the last use to the minute. */
function Seen({ at }: { at: number }) {
  const age = Math.max(0, serverNow.value - at);
  return (
    <time dateTime={new Date(at).toISOString()} title={dateTime(at)}>
      {age < 90_000 ? u.now : ago(age)}
    </time>
  );
}

interface Given {
  readonly role: Role;
  readonly clusters: Readonly<Record<string, Role>>;
}
const given = (of: Given | null): Given => ({ role: of?.role ?? "viewer", clusters: of?.clusters ?? {} });
/** Roles as one text, the same however their clusters are ordered. */
const wordsOf = ({ role, clusters }: Given): string => JSON.stringify([role, ...Object.entries(clusters).sort()]);

function Form({ account, onSaved }: { account: Account | null; onSaved: () => void }) {
  const [name, setName] = useState(account?.name ?? "");
  const [password, setPassword] = useState("");
  // The roles that the fields are a change of.
  const [began, setBegan] = useState(() => given(account));
  const [{ role, clusters }, setRoles] = useState(began);
  const [overtaken, setOvertaken] = useState(false);
  const now = wordsOf(given(account));
  // Saved as they stand here, they would give back what another admin has taken away meanwhile.
  useEffect(() => {
    if (!account || now === wordsOf(began)) return;
    setBegan(given(account));
    setRoles(given(account));
    setOvertaken(true);
  }, [now]);
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const [asking, ask] = useState(false);
  const save = async (event: Event) => {
    event.preventDefault();
    const short = [...password].length < 10 && !(account && !password);
    const wrong = !name.trim() ? u.needName : short ? t.setup.short : null;
    setProblem(wrong);
    if (busy || wrong) return;
    setBusy(true);
    try {
      const changed = wordsOf({ role, clusters }) !== wordsOf(began);
      if (account) await api(path(account.name), { method: "PUT", body: { ...(changed ? { roles: { role, clusters }, was: began } : {}), ...(password ? { password } : {}) } });
      else await api("users", { body: { name, password, role, clusters } });
      tell(u.saved(visible(name)));
      onSaved();
      go(link(["users"]));
    } catch (error) {
      setProblem(reason(error));
      // The roles may be others by now.
      onSaved();
    }
    setBusy(false);
  };
  const remove = async () => {
    ask(false);
    try {
      await api(path(account!.name), { method: "DELETE" });
      tell(u.removed(visible(name)));
      onSaved();
      go(link(["users"]));
    } catch (error) {
      setProblem(reason(error));
    }
  };
  return (
    <>
      <Header title={account ? u.edit(visible(account.name)) : u.add}>
        {account ? (
          <Button look="danger" onClick={() => ask(true)}>
            {u.remove}
          </Button>
        ) : null}
      </Header>
      {account?.oidc ? (
        <section class="panel form user-form">
          <Note kind="info">{u.providerDecides}</Note>
          <Roles role={account.role} clusters={account.clusters} />
          {problem ? <Trouble text={problem} /> : null}
          <div class="actions">
            <a class="button" href={link(["users"])}>
              {u.back}
            </a>
          </div>
        </section>
      ) : (
        <form class="panel form user-form" noValidate onSubmit={save}>
          <div class="two">
            <Text label={u.name} value={name} onValue={setName} disabled={!!account} autocomplete="off" required autofocus={!account} />
            <Text label={account ? u.newPassword : u.password} help={account ? u.newPasswordHelp : u.passwordHelp} value={password} onValue={setPassword} type="password" autocomplete="new-password" />
          </div>
          {overtaken ? <Note kind="warn">{u.overtaken}</Note> : null}
          <RoleChoice label={u.role} help={u.roleHelp} value={role} onValue={(to) => setRoles({ role: to, clusters })} />
          <Others clusters={clusters} onValue={(to) => setRoles({ role, clusters: to })} />
          {problem ? <Trouble text={problem} /> : null}
          <div class="actions">
            <Button type="submit" look="primary" busy={busy}>
              {busy ? u.saving : u.save}
            </Button>
            <a class="button quiet" href={link(["users"])}>
              {u.cancel}
            </a>
          </div>
        </form>
      )}
      {asking ? <Ask title={u.removeTitle(visible(name))} text={account?.oidc ? u.removeOfProvider : u.removeText} yes={u.remove} onYes={() => void remove()} onClose={() => ask(false)} /> : null}
    </>
  );
}

const path = (name: string) => `users/${encodeURIComponent(name)}`;

function RoleChoice({ label, help, value, onValue, single }: { label: string; help?: string; value: Role; onValue: (role: Role) => void; single?: boolean }) {
  const says = (role: Role) => (single && role === "admin" ? t.roles.helpAdminOn : t.roles.help[role]);
  const options = ROLES.map((one) => [one, `${names[one]}: ${says(one)}`] as const);
  return <Choice label={label} help={help} value={value} onValue={(v) => onValue(v as Role)} options={options} />;
}

/** Roles on single clusters: a row for each that differs, however many are registered. */
function Others({ clusters, onValue }: { clusters: Readonly<Record<string, Role>>; onValue: (clusters: Readonly<Record<string, Role>>) => void }) {
  const free = (registry.value?.clusters ?? []).filter((one) => !(one.id in clusters));
  const without = (id: string) => Object.fromEntries(Object.entries(clusters).filter(([one]) => one !== id));
  return (
    <fieldset class="others">
      <legend>{u.other}</legend>
      <p class="help">{Object.keys(clusters).length ? u.otherHelp : u.otherNone}</p>
      {Object.entries(clusters).map(([id, role]) => (
        <div key={id} class="other">
          <RoleChoice single label={u.roleOn(nameOf(id))} value={role} onValue={(to) => onValue({ ...clusters, [id]: to })} />
          <Button look="quiet" icon="close" aria-label={u.dropCluster(nameOf(id))} title={u.dropCluster(nameOf(id))} onClick={() => onValue(without(id))} />
        </div>
      ))}
      {free.length ? (
        <Choice label={u.addCluster} value="" onValue={(id) => id && onValue({ ...clusters, [id]: "viewer" })} options={[["", u.choose] as const, ...free.map((one) => [one.id, visible(one.name).slice(0, 60)] as const)]} />
      ) : null}
    </fieldset>
  );
}
