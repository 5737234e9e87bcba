// The settings, fields and shards of one index, and where each setting comes from. Pure.
import { dict, type Answer, type Dict, type Json } from "./templates.ts";

/**
 * Where a value comes from: a template sets the same one; a template sets another one, so that the index was given its own;
 * no template sets it; the server made it; or it is not set, so that the server's default holds.
 */
export type Source = "template" | "changed" | "index" | "server" | "default";

export interface Setting {
  readonly key: string;
  readonly value: string;
  readonly source: Source;
  /** The template that sets it, in words, and the value there. */
  readonly by: string | null;
  readonly there: string | null;
}

/** What a server writes into each index, or into one that it made of another. */
const SERVER = /^index\.(creation_date|provided_name|uuid|history\.uuid|version\.|resize\.|shrink\.|routing\.allocation\.initial_recovery\.|verified_before_close|hidden_by)/;

const text = (value: Json | undefined): string => (typeof value === "string" ? value : JSON.stringify(value ?? null));

/** Reads `GET INDEX/_settings?flat_settings=true&include_defaults=true`; templates say what they set for such a name. */
export function settingsOf(told: Dict, templates: Answer): Setting[] {
  const set = new Map(templates.settings.map((one) => [one.key, one]));
  const own = Object.entries(dict(told["settings"])).map(([key, json]): Setting => {
    const value = text(json);
    const there = set.get(key);
    if (there) return { key, value, source: there.value === value ? "template" : "changed", by: there.by, there: there.value };
    return { key, value, source: SERVER.test(key) ? "server" : "index", by: null, there: null };
  });
  const given = new Set(own.map((one) => one.key));
  const defaults = Object.entries(dict(told["defaults"]))
    .filter(([key]) => key.startsWith("index.") && !given.has(key))
    .map(([key, json]): Setting => {
      const there = set.get(key);
      return { key, value: text(json), source: "default", by: there?.by ?? null, there: there?.value ?? null };
    });
  const byKey = (a: Setting, b: Setting) => (a.key < b.key ? -1 : 1);
  return [...own.sort(byKey), ...defaults.sort(byKey)];
}

export interface Field {
  readonly path: string;
  readonly type: string;
  /** Its other parameters, as JSON without the outer braces. */
  readonly more: string;
}

const DEPTH_MAX = 30;
const FIELDS_MAX = 10_000;

/** Reads the mapping of an index: each field and each of its subfields, in the order of their paths. */
export function fieldsOf(mapping: Dict): Field[] {
  // Elasticsearch 6 and 7 may tell the type's name first.
  const inner = Object.values(mapping);
  const root = !mapping["properties"] && inner.length === 1 && dict(inner[0])["properties"] ? dict(inner[0]) : mapping;
  const found: Field[] = [];
  const walk = (at: Dict, prefix: string, depth: number) => {
    for (const part of ["properties", "fields"]) {
      for (const [name, value] of Object.entries(dict(at[part]))) {
        if (found.length >= FIELDS_MAX || depth > DEPTH_MAX) return;
        const field = dict(value);
        const path = prefix + name;
        const { type, properties, fields, ...more } = field;
        void fields;
        found.push({ path, type: typeof type === "string" ? type : properties ? "object" : "", more: Object.keys(more).length ? JSON.stringify(more).slice(1, -1) : "" });
        walk(field, `${path}.`, depth + 1);
      }
    }
  };
  walk(root, "", 0);
  return found.sort((a, b) => (a.path < b.path ? -1 : 1));
}

export interface Shard {
  readonly shard: number;
  readonly primary: boolean;
  readonly state: string;
  readonly docs: number | null;
  readonly bytes: number | null;
  readonly node: string;
  readonly why: string;
}

/** Reads `GET _cat/shards/INDEX`: primaries before their replicas. */
export function shardsOf(told: Json): Shard[] {
  const number = (value: Json | undefined) => (typeof value === "string" && value !== "" && Number.isFinite(Number(value)) ? Number(value) : null);
  const word = (value: Json | undefined) => (typeof value === "string" ? value : "");
  const rows = (Array.isArray(told) ? told : []).map(dict).map((row) => ({
    shard: number(row["shard"]) ?? 0,
    primary: row["prirep"] === "p",
    state: word(row["state"]),
    docs: number(row["docs"]),
    bytes: number(row["store"]),
    node: word(row["node"]),
    why: word(row["unassigned.reason"]),
  }));
  return rows.sort((a, b) => a.shard - b.shard || Number(b.primary) - Number(a.primary) || (a.node < b.node ? -1 : 1));
}
