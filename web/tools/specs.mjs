// Makes src/dev/spec/*.json: what the two families of servers can be asked, for the editor's suggestions.
//
//   node tools/specs.mjs opensearch                      from the npm package @opensearch-project/opensearch
//   node tools/specs.mjs elasticsearch rest-api-spec.jar from Maven Central's org.elasticsearch:rest-api-spec
//
// Both sources are licensed under Apache-2.0. A call is [path, methods, parameters of the query], a
// parameter's value is 0 (anything), 1 (true or false) or the list of its words. OpenSearch's types also tell
// the keys of bodies.
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

const require = createRequire(import.meta.url);
const target = (name) => new URL(`../src/dev/spec/${name}.json`, import.meta.url);

/** Calls with the same parameters share one list of them: most of the text is repetition. */
function pack(version, common, calls, bodies) {
  const lists = [];
  const seen = new Map();
  const rows = calls
    .map(([path, methods, params]) => {
      const text = JSON.stringify(Object.fromEntries(Object.entries(params).sort(([a], [b]) => (a < b ? -1 : 1))));
      if (!seen.has(text)) {
        seen.set(text, lists.length);
        lists.push(JSON.parse(text));
      }
      return [path, [...methods].sort().join(" "), seen.get(text)];
    })
    .sort(([a, b], [c, d]) => (a === c ? (b < d ? -1 : 1) : a < c ? -1 : 1));
  return `${JSON.stringify({ version, common, lists, calls: rows, bodies })}\n`;
}

function elasticsearch(jar) {
  const names = execFileSync("unzip", ["-Z1", jar], { encoding: "utf8" }).split("\n");
  const read = (name) => JSON.parse(execFileSync("unzip", ["-p", jar, name], { encoding: "utf8" }));
  const kind = (param) => (param.options?.length ? param.options.map(String) : param.type === "boolean" ? 1 : 0);
  const params = (from) => Object.fromEntries(Object.entries(from ?? {}).map(([name, param]) => [name, kind(param)]));
  const common = params(read("rest-api-spec/api/_common.json").params);
  const calls = [];
  for (const name of names.filter((n) => /^rest-api-spec\/api\/[^_].*\.json$/.test(n)).sort()) {
    for (const api of Object.values(read(name))) {
      if (api.visibility === "private") continue;
      for (const one of api.url.paths) {
        if (one.deprecated && /\{type\}/.test(one.path)) continue;
        calls.push([one.path, one.methods, params(api.params)]);
      }
    }
  }
  return pack(/rest-api-spec-([0-9.]+)\.jar/.exec(jar)?.[1] ?? "", common, calls, {});
}

function openSearch() {
  const root = dirname(require.resolve("@opensearch-project/opensearch/package.json"));
  const api = join(root, "api");
  const words = wordsOfTypes(join(api, "_types"));
  const calls = new Map();
  const bodies = {};
  for (const folder of readdirSync(api, { withFileTypes: true })) {
    if (!folder.isDirectory() || folder.name === "_types") continue;
    const files = readdirSync(join(api, folder.name)).filter((f) => f.endsWith(".js") && f !== "_api.js");
    for (const file of files.sort()) {
      const at = join(api, folder.name, file);
      const call = require(at);
      const types = readSafely(at.replace(/\.js$/, ".d.ts"));
      if (typeof call !== "function" || !types) continue;
      for (const [path, methods, params] of callsOf(call, readFileSync(at, "utf8"), types, words)) {
        const key = path;
        const old = calls.get(key);
        if (old) {
          methods.forEach((m) => old[1].add(m));
          old[2] = { ...params, ...old[2] };
        } else calls.set(key, [path, new Set(methods), params]);
        const keys = keysOfBody(types);
        if (keys.length && !bodies[path]) bodies[path] = keys;
      }
    }
  }
  const version = JSON.parse(readFileSync(join(root, "package.json"), "utf8")).version;
  const common = { pretty: 1, human: 1, error_trace: 1, filter_path: 0, source: 0 };
  return pack(version, common, [...calls.values()].map(([p, m, q]) => [p, [...m], q]), sorted(bodies));
}

/** Calls the client's own function with names for values, and looks at what it would have sent. */
function callsOf(call, source, types, words) {
  const request = /_Request(?: extends [^{]*)? \{([^}]*)\}/s.exec(types)?.[1] ?? "";
  const fields = [...request.matchAll(/^\s+'?([\w.]+)'?(\??): (.*);$/gm)].map(([, name, mark, type]) => ({ name, mark, type }));
  const inPath = new Set([...source.matchAll(/(\w+) = parsePathParam\(\1\)/g)].map((m) => m[1]));
  const optional = fields.filter((f) => inPath.has(f.name) && f.mark).map((f) => f.name);
  const found = new Map();
  for (let mask = 0; mask < 1 << optional.length; mask++) {
    for (const body of [undefined, {}]) {
      const params = Object.fromEntries([...inPath].filter((n) => !optional.includes(n) || mask & (1 << optional.indexOf(n))).map((n) => [n, `{${n}}`]));
      fields.filter((f) => !f.mark && !inPath.has(f.name) && f.name !== "body").forEach((f) => (params[f.name] = "x"));
      if (body) params.body = body;
      const seen = [];
      try {
        const bound = { transport: { request: (r) => (seen.push(r), Promise.resolve({})) } };
        call.call(bound, params, {}, () => {});
      } catch {
        continue;
      }
      for (const r of seen) {
        const path = decodeURIComponent(r.path).replace(/\/\/+/g, "/");
        if (!found.has(path)) found.set(path, new Set());
        found.get(path).add(r.method);
        // Its own function names one method only where the server takes either.
        if (/^(put|create|index)/i.test(call.name) && r.method !== "GET") found.get(path).add("PUT").add("POST");
      }
    }
  }
  const query = Object.fromEntries(
    fields.filter((f) => !inPath.has(f.name) && f.name !== "body").map((f) => [f.name, kindOfType(f.type, words)]),
  );
  return [...found].map(([path, methods]) => [path, [...methods], query]);
}

const kindOfType = (type, words) =>
  type === "boolean" ? 1 : (literals(type) ?? words.get(type.split(".").pop()) ?? 0);

function literals(type) {
  const parts = type.split("|").map((part) => part.trim());
  return parts.every((part) => /^'[^']*'$/.test(part)) ? parts.map((part) => part.slice(1, -1)) : undefined;
}

function wordsOfTypes(folder) {
  const words = new Map();
  for (const file of readdirSync(folder).sort()) {
    for (const [, name, type] of readFileSync(join(folder, file), "utf8").matchAll(/^export type (\w+) = (.*?);?$/gm)) {
      const list = literals(type);
      if (list && !words.has(name)) words.set(name, list);
    }
  }
  return words;
}

function keysOfBody(types) {
  const body = /_RequestBody = \{([^}]*)\}/s.exec(types)?.[1] ?? "";
  return [...body.matchAll(/^\s+'?([\w.]+)'?\??: /gm)].map((m) => m[1]).sort();
}

const readSafely = (path) => {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
};
const sorted = (map) => Object.fromEntries(Object.entries(map).sort(([a], [b]) => (a < b ? -1 : 1)));

const [, , given, jar] = process.argv;
// Of Elasticsearch there are two: the newest, and 7, which has calls that went away since, and lacks those
// that came.
const what = given === "elasticsearch" && /rest-api-spec-7/.test(jar ?? "") ? "elasticsearch-7" : given;
const text = what === "opensearch" ? openSearch() : given === "elasticsearch" && jar ? elasticsearch(jar) : undefined;
if (!text) {
  console.error("usage: node tools/specs.mjs opensearch | elasticsearch JAR");
  process.exit(2);
}
if (process.argv.includes("--check")) {
  const same = readFileSync(target(what), "utf8") === text;
  console.log(same ? `${what}.json is what its package gives` : `${what}.json differs from what its package gives`);
  process.exit(same ? 0 : 1);
}
writeFileSync(target(what), text);
