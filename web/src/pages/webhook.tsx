// Where messages about alerts are sent: one address, for admins.
import { useEffect, useState } from "preact/hooks";
import { api } from "../api.ts";
import { dateTime, exact, visible } from "../format.ts";
import { go, link } from "../router.ts";
import { t } from "../strings.ts";
import type { Webhook } from "../types.ts";
import { Header, Loading, Name, Note, Trouble } from "../ui/bits.tsx";
import { Text } from "../ui/field.tsx";
import { FormPage } from "../ui/form.tsx";
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
  const [tried, setTried] = useState<{ ok: boolean; words: string | null } | null>(null);
  useEffect(() => setTried(null), [url, secret, ca, verify]);
  const body = () => ({ ...(url.trim() ? { url: url.trim() } : {}), ...(secret === undefined ? {} : { secret }), ca_pem: ca.trim() || null, verify });
  const isWrong = () => (url.trim() ? !/^https?:\/\/[^\s/]+/.test(url.trim()) : !stored);
  const save = async () => {
    await api("alerts/webhook", { method: "PUT", body: body() });
    tell(w.saved);
    again();
    go(link(["alerts"]));
  };
  const test = async () => setTried(await api("alerts/webhook/_test", { body: body() }));
  const remove = async () => {
    await api("alerts/webhook", { method: "DELETE" });
    tell(w.removed);
    go(link(["alerts"]));
  };
  return (
    <FormPage
      title={w.title}
      back={link(["alerts"])}
      check={() => (isWrong() ? w.needUrl : null)}
      save={{ label: () => r.save, run: save }}
      test={{ label: () => w.test, run: test }}
      remove={stored ? { label: w.remove, title: w.removeTitle, text: w.removeText, run: remove } : null}
      result={tried ? tried.ok ? <Note kind="ok">{w.taken}</Note> : <Trouble text={w.refused(tried.words ?? "")} /> : null}
      aside={() => <Delivery told={told} />}
    >
      <p>{w.text}</p>
      <Text label={w.url} help={stored ? w.keepUrl(visible(stored.place ?? "")) : w.urlHelp} value={url} onValue={setUrl} type="text" class="mono" inputMode="url" autocomplete="off" placeholder="https://alerts.example/hook" />
      <SecretField label={w.secret} help={w.secretHelp} stored={stored?.has_secret ?? false} value={secret} onValue={setSecret} />
      <Tls ca={ca} setCa={setCa} verify={verify} setVerify={setVerify} />
    </FormPage>
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
