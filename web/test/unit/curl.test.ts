import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fromCurl, toCurl, toText } from "../../src/dev/curl.ts";
import { requests } from "../../src/dev/parser.ts";

const CASES = [
  { method: "GET", path: "/_cluster/health?pretty", body: "" },
  { method: "PUT", path: "/a%20b", body: '{"text":"it\'s $HOME `x` \\"q\\" \\\\ !"}' },
  { method: "POST", path: "/_bulk", body: '{"index":{}}\n{"n":1}\n' },
  { method: "HEAD", path: "/logs", body: "" },
  { method: "GET", path: "/_search", body: '{"query":{"match_all":{}}}' },
  { method: "DELETE", path: "/logs-*", body: "" },
];

test("a request survives the way to curl and back", () => {
  for (const one of CASES) assert.deepEqual(fromCurl(toCurl(one, "https://es-1:9200/", "me")), one);
});

test("a real shell reads our words as we mean them", () => {
  for (const one of CASES.filter((c) => c.body)) {
    const command = toCurl(one, "http://h:1").replace(/^curl/, "printf '%s\\0'");
    const words = spawnSync("sh", ["-c", command]).stdout.toString().split("\0");
    assert.ok(words.includes(one.body), command);
    assert.ok(words.includes(`http://h:1${one.path}`), command);
  }
});

test("commands as people have them", () => {
  const read = (text: string) => fromCurl(text);
  assert.deepEqual(read("curl localhost:9200/_search"), { method: "GET", path: "/_search", body: "" });
  assert.deepEqual(read("curl -s -u elastic:secret 'https://h:9200/a/_doc/1?routing=x' -H 'Content-Type: application/json' -d'{\"a\":1}'"), { method: "POST", path: "/a/_doc/1?routing=x", body: '{"a":1}' });
  assert.deepEqual(read('curl -XPUT "http://h:9200/t" \\\n  --data-raw "{\\"a\\": 1}"'), { method: "PUT", path: "/t", body: '{"a": 1}' });
  assert.deepEqual(read("curl --request=DELETE http://h:9200/t"), { method: "DELETE", path: "/t", body: "" });
  assert.deepEqual(read("curl http://h:9200"), { method: "GET", path: "/", body: "" });
  assert.equal(read("wget http://h"), null);
  assert.equal(read("curl 'open"), null);
  assert.equal(read("curl -v"), null);
});

test("what is pasted stands as a request in the editor", () => {
  const one = CASES[1]!;
  const [found] = requests(toText(one));
  assert.deepEqual([found!.method, found!.path, found!.body], [one.method, one.path, one.body]);
});
