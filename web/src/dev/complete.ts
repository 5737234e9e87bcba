// Makes CodeMirror's suggestions from the typed text, the flavour's specification and the cluster's names.
import type { CompletionContext, CompletionResult } from "@codemirror/autocomplete";
import { api } from "../api.ts";
import { LONG } from "./editor.ts";
import { METHODS, placeAt } from "./parser.ts";
import { wantedFor, type SpecName } from "./versions.ts";
import { suggestBody, suggestParam, suggestPath, type NameKind, type Spec, type Suggestions } from "./suggest.ts";

const load: Record<SpecName, () => Promise<{ default: unknown }>> = {
  elasticsearch: () => import("./spec/elasticsearch.json"),
  "elasticsearch-7": () => import("./spec/elasticsearch-7.json"),
  opensearch: () => import("./spec/opensearch.json"),
};
const specs = new Map<string, Promise<Spec>>();

function kept(key: string, make: () => Promise<Spec>): Promise<Spec> {
  const found = specs.get(key) ?? make();
  specs.set(key, found);
  found.catch(() => specs.delete(key));
  return found;
}

const specOf = (name: SpecName): Promise<Spec> => kept(name, () => load[name]().then((module) => module.default as Spec));

/** Made once for a flavour and version. */
function specFor(flavour: string | null, version: string | null): Promise<Spec> {
  const { names, make } = wantedFor(flavour, version);
  return kept(`of ${names.join(" ")}`, () => Promise.all(names.map(specOf)).then(make));
}

/** Names from the cluster; the server caches them for a minute, and so does the page. */
const names = new Map<string, { at: number; list: Promise<readonly string[]> }>();
const KEEP_MS = 60_000;

function namesOf(cluster: string, kind: NameKind, prefix: string): Promise<readonly string[]> {
  const key = `${cluster} ${kind} ${prefix.slice(0, 2)}`;
  const kept = names.get(key);
  if (kept && Date.now() - kept.at < KEEP_MS) return kept.list;
  const asked = api<{ names: string[] }>(`clusters/${encodeURIComponent(cluster)}/names?kind=${kind}&prefix=${encodeURIComponent(prefix.slice(0, 2))}`);
  // Without names, the words of the specification are still suggested.
  const list = asked.then((answer) => answer.names, () => []);
  names.set(key, { at: Date.now(), list });
  return list;
}

export interface Where {
  readonly cluster: string | null;
  readonly flavour: string | null;
  readonly version: string | null;
}

export async function complete(context: CompletionContext, where: Where): Promise<CompletionResult | null> {
  if (context.state.doc.length > LONG) return null;
  const place = placeAt(context.state.doc.toString(), context.pos);
  if (!place) return null;
  if (place.kind === "method") {
    if (!place.word && !context.explicit) return null;
    return { from: context.pos - place.word.length, options: METHODS.map((label) => ({ label, apply: `${label} ` })) };
  }
  const spec = await specFor(where.flavour, where.version);
  let found: Suggestions;
  if (place.kind === "path") found = suggestPath(spec, place.method, place.path);
  else if (place.kind === "param") found = suggestParam(spec, place.method, place.path, place.name, place.value);
  else {
    if (!place.word && !context.explicit && !/"$/.test(context.state.sliceDoc(context.pos - 1, context.pos))) return null;
    // Elasticsearch's specification has no keys of bodies. OpenSearch's, which is largely the same, is used
    // instead.
    found = suggestBody([spec, await specOf("opensearch")], place);
  }
  const live = where.cluster ? await Promise.all(found.names.map(async (kind) => ({ kind, list: await namesOf(where.cluster!, kind, found.prefix) }))) : [];
  if (context.aborted) return null;
  const options = [
    ...live.flatMap(({ kind, list }) => list.slice(0, 500).map((label) => ({ label, detail: kind, boost: 1 }))),
    ...found.words.map(({ label, detail }) => ({ label, ...(detail ? { detail } : {}) })),
  ];
  const quoted = place.kind === "body" && context.state.sliceDoc(context.pos - found.back - 1, context.pos - found.back) !== '"';
  return {
    from: context.pos - found.back,
    options: options.map((o) => (quoted && (place.isKey || !/^(true|false|-?\d+)$/.test(o.label)) ? { ...o, apply: JSON.stringify(o.label) } : o)),
    validFor: /^[\w.*-]*$/,
  };
}
