// Templates of both kinds, and which of them sets a value. Pure: the pages pass in the cluster's answers.

export type Kind = "index" | "legacy";
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Dict = { [key: string]: Json };

export interface Template {
  readonly kind: Kind;
  readonly name: string;
  readonly patterns: readonly string[];
  /** `priority` of the new kind, `order` of the old. */
  readonly rank: number;
  readonly composedOf: readonly string[];
  /** The template as saved, without its name; for the new kind, the whole of it. */
  readonly body: Dict;
}

export const dict = (value: Json | undefined): Dict =>
  value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};
const list = (value: Json | undefined): string[] =>
  Array.isArray(value) ? value.map(String) : value === undefined || value === null ? [] : [String(value)];

/** Reads the answers of `GET _index_template` and `GET _template`. */
export function readTemplates(composable: Json, legacy: Json): Template[] {
  const entries = dict(composable)["index_templates"];
  const found: Template[] = (Array.isArray(entries) ? entries : []).map((entry) => {
    const body = dict(dict(entry)["index_template"]);
    return {
      kind: "index",
      name: String(dict(entry)["name"] ?? ""),
      patterns: list(body["index_patterns"]),
      rank: Number(body["priority"] ?? 0),
      composedOf: list(body["composed_of"]),
      body,
    };
  });
  for (const [name, value] of Object.entries(dict(legacy))) {
    const body = dict(value);
    found.push({ kind: "legacy", name, patterns: list(body["index_patterns"]), rank: Number(body["order"] ?? 0), composedOf: [], body });
  }
  return found;
}

/** Settings and mappings are one level deeper in the new kind. */
export const contents = (template: Pick<Template, "kind" | "body">): Dict =>
  template.kind === "index" ? dict(template.body["template"]) : template.body;

/** Matches `logs-*` against `logs-2026`; only `*` is special, as in the servers. */
export function matches(pattern: string, index: string): boolean {
  const parts = pattern.split("*");
  if (parts.length === 1) return pattern === index;
  const [head, tail] = [parts[0]!, parts.at(-1)!];
  if (!index.startsWith(head) || index.length < head.length + tail.length || !index.endsWith(tail)) return false;
  let at = head.length;
  const end = index.length - tail.length;
  for (const part of parts.slice(1, -1)) {
    const found = index.indexOf(part, at);
    if (found < 0 || found + part.length > end) return false;
    at = found + part.length;
  }
  return true;
}

/**
 * The name by which an index got its template: that of its data stream, if it is a part of one. Elasticsearch names such an
 * index `.ds-STREAM-2026.01.31-000001`, and earlier versions and OpenSearch `.ds-STREAM-000001`.
 */
export function nameForTemplates(index: string, templates: readonly Template[]): string {
  const stream = /^\.ds-(.+?)(?:-\d{4}\.\d{2}\.\d{2})?-\d{6,}$/.exec(index)?.[1];
  if (stream === undefined) return index;
  const winner = whoSets(stream, templates, new Map()).winner;
  return winner?.body["data_stream"] !== undefined ? stream : index;
}

export interface Origin {
  readonly key: string;
  readonly value: string;
  /** The template that set the value, in words. */
  readonly by: string;
  /** The templates that had set it before, the last one first, with the values that lost. */
  readonly over: readonly { readonly by: string; readonly value: string }[];
}

export interface Answer {
  readonly winner: Template | null;
  /** Templates of the same kind that match and lose, or are merged below it. */
  readonly others: readonly Template[];
  readonly settings: readonly Origin[];
  readonly mappings: readonly Origin[];
}

/**
 * Which template sets which value of an index that would be created now. A match of the new kind overrides the old kind
 * entirely. Only the highest priority counts; its component templates apply in their order, and the template's own values
 * last. If only templates of the old kind match, all of them are merged, the highest order last.
 */
export function whoSets(index: string, templates: readonly Template[], components: ReadonlyMap<string, Dict>): Answer {
  const matching = templates.filter((t) => t.patterns.some((p) => matches(p, index)));
  const ofKind = (kind: Kind) => matching.filter((t) => t.kind === kind).sort((a, b) => b.rank - a.rank || (a.name < b.name ? -1 : 1));
  const composable = ofKind("index");
  const winner = composable[0];
  const layers: { by: string; body: Dict }[] = [];
  if (winner) {
    for (const name of winner.composedOf) {
      layers.push({ by: `component template ${name}`, body: dict(components.get(name)?.["template"]) });
    }
    layers.push({ by: `index template ${winner.name}`, body: contents(winner) });
  } else {
    for (const t of ofKind("legacy").reverse()) layers.push({ by: `legacy template ${t.name}`, body: contents(t) });
  }
  const legacy = ofKind("legacy");
  return {
    winner: winner ?? legacy[0] ?? null,
    others: winner ? [...composable.slice(1), ...legacy] : legacy.slice(1),
    settings: origins(layers.map(({ by, body }) => ({ by, leaves: leaves(withIndex(dict(body["settings"]))) }))),
    mappings: origins(layers.map(({ by, body }) => ({ by, leaves: leaves(dict(body["mappings"])) }))),
  };
}

function origins(layers: readonly { by: string; leaves: Map<string, string> }[]): Origin[] {
  const found = new Map<string, Origin>();
  for (const { by, leaves } of layers) {
    for (const [key, value] of leaves) {
      const old = found.get(key);
      found.set(key, { key, value, by, over: old ? [{ by: old.by, value: old.value }, ...old.over] : [] });
    }
  }
  return [...found.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
}

/** `number_of_shards`, `index.number_of_shards` and `{"index":{"number_of_shards":..}}` are one setting. */
function withIndex(settings: Dict): Dict {
  const flat: Dict = {};
  for (const [key, value] of leavesOf(settings)) flat[key.startsWith("index.") ? key : `index.${key}`] = value;
  return flat;
}

const leaves = (value: Dict): Map<string, string> =>
  new Map([...leavesOf(value)].map(([key, leaf]) => [key, typeof leaf === "string" ? leaf : JSON.stringify(leaf)]));

function* leavesOf(value: Dict, prefix = ""): Generator<[string, Json]> {
  for (const [key, inner] of Object.entries(value)) {
    const name = prefix + key;
    const nested = dict(inner);
    if (Object.keys(nested).length) yield* leavesOf(nested, `${name}.`);
    else yield [name, inner];
  }
}

// --- The form
// -------------------------------------------------------------------------------------------------------

/** The fields of the form; an empty text means "not set". */
export interface Fields {
  patterns: string;
  rank: string;
  shards: string;
  replicas: string;
  refresh: string;
  durability: string;
  sync: string;
  codec: string;
  perNode: string;
  keywords: boolean;
  ignoreAbove: string;
}

const SETTINGS: readonly [keyof Fields, string][] = [
  ["shards", "number_of_shards"],
  ["replicas", "number_of_replicas"],
  ["refresh", "refresh_interval"],
  ["durability", "translog.durability"],
  ["sync", "translog.sync_interval"],
  ["codec", "codec"],
  ["perNode", "routing.allocation.total_shards_per_node"],
];

export function toFields(kind: Kind, body: Dict): Fields {
  const inner = contents({ kind, body });
  const settings = new Map(leavesOf(withIndex(dict(inner["settings"]))));
  const strings = dynamicStrings(inner);
  const above = dict(dict(strings)["mapping"])["ignore_above"];
  const setting = (name: string) => String(settings.get(`index.${name}`) ?? "");
  const text = Object.fromEntries(SETTINGS.map(([field, name]) => [field, setting(name)]));
  return {
    ...(text as Pick<Fields, "shards" | "replicas" | "refresh" | "durability" | "sync" | "codec" | "perNode">),
    patterns: list(body["index_patterns"]).join(", "),
    rank: String(body[kind === "index" ? "priority" : "order"] ?? ""),
    keywords: strings !== undefined,
    ignoreAbove: above === undefined ? "" : String(above),
  };
}

const rulesOf = (mappings: Dict): Json[] => (Array.isArray(mappings["dynamic_templates"]) ? mappings["dynamic_templates"] : []);
const isStrings = (rule: Json): boolean => dict(dict(dict(rule)["strings"])["mapping"])["type"] === "keyword";
const dynamicStrings = (inner: Dict): Json | undefined => dict(rulesOf(dict(inner["mappings"])).find(isStrings))["strings"];

/** The dynamic rules with the form's one as its fields say. A rule that is there keeps its place, and all but the length. */
function withStrings(rules: readonly Json[], keywords: boolean, above: string): Json[] {
  const at = rules.findIndex(isStrings);
  if (!keywords) return rules.filter((_, i) => i !== at);
  const made: Dict = { match_mapping_type: "string", mapping: { type: "keyword" } };
  const found = at < 0 ? made : dict(dict(rules[at])["strings"]);
  const mapping: Dict = { ...dict(found["mapping"]) };
  if (above) mapping["ignore_above"] = Number(above);
  else delete mapping["ignore_above"];
  const rule: Dict = { ...dict(rules[at]), strings: { ...found, mapping } };
  return at < 0 ? [...rules, rule] : rules.map((one, i) => (i === at ? rule : one));
}

/** Puts the form's fields into a body, and leaves the rest of the body as it was. */
export function fromFields(kind: Kind, fields: Fields, before: Dict): Dict {
  const inner = contents({ kind, body: before });
  const settings = new Map(leavesOf(withIndex(dict(inner["settings"]))));
  for (const [field, name] of SETTINGS) {
    const value = String(fields[field]).trim();
    if (value) settings.set(`index.${name}`, /^\d+$/.test(value) ? Number(value) : value);
    else settings.delete(`index.${name}`);
  }
  const mappings: Dict = { ...dict(inner["mappings"]) };
  const was = toFields(kind, before);
  const above = fields.ignoreAbove.trim();
  if (fields.keywords !== was.keywords || (fields.keywords && above !== was.ignoreAbove)) {
    const rules = withStrings(rulesOf(mappings), fields.keywords, above);
    if (rules.length) mappings["dynamic_templates"] = rules;
    else delete mappings["dynamic_templates"];
  }
  const made: Dict = { ...inner, settings: Object.fromEntries(settings) };
  if (!settings.size) delete made["settings"];
  if (Object.keys(mappings).length) made["mappings"] = mappings;
  else delete made["mappings"];
  const head: Dict = { index_patterns: fields.patterns.split(/[\s,]+/).filter(Boolean) };
  if (fields.rank.trim()) head[kind === "index" ? "priority" : "order"] = Number(fields.rank);
  const rest: Dict = { ...(kind === "index" ? before : made) };
  for (const key of ["index_patterns", "priority", "order", "template"]) delete rest[key];
  return kind === "index" ? { ...head, template: made, ...rest } : { ...head, ...rest };
}
