import assert from "node:assert/strict";
import { test } from "node:test";
import { fromFields, matches, readTemplates, toFields, whoSets, type Dict } from "../../src/templates.ts";

const all = readTemplates(
  {
    index_templates: [
      { name: "logs", index_template: { index_patterns: ["logs-*"], priority: 100, composed_of: ["fast"], template: { settings: { index: { number_of_shards: "6", number_of_replicas: "0" } } } } },
      { name: "all", index_template: { index_patterns: ["*"], priority: 1, template: { settings: { number_of_shards: 1 } } } },
    ],
  },
  {
    base: { order: 0, index_patterns: ["test*"], settings: { index: { number_of_shards: "3", codec: "default" } } },
    more: { order: 5, index_patterns: ["test-1*"], settings: { index: { number_of_shards: "30" } }, mappings: { dynamic: "strict" } },
  },
);
const components = new Map<string, Dict>([["fast", { template: { settings: { index: { refresh_interval: "30s", number_of_replicas: "1" } } } }]]);

test("the template's own value lies above its components', and the loser is told", () => {
  const answer = whoSets("logs-2026", all, components);
  assert.equal(answer.winner?.name, "logs");
  assert.deepEqual(answer.others.map((t) => t.name), ["all"]);
  const of = (key: string) => answer.settings.find((s) => s.key === key);
  assert.deepEqual(of("index.number_of_replicas"), { key: "index.number_of_replicas", value: "0", by: "index template logs", over: [{ by: "component template fast", value: "1" }] });
  assert.equal(of("index.refresh_interval")?.by, "component template fast");
});

test("legacy templates are merged by order, and only where no index template matches", () => {
  const legacy = all.filter((t) => t.kind === "legacy");
  const answer = whoSets("test-10", legacy, components);
  assert.deepEqual(answer.settings.map((s) => [s.key, s.value, s.by]), [
    ["index.codec", "default", "legacy template base"],
    ["index.number_of_shards", "30", "legacy template more"],
  ]);
  assert.deepEqual(answer.mappings.map((m) => m.by), ["legacy template more"]);
  assert.equal(whoSets("test-10", all, components).winner?.name, "all");
  assert.equal(whoSets("x", legacy, components).winner, null);
});

test("patterns match as in the servers", () => {
  const yes = [["*", ""], ["a*", "a"], ["a*c", "abc"], ["*-x-*", "1-x-2"], ["a", "a"], ["a*b*c", "aXbYc"]];
  const no = [["a*c", "ab"], ["a", "ab"], ["aa*aa", "aaa"], ["a*b*b", "ab"], ["a.c", "abc"]];
  for (const [p, i] of yes) assert.ok(matches(p!, i!), `${p} ${i}`);
  for (const [p, i] of no) assert.ok(!matches(p!, i!), `${p} ${i}`);
});

test("the form changes its fields and leaves all else as it was", () => {
  const body: Dict = { index_patterns: ["a*"], priority: 7, _meta: { by: "us" }, template: { settings: { index: { number_of_shards: "2", "sort.field": "at" } }, mappings: { properties: { at: { type: "date" } } }, aliases: { x: {} } } };
  const fields = { ...toFields("index", body), shards: "5", keywords: true, ignoreAbove: "256", durability: "async" };
  const made = fromFields("index", fields, body);
  assert.deepEqual(made, {
    index_patterns: ["a*"],
    priority: 7,
    _meta: { by: "us" },
    template: {
      settings: { "index.number_of_shards": 5, "index.sort.field": "at", "index.translog.durability": "async" },
      mappings: { properties: { at: { type: "date" } }, dynamic_templates: [{ strings: { match_mapping_type: "string", mapping: { type: "keyword", ignore_above: 256 } } }] },
      aliases: { x: {} },
    },
  });
  assert.deepEqual(toFields("index", made), fields);
});

test("the rule for strings is left as it was unless its fields change, and then keeps its place and all else", () => {
  const strings = { match_mapping_type: "string", match: "s_*", unmatch: "s_text", mapping: { type: "keyword", ignore_above: 256, doc_values: false } };
  const last = { numbers: { match_mapping_type: "long", mapping: { type: "long" } } };
  const body: Dict = { index_patterns: ["a*"], template: { mappings: { dynamic_templates: [{ strings }, last] } } };
  const rules = (change: object) => (fromFields("index", { ...toFields("index", body), ...change }, body)["template"] as { mappings: Dict }).mappings["dynamic_templates"];
  assert.deepEqual(rules({ shards: "5" }), [{ strings }, last]);
  assert.deepEqual(rules({ ignoreAbove: "512" }), [{ strings: { ...strings, mapping: { ...strings.mapping, ignore_above: 512 } } }, last]);
  assert.deepEqual(rules({ ignoreAbove: "" }), [{ strings: { ...strings, mapping: { type: "keyword", doc_values: false } } }, last]);
  assert.deepEqual(rules({ keywords: false }), [last]);
});

test("the walk-through's template comes out of the form as it stands there", () => {
  const fields = { patterns: "test*", rank: "", shards: "3", replicas: "0", refresh: "-1", durability: "async", sync: "", codec: "", perNode: "", keywords: true, ignoreAbove: "256" };
  const made = fromFields("legacy", fields, {});
  assert.deepEqual(made, {
    index_patterns: ["test*"],
    settings: { "index.number_of_shards": 3, "index.number_of_replicas": 0, "index.refresh_interval": "-1", "index.translog.durability": "async" },
    mappings: { dynamic_templates: [{ strings: { match_mapping_type: "string", mapping: { type: "keyword", ignore_above: 256 } } }] },
  });
});
