// Who is logged in: the roles, and another password.
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { api, reason } from "./api.ts";
import { visible } from "./format.ts";
import { you, type Role } from "./roles.ts";
import { clusterOf } from "./state.ts";
import { t } from "./strings.ts";
import { Button, Name, Tag, Trouble } from "./ui/bits.tsx";
import { Dialog } from "./ui/dialog.tsx";
import { Text } from "./ui/field.tsx";
import { Icon } from "./ui/icon.tsx";
import { tell } from "./ui/toast.tsx";

const open = signal(false);
const u = t.users;

export function YouButton() {
  const me = you.value;
  if (!me) return null;
  return (
    <button type="button" class="you" onClick={() => (open.value = true)}>
      <Icon name="user" />
      <span class="hidden">{t.nav.user}: </span>
      <Name value={me.name} />
      <span class="sub">{me.role === "none" && Object.keys(me.clusters).length ? t.roles.byCluster : t.roles.names[me.role]}</span>
    </button>
  );
}

export function YouDialog() {
  const me = you.value;
  if (!me || !open.value) return null;
  const close = () => (open.value = false);
  return (
    <Dialog title={visible(me.name)} onClose={close}>
      <Roles role={me.role} clusters={me.clusters} />
      {me.oidc ? null : <Password onDone={close} />}
    </Dialog>
  );
}

/** The role for everything, and those on single clusters. One that is hidden has no name here. */
export function Roles({ role, clusters }: { role: Role; clusters: Readonly<Record<string, Role>> }) {
  return (
    <ul class="role-list">
      <li>
        <Tag>{t.roles.names[role]}</Tag> {t.roles.everywhere}: {t.roles.help[role]}
      </li>
      {Object.entries(clusters).map(([id, one]) => (
        <li key={id}>
          <Tag>{t.roles.names[one]}</Tag> <Name value={clusterOf(id)?.name ?? id} />
        </li>
      ))}
    </ul>
  );
}

function Password({ onDone }: { onDone: () => void }) {
  const [old, setOld] = useState("");
  const [given, setGiven] = useState("");
  const [again, setAgain] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    const wrong = [...given].length < 10 ? t.setup.short : given !== again ? u.differ : null;
    setProblem(wrong);
    if (busy || wrong) return;
    setBusy(true);
    try {
      await api("password", { body: { old, new: given } });
      tell(u.changed);
      onDone();
    } catch (error) {
      setProblem(reason(error));
    }
    setBusy(false);
  };
  return (
    <form onSubmit={submit} noValidate>
      <Text label={u.oldPassword} value={old} onValue={setOld} type="password" autocomplete="current-password" />
      <Text label={u.newPassword} help={t.setup.rule} value={given} onValue={setGiven} type="password" autocomplete="new-password" />
      <Text label={u.again} value={again} onValue={setAgain} type="password" autocomplete="new-password" />
      {problem ? <Trouble text={problem} /> : null}
      <div class="actions">
        <Button type="submit" look="primary" busy={busy} disabled={!old || !given}>
          {u.change}
        </Button>
      </div>
    </form>
  );
}
