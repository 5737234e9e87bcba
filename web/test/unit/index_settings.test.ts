import assert from "node:assert/strict";
import { test } from "node:test";
import { fieldsOf, settingsOf, shardsOf } from "../../src/index_settings.ts";
import { nameForTemplates, whoSets, type Template } from "../../src/templates.ts";

const template = (settings: Record<string, string>): Template => ({ kind: "index", name: "logs", patterns: ["logs-*"], rank: 1, composedOf: [], body: { template: { settings } } });

test("a setting comes from the template that sets it, from the index, from the server, or is a default", () => {
  const answer = whoSets("logs-1", [template({ refresh_interval: "30s", number_of_shards: "6", codec: "best_compression" })], new Map());
  const told = {
    settings: { "index.refresh_interval": "30s", "index.number_of_shards": "3", "index.max_result_window": "5", "index.uuid": "u", "index.version.created": "1" },
    defaults: { "index.codec": "default", "index.gc_deletes": "60s", "index.max_result_window": "10000", "script.engine": "x" },
  };
  const found = settingsOf(told, answer).map(({ key, value, source, there }) => [key.slice(6), value, source, there]);
  assert.deepEqual(found, [
    ["max_result_window", "5", "index", null],
    ["number_of_shards", "3", "changed", "6"],
    ["refresh_interval", "30s", "template", "30s"],
    ["uuid", "u", "server", null],
    ["version.created", "1", "server", null],
    ["codec", "default", "default", "best_compression"],
    ["gc_deletes", "60s", "default", null],
  ]);
  assert.deepEqual(settingsOf({}, answer), []);
});

test("an index of a data stream has its settings from the template of the stream", () => {
  const stream: Template = { ...template({ codec: "best_compression" }), body: { data_stream: {}, template: { settings: { codec: "best_compression" } } } };
  const sources = (index: string, templates: readonly Template[]) => {
    const answer = whoSets(nameForTemplates(index, templates), templates, new Map());
    return settingsOf({ settings: { "index.codec": "best_compression" } }, answer).map((one) => one.source);
  };
  for (const index of [".ds-logs-app-2026.01.31-000001", ".ds-logs-app-000012", ".ds-logs-app-2026.01.31-1000000"]) {
    assert.deepEqual(sources(index, [stream]), ["template"], index);
  }
  assert.deepEqual(sources(".ds-metrics-app-000001", [stream]), ["index"], "no template of this stream");
  assert.deepEqual(sources(".ds-logs-app-000001", [template({ codec: "best_compression" })]), ["index"], "a template that makes no streams");
});

test("fields are listed with their subfields, under a type's name too, however deep a mapping claims to be", () => {
  const properties = { user: { properties: { name: { type: "text", fields: { raw: { type: "keyword", ignore_above: 256 } } } } }, at: { type: "date" } };
  const fields = [
    ["at", "date", ""],
    ["user", "object", ""],
    ["user.name", "text", ""],
    ["user.name.raw", "keyword", '"ignore_above":256'],
  ];
  const shown = (mapping: Parameters<typeof fieldsOf>[0]) => fieldsOf(mapping).map((one) => [one.path, one.type, one.more]);
  assert.deepEqual(shown({ properties }), fields);
  assert.deepEqual(shown({ _doc: { properties } }), fields);
  let deep: Parameters<typeof fieldsOf>[0] = {};
  for (let n = 0; n < 5000; n++) deep = { properties: { a: deep } };
  assert.equal(fieldsOf(deep).length, 31);
  assert.deepEqual(fieldsOf({ properties: 5, fields: ["x"] }), []);
});

test("primaries come before their replicas, and what is half an answer breaks nothing", () => {
  const row = (shard: string, prirep: string, node: string | null) => ({ shard, prirep, state: node ? "STARTED" : "UNASSIGNED", docs: node ? "5" : null, store: "10", node, "unassigned.reason": node ? null : "NODE_LEFT" });
  const found = shardsOf([row("10", "p", "n1"), row("2", "r", null), row("2", "p", "n2")]).map((one) => [one.shard, one.primary, one.docs, one.node, one.why]);
  assert.deepEqual(found, [
    [2, true, 5, "n2", ""],
    [2, false, null, "", "NODE_LEFT"],
    [10, true, 5, "n1", ""],
  ]);
  assert.equal(shardsOf("half").length, 0);
  assert.equal(shardsOf([5, null]).length, 2);
});
