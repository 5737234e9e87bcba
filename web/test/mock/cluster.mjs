// The part of a cluster's own API that the page's tests use.
import { tellIndex } from "./indices.mjs";

const parse = (text) => (text ? JSON.parse(text) : {});

export class Cluster {
  indexTemplates = new Map();
  legacy = new Map();
  components = new Map();
  indices = ["logs-2026.11.22", "logs-2026.11.23", "orders", "test-10", "test-11"];

  constructor(name, flavour, version) {
    Object.assign(this, { name, flavour, version });
    this.legacy.set("test", { order: 0, index_patterns: ["test*"], settings: { index: { number_of_shards: "3", number_of_replicas: "0", refresh_interval: "-1", translog: { durability: "async" } } }, mappings: { dynamic_templates: [{ strings: { match_mapping_type: "string", mapping: { type: "keyword", ignore_above: 256 } } }] }, aliases: {} });
    this.components.set("fast-writes", { template: { settings: { index: { refresh_interval: "30s", number_of_replicas: "1" } } } });
    this.indexTemplates.set("logs", { index_patterns: ["logs-*"], priority: 100, composed_of: ["fast-writes"], template: { settings: { index: { number_of_shards: "6", number_of_replicas: "0" } }, mappings: { properties: { at: { type: "date" } } } } });
    this.indexTemplates.set("everything", { index_patterns: ["*"], priority: 1, composed_of: [], template: { settings: { index: { number_of_shards: "1" } } } });
    this.legacy.set(".system", { order: 0, index_patterns: [".system-*"], settings: {}, mappings: {}, aliases: {} });
  }

  names(kind, prefix) {
    const all = { index: this.indices, alias: ["logs", "current"], template: [...this.indexTemplates.keys(), ...this.legacy.keys()], pipeline: ["geoip"], field: ["@timestamp", "message", "ip", "status"] }[kind] ?? [];
    return all.filter((name) => name.startsWith(prefix));
  }

  answer(method, path, body) {
    const [where, query] = path.split("?");
    const parts = where.split("/").filter(Boolean).map(decodeURIComponent);
    const good = (value) => ({ status: 200, text: JSON.stringify(value) });
    const missing = () => ({ status: 404, text: JSON.stringify({ error: { type: "not_found", reason: `nothing is at ${where}` }, status: 404 }) });
    const stored = (map, wrap) => {
      if (method === "PUT" || method === "POST") {
        let value;
        try {
          value = parse(body);
        } catch (error) {
          return { status: 400, text: JSON.stringify({ error: { type: "parse_exception", reason: String(error.message) }, status: 400 }) };
        }
        if (!value.index_patterns && map !== this.components) return { status: 400, text: JSON.stringify({ error: { type: "action_request_validation_exception", reason: "Validation Failed: 1: index patterns are missing;" }, status: 400 }) };
        map.set(parts[1], value);
        return good({ acknowledged: true });
      }
      if (method === "DELETE") return map.delete(parts[1]) ? good({ acknowledged: true }) : missing();
      return good(wrap(map));
    };
    const list = (key, inner) => (map) => ({ [key]: [...map].map(([name, value]) => ({ name, [inner]: value })) });
    let told;
    switch (parts[0]) {
      case undefined:
        return good({ name: "node-1", cluster_name: this.name, version: { distribution: this.flavour, number: this.version } });
      case "_index_template":
        if (parts[1] === "_simulate") return good({ template: { settings: parse(body).template?.settings ?? {}, mappings: parse(body).template?.mappings ?? {}, aliases: {} }, overlapping: [{ name: "everything", index_patterns: ["*"] }] });
        return stored(this.indexTemplates, list("index_templates", "index_template"));
      case "_template":
        return stored(this.legacy, (map) => Object.fromEntries(map));
      case "_component_template":
        return stored(this.components, list("component_templates", "component_template"));
      case "_cluster":
        return good({ cluster_name: this.name, status: "green", number_of_nodes: 3, timed_out: false, big: 0 }).text && { status: 200, text: `{"cluster_name":${JSON.stringify(this.name)},"status":"green","number_of_nodes":3,"exact":12345678901234567890,"one":1.0}` };
      case "_cat":
        if (parts[1] === "shards") return (told = tellIndex(this, parts[2], "shards")) ? good(told) : missing();
        return { status: 200, text: "health status index pri rep docs.count\ngreen  open   orders   3   1      81422\n" };
      case "_big": {
        const rows = Number(new URLSearchParams(query).get("rows") ?? 1000);
        return { status: 200, text: `[${Array.from({ length: rows }, (_, i) => `{"_id":"${i}","_source":{"message":"line ${i} of a big answer","n":${i}}}`).join(",")}]`, truncated: query?.includes("cut") };
      }
      case "_bulk":
        return good({ errors: false, lines: body.split("\n").length - 1 });
      default:
        if (["_settings", "_mapping"].includes(parts[1])) return (told = tellIndex(this, parts[0], parts[1])) ? good(told) : missing();
        if (method === "PUT") {
          this.indices.push(parts[0]);
          return good({ acknowledged: true, index: parts[0] });
        }
        return this.indices.includes(parts[0]) ? good({ [parts[0]]: { settings: {} } }) : missing();
    }
  }
}
