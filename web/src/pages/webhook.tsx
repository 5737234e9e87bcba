// Where messages about alerts are sent: one address, for admins.
import { useEffect, useState } from "preact/hooks";
import { api, reason } from "../api.ts";
import { dateTime, exact, visible } from "../format.ts";
import { go, link } from "../router.ts";
import { t } from "../strings.ts";
import type { Webhook } from "../types.ts";
import { Button, Header, Loading, Name, Note, Trouble } from "../ui/bits.tsx";
import { Ask } from "../ui/dialog.tsx";
import { Text } from "../ui/field.tsx";
import { usePoll } from "../ui/poll.ts";
import { SecretField, Tls, type Secret } from "../ui/secret.tsx";
import { tell } from "../ui/toast.tsx";

const w = t.alerts.webhook;
const r = t.registry;

export function WebhookPage() {
  const { data, problem, again } = usePoll((signal) => api<Webhook>("alerts/webhook", { signal }), 2000, []);
  return (
    <>
      {data ? <Form key={data.webhook?.place ?? ""} told={data} again={again} /> : <Header title={w.title} />}
      {problem ? <Trouble text={problem} onRetry={again} /> : data ? null : <Loading />}
    </>
  );
}

function Form({ told, again }: { told: Webhook; again: () => void }) {
  const stored = told.webhook;
  const [url, setUrl] = useState("");
  const [secret, setSecret] = useState<Secret>(undefined);
  const [ca, setCa] = useState(stored?.ca_pem ?? "");
  const [verify, setVerify] = useState(stored?.verify ?? true);
  const [busy, setBusy] = useState<"" | "test" | "save">("");
  const [problem, setProblem] = useState<string | null>(null);
  const [tried, setTried] = useState<{ ok: boolean; words: string | null } | null>(null);
  const [asking, ask] = useState(false);
  useEffect(() => setTried(null), [url, secret, ca, verify]);
  const body = () => ({ ...(url.trim() ? { url: url.trim() } : {}), ...(secret === undefined ? {} : { secret }), ca_pem: ca.trim() || null, verify });
  const doing = async (what: "test" | "save", work: () => Promise<void>) => {
    if (busy) return;
    const wrong = url.trim() ? !/^https?:\/\/[^\s/]+/.test(url.trim()) : !stored;
    setProblem(wrong ? w.needUrl : null);
    if (wrong) return;
    setBusy(what);
    try {
      await work();
    } catch (error) {
      setProblem(reason(error));
    }
    setBusy("");
  };
  const save = () =>
    doing("save", async () => {
      await api("alerts/webhook", { method: "PUT", body: body() });
      tell(w.saved);
      again();
      go(link(["alerts"]));
    });
  const test = () => doing("test", async () => setTried(await api("alerts/webhook/_test", { body: body() })));
  const remove = async () => {
    ask(false);
    try {
      await api("alerts/webhook", { method: "DELETE" });
      tell(w.removed);
      go(link(["alerts"]));
    } catch (error) {
      setProblem(reason(error));
    }
  };
  return (
    <>
      <Header title={w.title}>
        {stored ? (
          <Button look="danger" onClick={() => ask(true)}>
            {w.remove}
          </Button>
        ) : null}
      </Header>
      <div class="form-page">
        <form
          class="panel form"
          noValidate
          onSubmit={(e) => {
            e.preventDefault();
            void save();
          }}
        >
          <p>{w.text}</p>
          <Text label={w.url} help={stored ? w.keepUrl(visible(stored.place ?? "")) : w.urlHelp} value={url} onValue={setUrl} type="text" class="mono" inputMode="url" autocomplete="off" placeholder="https://alerts.example/hook" />
          <SecretField label={w.secret} help={w.secretHelp} stored={stored?.has_secret ?? false} value={secret} onValue={setSecret} />
          <Tls ca={ca} setCa={setCa} verify={verify} setVerify={setVerify} />
          {problem ? <Trouble text={problem} /> : null}
          {tried ? tried.ok ? <Note kind="ok">{w.taken}</Note> : <Trouble text={w.refused(tried.words ?? "")} /> : null}
          <div class="actions">
            <Button type="submit" look="primary" busy={busy === "save"}>
              {r.save}
            </Button>
            <Button onClick={() => void test()} busy={busy === "test"}>
              {w.test}
            </Button>
            <a class="button quiet" href={link(["alerts"])}>
              {r.cancel}
            </a>
          </div>
        </form>
        <Delivery told={told} />
      </div>
      {asking ? <Ask title={w.removeTitle} text={w.removeText} yes={w.remove} onYes={() => void remove()} onClose={() => ask(false)} /> : null}
    </>
  );
}

function Delivery({ told }: { told: Webhook }) {
  const rows: [string, string][] = [
    [w.waiting, exact(told.waiting)],
    [w.lastTaken, told.taken_ms === null ? w.never : dateTime(told.taken_ms)],
    [w.dropped, exact(told.dropped)],
  ];
  return (
    <section class="panel test" aria-label={w.delivery}>
      <h2>{w.delivery}</h2>
      <dl class="counts">
        {rows.map(([label, value]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd class="num">{value}</dd>
          </div>
        ))}
      </dl>
      {told.failed !== null && told.failed_ms !== null ? (
        <p class={told.failures ? "failing" : "sub"}>
          {w.failed(dateTime(told.failed_ms), told.failures)} <Name value={told.failed} />
        </p>
      ) : null}
    </section>
  );
}
