// The pages before the console: the first start, the login, and a server that does not answer.
import { useState } from "preact/hooks";
import { api, lostSession, Problem, reason } from "../api.ts";
import { go, link, route } from "../router.ts";
import { askSession, enter } from "../state.ts";
import { t } from "../strings.ts";
import type { Session, Ways } from "../types.ts";
import { Button, Note, Trouble } from "../ui/bits.tsx";
import { Text } from "../ui/field.tsx";

function Card({ title, children }: { title: string; children: preact.ComponentChildren }) {
  return (
    <main class="gate" tabIndex={-1}>
      <div class="card">
        <p class="gate-brand">
          <svg width="28" height="28" viewBox="0 0 32 32" aria-hidden="true">
            <rect width="32" height="32" rx="7" />
            <path d="M5 12c3.500-4 7.500-4 11 0s7.500 4 11 0M5 21c3.500-4 7.500-4 11 0s7.500 4 11 0" />
          </svg>
          <span>
            <strong>{t.product}</strong> {t.console}
          </span>
        </p>
        <h1>{title}</h1>
        {children}
      </div>
    </main>
  );
}

export function Unreachable({ why }: { why: string }) {
  return (
    <Card title={t.problems.title}>
      <Trouble text={why} onRetry={() => void askSession()} />
    </Card>
  );
}

/** Takes from the address why the provider's login failed, as the server says it there. */
const takeProblem = (): string | null => {
  const word = /^#login=(\w+)$/.exec(location.hash)?.[1];
  // It is no place, and a login that succeeds must not lead there.
  if (word) go(link([]));
  const words: Readonly<Record<string, string>> = t.login.provider;
  return word ? (words[word] ?? t.login.provider.failed) : null;
};

/** The address of the provider's login, which leads back to this place. */
const providerLogin = (): string => {
  const place = /^#\//.test(location.hash) ? `/${location.hash}` : "/";
  return `api/oidc/login?page=${encodeURIComponent(place)}`;
};

export function Login({ ways }: { ways: Ways }) {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [problem, setProblem] = useState<string | null>(takeProblem);
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    setProblem(null);
    try {
      enter(await api<Session>("login", { body: { name, password } }));
    } catch (error) {
      const status = error instanceof Problem ? error.status : -1;
      const wait = error instanceof Problem ? Number(error.body["retry_after_s"] ?? 0) : 0;
      setProblem(status === 401 ? t.login.wrong : status === 429 && wait > 0 ? t.login.wait(Math.ceil(wait)) : reason(error));
      setPassword("");
    }
    setBusy(false);
  };
  return (
    <Card title={t.login.title}>
      {lostSession.value > 0 ? <Note kind="info">{t.problems.signedOut}</Note> : null}
      {ways.oidc ? (
        <p class="gate-provider">
          <a class="button primary" href={providerLogin()}>
            <span>{ways.oidc.label}</span>
          </a>
        </p>
      ) : null}
      {problem ? <Trouble text={problem} /> : null}
      {ways.password ? (
        <form onSubmit={submit}>
          {ways.oidc ? <p class="sub">{t.login.orPassword}</p> : null}
          <Text label={t.login.name} value={name} onValue={setName} name="username" autocomplete="username" required autofocus={!ways.oidc} />
          <Text label={t.login.password} value={password} onValue={setPassword} type="password" name="password" autocomplete="current-password" required />
          <Button type="submit" look={ways.oidc ? undefined : "primary"} busy={busy}>
            {busy ? t.login.busy : t.login.submit}
          </Button>
        </form>
      ) : null}
    </Card>
  );
}

/** The secret in a pasted link, or in a part of one. */
const secretOf = (text: string): string => text.trim().replace(/^.*setup=/, "").replace(/[&?#].*$/, "");

export function Setup() {
  const fromLink = /^#?\/?setup=(.+)$/.exec(location.hash)?.[1] ?? route.value.query.get("setup") ?? "";
  const [secret, setSecret] = useState(fromLink);
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [tried, setTried] = useState(false);
  const [busy, setBusy] = useState(false);
  const tooShort = [...password].length < 10;
  const submit = async (event: Event) => {
    event.preventDefault();
    setTried(true);
    if (busy || tooShort || again !== password) return;
    setBusy(true);
    setProblem(null);
    try {
      const session = await api<Session>("setup", { body: { link: secretOf(secret), name, password } });
      go(link([]));
      enter(session);
    } catch (error) {
      setProblem(reason(error));
    }
    setBusy(false);
  };
  return (
    <Card title={t.setup.title}>
      <p>{t.setup.lead}</p>
      <form onSubmit={submit}>
        {fromLink ? null : (
          <>
            <p>
              {t.setup.noLink} <code>{t.setup.example}</code>
            </p>
            <Text label={t.setup.link} help={t.setup.pasted} value={secret} onValue={setSecret} required autocomplete="off" />
          </>
        )}
        <Text label={t.setup.name} value={name} onValue={setName} name="username" autocomplete="username" required autofocus={!!fromLink} />
        <Text label={t.setup.password} help={t.setup.rule} problem={tried && tooShort ? t.setup.short : null} value={password} onValue={setPassword} type="password" autocomplete="new-password" required />
        <Text label={t.setup.again} problem={tried && again !== password ? t.setup.differs : null} value={again} onValue={setAgain} type="password" autocomplete="new-password" required />
        {problem ? <Trouble text={problem} /> : null}
        <Button type="submit" look="primary" busy={busy}>
          {busy ? t.setup.busy : t.setup.submit}
        </Button>
      </form>
    </Card>
  );
}
