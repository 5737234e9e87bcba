// Imports the registry from a YAML file, which can be kept under version control.
import { useState } from "preact/hooks";
import { api, reason } from "../api.ts";
import { visible } from "../format.ts";
import { link } from "../router.ts";
import { loadRegistry } from "../state.ts";
import { t } from "../strings.ts";
import type { ImportResult } from "../types.ts";
import { Button, Header, Note, Trouble } from "../ui/bits.tsx";
import { Area } from "../ui/field.tsx";

const r = t.registry;
const EXAMPLE = `clusters:
  - name: production
    endpoints: ["https://es-1:9200", "https://es-2:9200"]
    username: tidegate
    password: secret
    colour: "#d43c3c"
    protected: true
gateways:
  - name: gateway-1
    url: http://gateway-1:2900
    token: secret
`;

export function Import() {
  const [yaml, setYaml] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const [result, setResult] = useState<ImportResult | null>(null);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (busy || !yaml.trim()) return;
    setBusy(true);
    setProblem(null);
    setResult(null);
    try {
      setResult(await api<ImportResult>("registry/_import", { body: { yaml } }));
      await loadRegistry();
    } catch (error) {
      setProblem(reason(error));
    }
    setBusy(false);
  };
  const names = (list: readonly string[]) => list.map(visible).join(", ");
  return (
    <>
      <Header title={r.yamlTitle} />
      <form class="panel form" onSubmit={submit}>
        <p>{r.yamlText}</p>
        <Area label={r.yamlLabel} value={yaml} onValue={setYaml} rows={16} class="mono" autofocus />
        {problem ? <Trouble text={problem} /> : null}
        {result?.added.length ? <Note kind="ok">{r.added(names(result.added))}</Note> : null}
        {result?.changed.length ? <Note kind="ok">{r.changed(names(result.changed))}</Note> : null}
        {result && !result.added.length && !result.changed.length && !result.problems.length ? <Note kind="info">{r.nothing}</Note> : null}
        {result?.problems.length ? (
          <div class="note bad" role="alert">
            <div>
              <strong>{r.problems(result.problems.length)}</strong>
              <ul>
                {result.problems.map((p, i) => (
                  <li key={i}>
                    {r.at(p.line, p.column)}: <bdi>{visible(p.reason)}</bdi>
                  </li>
                ))}
              </ul>
            </div>
          </div>
        ) : null}
        <div class="actions">
          <Button type="submit" look="primary" busy={busy}>
            {r.yamlSubmit}
          </Button>
          <Button onClick={() => setYaml(EXAMPLE)} disabled={yaml.trim() !== ""}>
            {r.yamlExample}
          </Button>
          <a class="button quiet" href={link(["registry"])}>
            {r.cancel}
          </a>
        </div>
      </form>
    </>
  );
}
