import assert from "node:assert/strict";
import { test } from "node:test";
import elasticsearch from "../../src/dev/spec/elasticsearch.json";
import seven from "../../src/dev/spec/elasticsearch-7.json";
import opensearch from "../../src/dev/spec/opensearch.json";
import { suggestBody, suggestParam, suggestPath, type Spec } from "../../src/dev/suggest.ts";
import { wantedFor } from "../../src/dev/versions.ts";

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

test("by version: what is gone, what came later, and what extensions add", () => {
  const files = { elasticsearch, "elasticsearch-7": seven, opensearch } as unknown as Record<string, Spec>;
  const has = (flavour: string, version: string, method: string, path: string) => {
    const { names, make } = wantedFor(flavour, version);
    return labels(suggestPath(make(names.map((name) => files[name]!)), method, path.slice(0, 4))).some((label) => label.startsWith(path));
  };
  for (const [flavour, version, method, path, there] of [
    ["elasticsearch", "7.17.9", "GET", "_query_rules", false],
    ["elasticsearch", "9.5.3", "GET", "_query_rules", true],
    ["elasticsearch", "7.10.2", "GET", "_ilm/", true],
    ["elasticsearch", "8.19.21", "GET", "_ilm/", true],
    ["elasticsearch", "7.10.2", "POST", "_inference", false],
    ["elasticsearch", "8.19.21", "POST", "_inference", true],
    ["opensearch", "1.3.20", "GET", "_wlm", false],
    ["opensearch", "3.8.0", "GET", "_wlm", true],
    ["opensearch", "1.3.20", "GET", "_plugins/", true],
    ["opensearch", "1.3.20", "GET", "_cluster/health", true],
    ["opensearch", "1.3.20", "GET", "_cluster/routing/awareness", false],
  ] as const) {
    const name = `${flavour} ${version} ${method} ${path}`;
    const { names, make } = wantedFor(flavour, version);
    const spec = make(names.map((one) => files[one]!));
    assert.equal(spec.calls.some(([known, methods]) => known.startsWith(`/${path}`) && methods.includes(method)), there, name);
  }
  assert.ok(has("elasticsearch", "7.10.2", "GET", "_cluster/health"));
  // The parameters of what is added are its own.
  const { names, make } = wantedFor("elasticsearch", "7.10.2");
  const merged = make(names.map((name) => files[name]!));
  assert.ok(labels(suggestParam(merged, "GET", "/_ilm/status", "", null)).includes("pretty"));
  assert.deepEqual(labels(suggestParam(merged, "GET", "/_ilm/policy/x", "", null)), labels(suggestParam(files["elasticsearch"]!, "GET", "/_ilm/policy/x", "", null)));
  // Where nothing is known yet, suggestions are those of OpenSearch as it is now.
  assert.deepEqual(wantedFor(null, null).names, ["opensearch"]);
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
