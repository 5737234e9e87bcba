import assert from "node:assert/strict";
import { test } from "node:test";
import elasticsearch from "../../src/dev/spec/elasticsearch.json";
import opensearch from "../../src/dev/spec/opensearch.json";
import { suggestBody, suggestParam, suggestPath, type Spec } from "../../src/dev/suggest.ts";

const both = [elasticsearch, opensearch] as unknown as Spec[];
const labels = (found: { words: readonly { label: string }[] }) => found.words.map((w) => w.label);

test("calls of both flavours, by method", () => {
  for (const spec of both) {
    assert.ok(labels(suggestPath(spec, "GET", "_cl")).includes("_cluster/health"));
    assert.ok(labels(suggestPath(spec, "PUT", "")).includes("_index_template/"));
    assert.ok(!labels(suggestPath(spec, "DELETE", "_cl")).includes("_cluster/health"));
    assert.ok(labels(suggestPath(spec, "POST", "logs/")).includes("_search"));
  }
});

test("what only one flavour has is suggested there alone", () => {
  const [es, os] = both.map((spec) => labels(suggestPath(spec, "GET", "")));
  assert.ok(es!.some((l) => l.startsWith("_ilm/")) && !os!.some((l) => l.startsWith("_ilm/")));
  assert.ok(os!.some((l) => l.startsWith("_plugins/")) && !es!.some((l) => l.startsWith("_plugins/")));
});

test("names of the cluster stand where the specification has a hole", () => {
  for (const spec of both) {
    assert.deepEqual(suggestPath(spec, "GET", "").names, ["index", "alias"]);
    assert.deepEqual(suggestPath(spec, "GET", "_index_template/lo").names, ["template"]);
    assert.deepEqual(suggestPath(spec, "GET", "_cluster/").names, []);
  }
});

test("parameters and their words", () => {
  for (const spec of both) {
    assert.ok(labels(suggestParam(spec, "GET", "logs/_search", "", null)).includes("routing"));
    assert.deepEqual(labels(suggestParam(spec, "GET", "_search", "pretty", "")), ["true", "false"]);
    assert.ok(labels(suggestParam(spec, "GET", "logs/_search", "unknown_word", "x")).length === 0);
  }
  assert.ok(labels(suggestParam(both[0]!, "GET", "_search", "expand_wildcards", "")).includes("hidden"));
});

test("keys and values of bodies", () => {
  const body = (path: string, keys: string[], isKey: boolean) => suggestBody(both, { kind: "body", path, keys, word: "", isKey });
  assert.ok(labels(body("/logs/_search", [], true)).includes("query"));
  assert.ok(labels(body("/_index_template/x", ["template", "settings"], true)).includes("number_of_shards"));
  assert.deepEqual(labels(body("/x", ["settings", "translog.durability"], false)), ["async", "request"]);
  assert.deepEqual(body("/x/_search", ["query", "term"], true).names, ["field"]);
});
