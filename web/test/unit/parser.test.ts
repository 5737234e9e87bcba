import assert from "node:assert/strict";
import { test } from "node:test";
import { placeAt, requests, requestsAt } from "../../src/dev/parser.ts";

const TEXT = `# first
GET _cluster/health

PUT /logs
// a comment within
{
  "settings": { "number_of_shards": 3 }
}

post _bulk?refresh=true
{"index":{"_index":"a"}}
{"n":1}
`;

test("requests are found with their bodies, comments left out", () => {
  const all = requests(TEXT);
  assert.deepEqual(all.map((r) => [r.method, r.path]), [["GET", "/_cluster/health"], ["PUT", "/logs"], ["POST", "/_bulk?refresh=true"]]);
  assert.equal(all[0]!.body, "");
  assert.deepEqual(JSON.parse(all[1]!.body), { settings: { number_of_shards: 3 } });
});

test("a bulk's body keeps its lines and ends in a line's end", () => {
  assert.equal(requests(TEXT)[2]!.body, '{"index":{"_index":"a"}}\n{"n":1}\n');
});

test("the cursor picks its request, a selection all that it touches", () => {
  const at = (needle: string) => TEXT.indexOf(needle);
  assert.equal(requestsAt(TEXT, at("settings"), at("settings"))[0]!.path, "/logs");
  assert.equal(requestsAt(TEXT, 0, 0)[0]!.path, "/_cluster/health");
  assert.deepEqual(requestsAt(TEXT, at("GET"), at("settings")).map((r) => r.method), ["GET", "PUT"]);
  assert.deepEqual(requestsAt("", 0, 0), []);
});

test("triple quotes become the JSON string they stand for, whatever stands in them", () => {
  const [request, ...more] = requests('POST _scripts/a\n{"source": """\n  GET /not_a_request\n  a "quoted" \\ word\n"""}\n');
  assert.equal(more.length, 0);
  assert.deepEqual(JSON.parse(request!.body), { source: '  GET /not_a_request\n  a "quoted" \\ word' });
});

test("the place of the cursor: method, path, parameter, key and value", () => {
  const place = (text: string) => {
    const pos = text.indexOf("|");
    return placeAt(text.replace("|", ""), pos);
  };
  assert.deepEqual(place("GE|"), { kind: "method", word: "GE" });
  assert.deepEqual(place("GET _ca|"), { kind: "path", method: "GET", path: "_ca" });
  assert.deepEqual(place("GET _search?pretty=true&si|"), { kind: "param", method: "GET", path: "_search", name: "si", value: null });
  assert.deepEqual(place("GET _search?pretty=t|"), { kind: "param", method: "GET", path: "_search", name: "pretty", value: "t" });
  assert.deepEqual(place('PUT a\n{ "settings": { "numb|" } }'), { kind: "body", path: "/a", keys: ["settings"], word: "numb", isKey: true, depth: 2 });
  assert.deepEqual(place('PUT a\n{ "type": "key|" }'), { kind: "body", path: "/a", keys: ["type"], word: "key", isKey: false, depth: 1 });
  assert.equal(place('PUT a\n{ "query": { "term": { |')?.kind, "body");
});
