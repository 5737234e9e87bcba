// The form of one cluster or gateway, with the connection test beside it.
import { useState } from "preact/hooks";
import { api } from "../api.ts";
import { latency, visible } from "../format.ts";
import { go, link } from "../router.ts";
import { loadRegistry } from "../state.ts";
import { t } from "../strings.ts";
import type { Cluster, Gateway, TestResult } from "../types.ts";
import { Name, Note, Trouble } from "../ui/bits.tsx";
import { Area, Check, Text } from "../ui/field.tsx";
import { FormPage } from "../ui/form.tsx";
import { Icon } from "../ui/icon.tsx";
import { SecretField, Tls, type Secret } from "../ui/secret.tsx";
import { tell } from "../ui/toast.tsx";

const r = t.registry;
const COLOURS = ["#d43c3c", "#d9730d", "#b58a00", "#3f8f3f", "#0f8a8a", "#2f6fdb", "#7a4fd0", "#c2478f"];

interface EntryProps {
  kind: "clusters" | "gateways";
  title: string;
  id: string | undefined;
  name: string;
  body: () => Record<string, unknown>;
  check: () => string | null;
  deleteText: string;
  children: preact.ComponentChildren;
}

function EntryForm({ kind, title, id, name, body, check, deleteText, children }: EntryProps) {
  const [result, setResult] = useState<TestResult | null>(null);
  const test = async () => {
    setResult(null);
    setResult(await api<TestResult>(`${kind}/_test`, { body: { ...body(), ...(id ? { id } : {}) } }));
  };
  const save = async () => {
    await api(id ? `${kind}/${encodeURIComponent(id)}` : kind, { method: id ? "PUT" : "POST", body: body() });
    await loadRegistry();
    tell(r.saved(visible(name)));
    go(id ? link(["registry"]) : link([]));
  };
  const remove = async () => {
    await api(`${kind}/${encodeURIComponent(id!)}`, { method: "DELETE" });
    await loadRegistry();
    tell(r.removed(visible(name)));
    go(link(["registry"]));
  };
  return (
    <FormPage
      title={title}
      back={link(["registry"])}
      check={check}
      save={{ label: (busy) => (busy ? r.saving : result && !result.ok ? r.saveAnyway : r.save), run: save }}
      test={{ label: (busy) => (busy ? r.testing : r.test), run: test }}
      remove={id ? { label: r.delete, title: r.deleteTitle(visible(name)), text: deleteText, run: remove } : null}
      aside={(testing) => <TestPanel busy={testing} result={result} gateway={kind === "gateways"} />}
    >
      {children}
    </FormPage>
  );
}

function TestPanel({ busy, result, gateway }: { busy: boolean; result: TestResult | null; gateway: boolean }) {
  const bad = result?.steps.find((s) => !s.ok);
  const found = result?.found;
  return (
    <section class="panel test" aria-label={r.test} aria-live="polite">
      <h2>{r.test}</h2>
      {busy ? <p class="none">{r.testing}…</p> : null}
      {!busy && !result ? <p class="none">{r.testHint}</p> : null}
      {result ? (
        <>
          <ol class="steps">
            {result.steps.map((step, i) => (
              <li key={`${step.step} ${i}`} class={step.ok ? "ok" : "bad"}>
                <Icon name={step.ok ? "ok" : "bad"} />
                <strong>{r.steps[step.step] ?? visible(step.step)}</strong>
                <span class="hidden">{step.ok ? r.passed : r.failed}</span>
                <span class="num sub">{latency(step.took_ms)}</span>
                <bdi class="detail">{visible(step.detail)}</bdi>
              </li>
            ))}
          </ol>
          {result.ok ? <Note kind="ok">{r.testOk}</Note> : <Trouble text={r.testBad(bad ? (r.steps[bad.step] ?? bad.step) : "?")} />}
          {found ? <p>{wordsOf(found)}</p> : null}
          {gateway && result.ok ? <p>{result.clusters?.length ? r.brings(result.clusters.map(visible).join(", ")) : r.noBrings}</p> : null}
        </>
      ) : null}
    </section>
  );
}

/** Describes what answered; unknown parts are left out. */
function wordsOf(found: NonNullable<TestResult["found"]>): string {
  const kind = [found.flavour, found.version].filter(Boolean).map((x) => visible(String(x))).join(" ");
  return [kind, found.name ? r.found(visible(found.name)) : "", found.nodes ? r.nodes(found.nodes) : ""].filter(Boolean).join(", ");
}

const isUrl = (text: string): boolean => /^https?:\/\/[^\s/]+/.test(text);

export function ClusterForm({ entry }: { entry: Cluster | null }) {
  const [name, setName] = useState(entry?.name ?? "");
  const [endpoints, setEndpoints] = useState(entry?.endpoints.join("\n") ?? "");
  const [username, setUsername] = useState(entry?.username ?? "");
  const [password, setPassword] = useState<Secret>(undefined);
  const [ca, setCa] = useState(entry?.ca_pem ?? "");
  const [verify, setVerify] = useState(entry?.verify ?? true);
  const [colour, setColour] = useState(entry?.colour ?? null);
  const [readOnly, setReadOnly] = useState(entry?.read_only ?? false);
  const [guarded, setGuarded] = useState(entry?.protected ?? false);
  const lines = endpoints.split(/[\s,]+/).filter(Boolean);
  const body = () => ({
    name: name.trim(),
    endpoints: lines,
    username: username.trim() || null,
    ca_pem: ca.trim() || null,
    verify,
    colour,
    read_only: readOnly,
    protected: guarded,
    ...(password === undefined ? {} : { password }),
  });
  const check = () => (!name.trim() ? r.needName : !lines.length || !lines.every(isUrl) ? r.needEndpoint : null);
  return (
    <EntryForm kind="clusters" title={entry ? visible(entry.name) : r.newCluster} id={entry?.id} name={name} body={body} check={check} deleteText={r.deleteText}>
      <Text label={r.name} value={name} onValue={setName} required autofocus={!entry} autocomplete="off" />
      <Area label={r.endpoints} help={r.endpointsHelp} value={endpoints} onValue={setEndpoints} rows={2} required class="mono" placeholder="https://es-1:9200" />
      <div class="two">
        <Text label={r.username} value={username} onValue={setUsername} autocomplete="off" />
        <SecretField label={r.password} stored={entry?.has_password ?? false} value={password} onValue={setPassword} />
      </div>
      <Tls ca={ca} setCa={setCa} verify={verify} setVerify={setVerify} />
      <fieldset class="swatches">
        <legend>{r.colour}</legend>
        {[null, ...COLOURS].map((c, i) => (
          <label key={c} title={c ? r.colours[i - 1] : r.noColour} style={c ? { "--env": c } : undefined}>
            <input type="radio" name="colour" checked={colour === c} onChange={() => setColour(c)} aria-label={c ? r.colours[i - 1]! : r.noColour} />
            <span class={c ? "" : "no"} />
          </label>
        ))}
      </fieldset>
      <Check label={r.readOnly} help={r.readOnlyHelp} checked={readOnly} onValue={setReadOnly} />
      <Check label={r.protected} help={r.protectedHelp} checked={guarded} onValue={setGuarded} />
    </EntryForm>
  );
}

export function GatewayForm({ entry }: { entry: Gateway | null }) {
  const [name, setName] = useState(entry?.name ?? "");
  const [url, setUrl] = useState(entry?.url ?? "");
  const [token, setToken] = useState<Secret>(undefined);
  const [ca, setCa] = useState(entry?.ca_pem ?? "");
  const [clientPem, setClientPem] = useState<Secret>(undefined);
  const [verify, setVerify] = useState(entry?.verify ?? true);
  const body = () => ({
    name: name.trim(),
    url: url.trim(),
    ca_pem: ca.trim() || null,
    verify,
    ...(token === undefined ? {} : { token }),
    ...(clientPem === undefined ? {} : { client_pem: clientPem }),
  });
  const check = () => (!name.trim() ? r.needName : !isUrl(url.trim()) ? r.needEndpoint : null);
  return (
    <EntryForm kind="gateways" title={entry ? visible(entry.name) : r.newGateway} id={entry?.id} name={name} body={body} check={check} deleteText={r.deleteGatewayText}>
      <Text label={r.name} value={name} onValue={setName} required autofocus={!entry} autocomplete="off" />
      <Text label={r.url} help={r.urlHelp} value={url} onValue={setUrl} required class="mono" inputMode="url" placeholder="http://gateway-1:2900" />
      <SecretField label={r.token} help={r.tokenHelp} stored={entry?.has_token ?? false} value={token} onValue={setToken} />
      <Tls ca={ca} setCa={setCa} verify={verify} setVerify={setVerify} />
      <SecretField label={r.clientPem} help={r.clientPemHelp} stored={entry?.has_client_pem ?? false} value={clientPem} onValue={setClientPem} lines="-----BEGIN CERTIFICATE-----" />
      {entry?.clusters.length ? (
        <p>
          {r.brings("")}
          {entry.clusters.map((c) => (
            <span key={c.name} class="item">
              {c.cluster_id ? (
                <a href={link(["c", c.cluster_id])}>
                  <Name value={c.name} />
                </a>
              ) : (
                <Name value={c.name} />
              )}
            </span>
          ))}
        </p>
      ) : null}
    </EntryForm>
  );
}
