// Dev tools: requests on the left, the answer on the right.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { isAbort, Problem, reason } from "../api.ts";
import { Confirm } from "../call.tsx";
import { complete } from "../dev/complete.ts";
import { fromCurl, toCurl, toText } from "../dev/curl.ts";
import { answerView, requestEditor } from "../dev/editor.ts";
import { requestsAt, type Request } from "../dev/parser.ts";
import { run, together, type Answer } from "../dev/run.ts";
import { activeTab, add, choose, close, edit, loadTabs, saving, tabs } from "../dev/tabs.ts";
import { bytes, latency, visible } from "../format.ts";
import { overview } from "../live.ts";
import { reaches, roleOn, you } from "../roles.ts";
import { requery, route } from "../router.ts";
import { clusterOf, lastCluster, registry } from "../state.ts";
import { t } from "../strings.ts";
import type { Cluster, Tab } from "../types.ts";
import { Button, Loading, Name, Num, Tag, Trouble } from "../ui/bits.tsx";
import { Ask, Dialog } from "../ui/dialog.tsx";
import { Area, Text } from "../ui/field.tsx";
import { tell } from "../ui/toast.tsx";

const d = t.dev;
/** What is known about the cluster of a tab. */
function serverOf(id: string | null): { flavour: string | null; version: string | null } {
  const row = overview.value?.rows.find((one) => one.kind === "cluster" && one.id === id);
  return { flavour: row?.flavour ?? null, version: row?.version ?? null };
}

export function Dev() {
  const [problem, setProblem] = useState<string | null>(null);
  const asked = route.value.query.get("cluster") ?? null;
  const load = () => {
    setProblem(null);
    loadTabs(asked ?? registry.value?.clusters[0]?.id ?? null).catch((error: unknown) => setProblem(reason(error)));
  };
  useEffect(load, [you.value?.name]);
  // A link or the rail names the cluster, and the tab remembers it. The address does not keep it: loaded anew, it would
  // turn another tab to that cluster.
  useEffect(() => {
    const tab = activeTab();
    if (!tab || !asked || !registry.value) return;
    if (!clusterOf(asked)) tell(t.problems.noCluster, "bad");
    else if (tab.cluster_id !== asked) edit(tab.id, { cluster_id: asked });
    requery({ cluster: undefined });
  }, [asked, tabs.value === null, registry.value === null]);
  const at = activeTab()?.cluster_id;
  useEffect(() => {
    if (at) lastCluster.value = at;
  }, [at]);
  if (!tabs.value) return problem ? <Trouble text={problem} onRetry={load} /> : <Loading />;
  return (
    <div class="dev">
      <h1 class="hidden">{d.title}</h1>
      <TabStrip />
      <Bench tab={activeTab()!} />
      <Confirm />
    </div>
  );
}

function TabStrip() {
  const all = tabs.value!;
  const [closing, setClosing] = useState<Tab | null>(null);
  const [renaming, setRenaming] = useState<Tab | null>(null);
  const [title, setTitle] = useState("");
  const state = saving.value;
  const shut = (tab: Tab) => (tab.text.trim() ? setClosing(tab) : close(tab.id));
  return (
    <div class="tabs">
      <ul aria-label={d.tabs}>
        {all.tabs.map((tab) => (
          <li key={tab.id} class={tab.id === all.active ? "on" : undefined}>
            <button
              type="button"
              aria-pressed={tab.id === all.active}
              title={d.rename}
              onClick={() => (tab.id === all.active ? (setTitle(tab.title), setRenaming(tab)) : choose(tab.id))}
            >
              <Name value={tab.title} />
            </button>
            <Button look="quiet" icon="close" aria-label={d.closeTab(visible(tab.title))} onClick={() => shut(tab)} />
          </li>
        ))}
      </ul>
      <Button look="quiet" icon="plus" aria-label={d.newTab} title={d.newTab} onClick={() => add(activeTab()?.cluster_id ?? null)} />
      <span class={`saved ${state.at}`} role="status">
        {state.at === "failed" ? d.notSaved(state.why) : d[state.at]}
      </span>
      {closing ? (
        <Ask
          title={d.closeTitle(visible(closing.title))}
          text={d.closeText}
          yes={d.close}
          onYes={() => {
            close(closing.id);
            setClosing(null);
          }}
          onClose={() => setClosing(null)}
        />
      ) : null}
      {renaming ? (
        <Dialog title={d.rename} onClose={() => setRenaming(null)}>
          <form
            onSubmit={(e) => {
              e.preventDefault();
              if (title.trim()) edit(renaming.id, { title: title.trim().slice(0, 60) });
              setRenaming(null);
            }}
          >
            <Text label={d.tabName} value={title} onValue={setTitle} autofocus />
            <div class="actions">
              <Button type="submit" look="primary">
                {t.registry.save}
              </Button>
            </div>
          </form>
        </Dialog>
      ) : null}
    </div>
  );
}

type State = { at: "running"; n: number; of: number } | { at: "failed"; why: string } | { at: "cancelled" } | { at: "done" };
/** What became of a run: of which tab and cluster, and of which requests. */
interface Outcome {
  readonly tab: string;
  readonly cluster: Cluster | undefined;
  readonly requests: readonly Request[];
  readonly answers: readonly Answer[];
  readonly state: State;
}

/** The request whose answer is told, or that is under way or has failed, and how many there are. */
function headOf({ cluster, requests, answers, state }: Outcome): string {
  const at = state.at === "done" ? answers.at(-1)?.request : requests[answers.length];
  return cluster && at ? d.of(visible(cluster.name), visible(`${at.method} ${at.path}`), requests.length) : "";
}

function Bench({ tab }: { tab: Tab }) {
  const editorBox = useRef<HTMLDivElement>(null);
  const answerBox = useRef<HTMLDivElement>(null);
  const editor = useRef<ReturnType<typeof requestEditor> | null>(null);
  const answer = useRef<ReturnType<typeof answerView> | null>(null);
  const abort = useRef<AbortController | null>(null);
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  const [wrap, setWrap] = useState(false);
  const [pasting, setPasting] = useState(false);
  const cluster = clusterOf(tab.cluster_id ?? undefined);
  const now = useRef({ tab, cluster, wrap });
  now.current = { tab, cluster, wrap };

  const selected = () => {
    const state = editor.current!.view.state;
    return requestsAt(state.doc.toString(), state.selection.main.from, state.selection.main.to);
  };
  const go = async () => {
    if (abort.current) return;
    const { cluster, tab } = now.current;
    const list = selected();
    const answers: Answer[] = [];
    const become = (state: State) => setOutcome({ tab: tab.id, cluster, requests: list, answers: state.at === "running" ? [] : answers, state });
    if (!cluster || !list.length) return become({ at: "failed", why: cluster ? d.nothing : d.noCluster });
    const control = (abort.current = new AbortController());
    try {
      for (const request of list) {
        become({ at: "running", n: answers.length + 1, of: list.length });
        answers.push(await run(cluster.id, request, control.signal));
      }
      become({ at: "done" });
    } catch (error) {
      become(isAbort(error) ? { at: "cancelled" } : { at: "failed", why: error instanceof Problem ? error.message : reason(error) });
    }
    abort.current = null;
  };
  const runNow = useRef(go);
  runNow.current = go;

  useEffect(() => {
    editor.current = requestEditor(editorBox.current!, {
      label: `${d.editor}. ${d.editorHelp}`,
      onChange: (id, text) => edit(id, { text }),
      onRun: () => void runNow.current(),
      complete: (context) => complete(context, { cluster: now.current.tab.cluster_id, ...serverOf(now.current.tab.cluster_id) }),
    });
    answer.current = answerView(answerBox.current!, d.response);
    return () => {
      abort.current?.abort();
      editor.current?.close();
      answer.current?.view.destroy();
    };
  }, []);
  useEffect(() => editor.current?.open(tab.id, tab.text), [tab.id]);
  // An answer stands beside the tab and the cluster that it is from, and beside no other.
  const isHere = outcome?.tab === tab.id && (outcome.cluster === undefined || outcome.cluster.id === tab.cluster_id);
  const running = outcome?.state.at === "running";
  const told = isHere || running ? outcome : null;
  const answers = isHere && outcome?.answers.length ? outcome.answers : null;
  // Drawn with the bar above it, so that neither is ever beside another answer.
  useLayoutEffect(() => answer.current?.show(answers ? together(answers) : "", now.current.wrap), [answers]);

  const copy = async (text: string) => {
    try {
      await navigator.clipboard.writeText(text);
      tell(d.copied);
    } catch {
      tell(d.copyFailed, "bad");
    }
  };
  const copyCurl = () => {
    const list = selected();
    const endpoint = cluster?.endpoints[0];
    if (!endpoint || !list.length) return tell(endpoint ? d.nothing : d.noCluster, "bad");
    void copy(list.map((request) => toCurl(request, endpoint, cluster?.username)).join("\n"));
  };
  return (
    <>
      <div class="bar" role="toolbar" aria-label={d.title}>
        <label class="switch">
          <span>{d.cluster}</span>
          <select
            value={tab.cluster_id ?? ""}
            onChange={(e) => edit(tab.id, { cluster_id: e.currentTarget.value })}
          >
            {cluster ? null : <option value="">{t.nav.chooseCluster}</option>}
            {registry.value?.clusters.map((c) => (
              <option key={c.id} value={c.id}>
                {visible(c.name).slice(0, 60)}
              </option>
            ))}
          </select>
        </label>
        {cluster?.colour ? <span class="env" data-on style={{ "--env": cluster.colour }} /> : null}
        {cluster?.read_only ? <Tag icon="lock">{t.cluster.readOnly}</Tag> : null}
        {cluster?.protected ? <Tag icon="shield">{t.cluster.guarded}</Tag> : null}
        {cluster && !reaches(roleOn(cluster.id), "operator") ? (
          <span title={t.roles.note(t.roles.writing, t.roles.names["operator"], t.roles.names[roleOn(cluster.id)])}>
            <Tag icon="lock">{t.roles.names[roleOn(cluster.id)]}</Tag>
          </span>
        ) : null}
        <Button look="primary" icon="play" onClick={() => void go()} disabled={running} title={d.runHint}>
          {d.run}
        </Button>
        {running ? (
          <Button icon="stop" onClick={() => abort.current?.abort()}>
            {d.cancel}
          </Button>
        ) : null}
        <span class="grow" />
        <Button icon="copy" onClick={copyCurl}>
          {d.copyCurl}
        </Button>
        <Button onClick={() => setPasting(true)}>{d.pasteCurl}</Button>
      </div>
      <div class="bench">
        <section class="panel" aria-label={d.editor}>
          <div ref={editorBox} class="editor" />
        </section>
        <section class="panel" aria-label={d.response}>
          <OutcomeBar outcome={told} wrap={wrap} onWrap={(on) => (setWrap(on), answer.current?.wrap(on))} onCopy={() => void copy(answer.current?.view.state.doc.toString() ?? "")} />
          <div ref={answerBox} class="editor" />
        </section>
      </div>
      {pasting ? (
        <PasteCurl
          onClose={() => setPasting(false)}
          onText={(text) => {
            setPasting(false);
            setTimeout(() => editor.current?.insert(text));
          }}
        />
      ) : null}
    </>
  );
}

function OutcomeBar({ outcome, wrap, onWrap, onCopy }: { outcome: Outcome | null; wrap: boolean; onWrap: (on: boolean) => void; onCopy: () => void }) {
  if (!outcome) {
    return (
      <div class="outcome" role="status">
        <span class="none">{d.idle}</span>
      </div>
    );
  }
  const { state, answers } = outcome;
  const head = headOf(outcome);
  if (state.at === "failed") return <Trouble {...(head ? { title: head } : {})} text={state.why} />;
  const last = state.at === "done" ? answers.at(-1) : undefined;
  return (
    <div class="outcome" role="status">
      <bdi class="of mono">{head}</bdi>
      {state.at === "running" ? <span class="running">{d.running(state.n, state.of)}…</span> : null}
      {state.at === "cancelled" ? <span>{d.cancelled}</span> : null}
      {last ? (
        <>
          <strong class={`status s${Math.floor(last.result.status / 100)}`}>{last.result.status}</strong>
          <span class="num">{latency(last.result.took_ms)}</span>
          <Num value={last.result.body.length} as="bytes" />
          {last.result.body ? null : <span class="none">{d.empty}</span>}
          {last.result.truncated ? <Tag kind="warn">{d.truncated(bytes(last.result.body.length))}</Tag> : null}
          <span class="grow" />
          <label class="inline">
            <input type="checkbox" checked={wrap} onChange={(e) => onWrap(e.currentTarget.checked)} /> {d.wrap}
          </label>
          <Button look="quiet" icon="copy" aria-label={d.copy} title={d.copy} onClick={onCopy} />
        </>
      ) : null}
    </div>
  );
}

function PasteCurl({ onClose, onText }: { onClose: () => void; onText: (text: string) => void }) {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  return (
    <Dialog title={d.pasteTitle} onClose={onClose}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          const request = fromCurl(text);
          if (request) onText(toText(request));
          else setProblem(d.pasteBad);
        }}
      >
        <Area label={d.pasteLabel} value={text} onValue={setText} problem={problem} rows={8} class="mono" autofocus placeholder="curl -X POST localhost:9200/_search -d '{…}'" />
        <div class="actions">
          <Button type="submit" look="primary">
            {d.insert}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
