// The editor's suggestions: calls and parameters of the flavour's specification, and names of the live
// cluster.
// Pure.
import type { Place } from "./parser.ts";

/** 0: any value; 1: true or false; a list: one of its words. */
type Param = 0 | 1 | readonly string[];

export interface Spec {
  readonly version: string;
  readonly common: Readonly<Record<string, Param>>;
  readonly lists: readonly Readonly<Record<string, Param>>[];
  readonly calls: readonly (readonly [path: string, methods: string, list: number])[];
  readonly bodies: Readonly<Record<string, readonly string[]>>;
}

export type NameKind = "index" | "alias" | "template" | "pipeline" | "field";

export interface Suggestion {
  readonly label: string;
  readonly detail?: string;
}

export interface Suggestions {
  /** Number of characters before the cursor that the suggestion replaces. */
  readonly back: number;
  readonly words: readonly Suggestion[];
  /** The kind of the cluster's names to add, and their prefix. */
  readonly names: readonly NameKind[];
  readonly prefix: string;
}

const segments = (path: string): string[] => path.replace(/^\//, "").split("/");

function fits(pattern: string, typed: string): boolean {
  if (!pattern.startsWith("{")) return pattern === typed;
  return typed !== "" && (!typed.startsWith("_") || typed === "_all");
}

/** The kinds of names that placeholders stand for. */
function kindsOf(pattern: string, path: string): NameKind[] {
  const name = pattern.slice(1, -1);
  if (/^(index|target|new_index|indices)$/.test(name)) return ["index", "alias"];
  if (/_(index_|component_)?template(\/|$)/.test(path) && name === "name") return ["template"];
  if (/_alias(es)?\//.test(path) && name === "name") return ["alias"];
  if (/_ingest\/pipeline\//.test(path)) return ["pipeline"];
  return /^fields?$/.test(name) ? ["field"] : [];
}

export function suggestPath(spec: Spec, method: string, path: string): Suggestions {
  const typed = segments(path);
  const word = typed.pop() ?? "";
  const found = new Map<string, Suggestion>();
  const names = new Set<NameKind>();
  for (const [pattern, methods] of spec.calls) {
    if (!methods.split(" ").includes(method)) continue;
    const parts = segments(pattern);
    if (parts.length <= typed.length || !typed.every((one, i) => fits(parts[i]!, one))) continue;
    const rest = parts.slice(typed.length);
    if (rest[0]!.startsWith("{")) {
      kindsOf(rest[0]!, pattern).forEach((kind) => names.add(kind));
      continue;
    }
    const end = rest.findIndex((part) => part.startsWith("{"));
    const label = end < 0 ? rest.join("/") : `${rest.slice(0, end).join("/")}/`;
    const old = found.get(label);
    if (!old) found.set(label, end < 0 ? { label } : { label, detail: rest.slice(end).join("/") });
  }
  const words = [...found.values()].sort((a, b) => (a.label < b.label ? -1 : 1));
  return { back: word.length, words, names: [...names], prefix: word };
}

/** The calls of the specification that match a path, those with the fewest placeholders first. */
function callOf(spec: Spec, method: string | null, path: string) {
  const typed = segments(path);
  const matching = spec.calls.filter(([pattern, methods]) => {
    const parts = segments(pattern);
    return parts.length === typed.length && (!method || methods.split(" ").includes(method)) && parts.every((p, i) => fits(p, typed[i]!));
  });
  const holes = (pattern: string) => pattern.split("{").length;
  return matching.sort((a, b) => holes(a[0]) - holes(b[0]))[0];
}

export function suggestParam(spec: Spec, method: string, path: string, name: string, value: string | null): Suggestions {
  const found = callOf(spec, method, path);
  const all: Record<string, Param> = { ...spec.common, ...(found ? spec.lists[found[2]] : {}) };
  if (value === null) {
    const words = Object.entries(all).map(([label, kind]) => ({ label, ...(kind === 1 ? { detail: "true | false" } : {}) }));
    return { back: name.length, words: words.sort((a, b) => (a.label < b.label ? -1 : 1)), names: [], prefix: name };
  }
  const kind = all[name];
  const words = kind === 1 ? ["true", "false"] : (kind ?? 0) === 0 ? [] : (kind as readonly string[]);
  const last = value.slice(value.lastIndexOf(",") + 1);
  return { back: last.length, words: words.map((label) => ({ label })), names: [], prefix: last };
}

export function suggestBody(specs: readonly Spec[], place: Extract<Place, { kind: "body" }>): Suggestions {
  const { keys, path, word, isKey } = place;
  const at = keys.at(-1) ?? "";
  const result = (words: readonly string[], names: readonly NameKind[] = []) => ({ back: word.length, words: words.map((label) => ({ label })), names, prefix: word });
  if (!isKey) {
    if (FIELD_VALUES.has(at)) return result([], ["field"]);
    return result(VALUES[at] ?? []);
  }
  if (FIELD_KEYS.has(at)) return result([], ["field"]);
  if (keys.length === 0) {
    for (const spec of specs) {
      const found = callOf(spec, null, path);
      const body = found && spec.bodies[found[0]];
      if (body) return result(body);
    }
    return result(/_template/.test(path) ? KEYS["template"]! : /^\/[^_][^/]*$/.test(path) ? KEYS["template"]! : []);
  }
  // The keys of `properties` are the user's own names; below them are the settings of a field.
  if (keys.at(-2) === "properties") return result(KEYS["property"]!);
  return result(KEYS[at] ?? []);
}

const INDEX = ["number_of_shards", "number_of_replicas", "refresh_interval", "codec", "translog.durability", "translog.sync_interval", "translog.flush_threshold_size", "routing.allocation.total_shards_per_node", "routing_partition_size", "mapping.total_fields.limit", "max_result_window", "default_pipeline", "final_pipeline", "blocks.write", "sort.field", "sort.order", "hidden", "priority", "merge.policy.max_merged_segment", "merge.scheduler.max_thread_count", "unassigned.node_left.delayed_timeout", "auto_expand_replicas"];
const CLAUSES = ["bool", "match", "match_all", "match_phrase", "multi_match", "term", "terms", "range", "exists", "prefix", "wildcard", "regexp", "ids", "query_string", "simple_query_string", "nested", "constant_score", "function_score"];
const AGGS = ["terms", "date_histogram", "histogram", "avg", "sum", "min", "max", "stats", "cardinality", "percentiles", "value_count", "filter", "filters", "range", "top_hits", "composite", "nested", "aggs"];

const KEYS: Readonly<Record<string, readonly string[]>> = {
  template: ["settings", "mappings", "aliases"],
  settings: ["index", ...INDEX],
  index: INDEX,
  mappings: ["properties", "dynamic", "dynamic_templates", "_source", "_routing", "date_detection", "numeric_detection"],
  property: ["type", "index", "doc_values", "ignore_above", "fields", "format", "analyzer", "store", "null_value", "copy_to", "properties"],
  mapping: ["type", "ignore_above", "index", "doc_values", "norms", "fields"],
  query: CLAUSES,
  bool: ["must", "filter", "should", "must_not", "minimum_should_match", "boost"],
  must: CLAUSES,
  filter: CLAUSES,
  should: CLAUSES,
  must_not: CLAUSES,
  persistent: ["cluster.routing.allocation.enable", "cluster.routing.rebalance.enable", "indices.recovery.max_bytes_per_sec", "action.auto_create_index", "cluster.max_shards_per_node"],
  transient: ["cluster.routing.allocation.enable", "cluster.routing.rebalance.enable"],
  actions: ["add", "remove", "remove_index"],
  add: ["index", "alias", "is_write_index", "routing", "filter"],
  remove: ["index", "alias"],
  source: ["index", "query", "size", "_source"],
  dest: ["index", "op_type", "pipeline", "routing"],
  exists: ["field"],
  aggs: AGGS,
};
const VALUES: Readonly<Record<string, readonly string[]>> = {
  type: ["keyword", "text", "long", "integer", "short", "byte", "double", "float", "date", "boolean", "ip", "object", "nested", "geo_point", "binary", "wildcard"],
  "translog.durability": ["async", "request"],
  "index.translog.durability": ["async", "request"],
  codec: ["default", "best_compression"],
  dynamic: ["true", "false", "strict", "runtime"],
  match_mapping_type: ["string", "long", "double", "date", "boolean", "object", "*"],
  order: ["asc", "desc"],
  refresh_interval: ["1s", "30s", "-1"],
};
const FIELD_KEYS = new Set(["match", "match_phrase", "term", "terms", "range", "prefix", "wildcard", "regexp", "sort"]);
const FIELD_VALUES = new Set(["field", "fields", "sort", "_source"]);
