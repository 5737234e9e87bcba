// A mock of the console's server: the whole API in memory, with figures that move, and misbehaviour on
// demand.
//
//   node test/mock/server.mjs [PORT] [--in]
//
// With --in, an account `ann` / `correct horse battery` and entries exist already.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { alertsOf, alertsShown, fillAlerts } from "./alerts.mjs";
import { auditOf, downloadOf, fillAudit } from "./audit.mjs";
import { Cluster } from "./cluster.mjs";
import { configOf } from "./config.mjs";
import { hostile } from "./names.mjs";
import { heatOf } from "./heat.mjs";
import { indicesOf } from "./indices.mjs";
import { missing, seen, usersOf } from "./roles.mjs";
import { trafficOf } from "./traffic.mjs";
import { trialOf } from "./trial.mjs";

const DIST = new URL("../../dist/", import.meta.url).pathname;
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
/** As the real server sends it, word for word. */
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'";

export const LINK = "one-time-link-of-the-mock";
export const NAME = "ann";
export const PASSWORD = "correct horse battery";

const id = (name) => name.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 40) || "x";

class Mock {
  user = null;
  /** The roles of who is logged in. */
  you = { role: "admin", clusters: {} };
  users = [];
  /** How users may log in. */
  ways = { password: true, oidc: null };
  /** Names and passwords that an admin has set. */
  passwords = [];
  sessions = new Set();
  clusters = [];
  gateways = [];
  live = new Map();
  tabs = { tabs: [], active: null };
  audit = [];
  alerts = { active: [], ended: [], webhook: null, delivery: {}, sent: [] };
  wrong = 0;
  /** "", "silent" (no news), "down" (503), "garbage" (half a JSON), "expired" (401) */
  mode = "";
  started = Date.now();
  streams = new Set();

  constructor(entered) {
    if (entered) {
      this.user = { name: NAME, password: PASSWORD };
      this.fill();
    }
  }

  fill() {
    this.addCluster({ name: "production", endpoints: ["https://es-1.prod:9200", "https://es-2.prod:9200"], username: "tidegate", colour: "#d43c3c", protected: true, flavour: "elasticsearch", version: "9.2.1", base: 48_000 });
    this.addCluster({ name: "archive", endpoints: ["http://10.0.1.15:9200"], colour: "#2f6fdb", read_only: true, flavour: "opensearch", version: "3.3.2", base: 5200, state: "warn", why: ["Disk of node-2 is 87 % full, its watermark is 90 %"] });
    this.addCluster({ name: "staging", endpoints: ["http://127.0.0.1:9201"], colour: "#3f8f3f", flavour: "opensearch", version: "3.3.2", base: 900 });
    this.addCluster({ name: "branch-office", endpoints: ["http://10.9.0.4:9200"], flavour: "opensearch", version: "2.19.3", base: 0, state: "bad", why: ["No answer for 2 minutes: connection refused by 10.9.0.4:9200"], seen: 134_000 });
    this.addGateway({ name: "gateway-1", url: "http://10.0.1.10:2900", has_token: true, clusters: ["production", "archive"], base: 51_000 });
    fillAudit(this);
    fillAlerts(this);
    const day = 86_400_000;
    this.users.push({ name: "bo", role: "viewer", clusters: {}, made_ms: this.started - 12 * day, seen_ms: this.started - 3 * 3_600_000 });
    this.users.push({ name: "cleo", role: "none", clusters: { staging: "admin", archive: "viewer" }, made_ms: this.started - 9 * day, seen_ms: null });
    this.users.push({ name: "dan", role: "operator", clusters: { production: "viewer" }, made_ms: this.started - 2 * day, seen_ms: this.started });
    this.addGateway({ name: "gateway-2", url: "http://10.0.1.11:2900", clusters: ["production"], base: 3000, state: "warn", why: ["Cluster production: 3 documents were refused within the last minute"], queues: { pending: 12_480, dead: 3, parked: 0 } });
  }

  addCluster({ flavour = "opensearch", version = "3.3.2", base = 1000, state = "ok", why = [], seen = null, ...entry }) {
    const made = { id: id(entry.name), username: null, has_password: !!entry.username, ca_pem: null, verify: true, colour: null, read_only: false, protected: false, from_gateway: null, ...entry };
    if (this.clusters.some((c) => c.id === made.id)) made.id += `-${this.clusters.length}`;
    this.clusters.push(made);
    this.live.set(`cluster ${made.id}`, { flavour, version, base, state, why, seen, cluster: new Cluster(entry.name, flavour, version), docs: base * 1e5 + 1234 });
    return made;
  }

  addGateway({ base = 1000, state = "ok", why = [], queues = null, clusters = [], ...entry }) {
    const made = { id: id(entry.name), has_token: false, ca_pem: null, has_client_pem: false, verify: true, ...entry, clusters: clusters.map((name) => ({ name, cluster_id: this.clusters.find((c) => c.name === name)?.id ?? null })) };
    this.gateways.push(made);
    this.live.set(`gateway ${made.id}`, { base, state, why, queues });
    return made;
  }

  /** A figure for a second, which is the same whenever it is asked for. */
  rate(base, second) {
    return Math.round(base * (1 + 0.18 * Math.sin(second / 9) + 0.06 * Math.sin(second / 1.7)) * 10) / 10;
  }

  overview() {
    const at = Date.now();
    const second = Math.floor(at / 1000);
    const shown = seen(this);
    const rows = [...shown.clusters.map((entry) => ["cluster", entry]), ...shown.gateways.map((entry) => ["gateway", entry])].map(([kind, entry]) => {
      const live = this.live.get(`${kind} ${entry.id}`);
      const gone = live.seen !== undefined && live.seen !== null;
      const spark = Array.from({ length: 60 }, (_, i) => (gone || (kind === "cluster" && entry.name === "staging" && i > 20 && i < 28) ? null : this.rate(live.base, second - 59 + i)));
      const row = { kind, id: entry.id, name: entry.name, colour: entry.colour ?? null, state: live.state, why: live.why, alerts: alertsShown(this, kind, entry.id), seen_ms_ago: gone ? live.seen + at - this.started : 300, docs_per_s: gone ? null : spark.at(-1), spark };
      if (kind === "cluster") return { ...row, read_only: entry.read_only, protected: entry.protected, nodes: gone ? null : 3, health: gone ? null : live.state === "ok" ? "green" : "yellow", version: live.version, flavour: live.flavour, docs: live.docs, bytes: live.docs * 312 };
      return { ...row, version: "0.9.0", requests_per_s: Math.round(live.base / 500), errors_per_s: live.state === "ok" ? 0 : 0.05, queues: live.queues, right: entry.right ?? "operate" };
    });
    const rank = { bad: 0, warn: 1, unknown: 2, ok: 3 };
    return { at_ms: at, you: { name: this.user.name, ...this.you }, rows: rows.sort((a, b) => rank[a.state] - rank[b.state] || (a.name < b.name ? -1 : 1)) };
  }

  series(entry, minutes) {
    const step = Math.max(1000, Math.ceil((minutes * 60_000) / 900 / 1000) * 1000);
    const to = Math.floor(Date.now() / step) * step;
    const n = Math.floor((minutes * 60_000) / step);
    const base = this.live.get(`cluster ${entry.id}`).base;
    const times = Array.from({ length: n }, (_, i) => to - (n - 1 - i) * step);
    // A gap, as if the console had been away for a while.
    const gap = (i) => i > n * 0.55 && i < n * 0.6;
    const map = (make) => times.map((ms, i) => (gap(i) ? null : make(ms / 1000, i)));
    return {
      step_ms: step,
      from_ms: times[0],
      series: {
        cluster_docs_per_s: map((s) => this.rate(base, s)),
        gateway_docs_per_s: map((s) => Math.round(this.rate(base, s) * 0.83)),
        index_latency_ms: map((s) => 0.2 + 0.1 * Math.abs(Math.sin(s / 40))),
        rejected_per_s: map((s) => (Math.sin(s / 60) > 0.95 ? 4 : 0)),
        heap_pct: map((s) => 42 + ((s / 4) % 30)),
        disk_pct: map((_, i) => 61 + i / 400),
      },
    };
  }

  nodes(entry) {
    const base = this.live.get(`cluster ${entry.id}`).base;
    const names = entry.nodeNames ?? ["node-1", "node-2", "node-3"];
    const at = Math.floor(Date.now() / 1000);
    return {
      at_ms: Date.now(),
      nodes: names.map((name, i) => ({ name, address: `10.0.1.${10 + i}:9300`, roles: ["cluster_manager", "data", "ingest"], cpu_pct: 30 + ((at + 17 * i) % 40), heap_pct: 40 + ((at + 9 * i) % 45), disk_used_bytes: (0.55 + 0.16 * i) * 2e12, disk_total_bytes: 2e12, docs_per_s: this.rate(base / 3, at + i), rejected: i === 1 ? 17 : 0, queue: i, state: i === 1 && entry.name === "archive" ? "warn" : "ok" })),
    };
  }

  /** A gateway's queues as the real server reports them, with sums; a test can set how many documents (`off`) are missing. */
  queues(entry) {
    const second = Math.floor(Date.now() / 1000);
    const all = entry.queueNames ?? (entry.name === "gateway-2" ? ["ingest"] : ["logs", "orders"]);
    const lane = (n, of) => ({ accepted: 9000 + n * 13, done: 9000 + n * 13 - of, dead: 0, lost: 0, skipped: 0, rewound: 0, pending_bytes: of * 312, position: 48_000 + n * 100, doing: of ? (n % 3 ? "retrying" : "paused") : "idle", why: of ? (n % 3 ? "node-7 answers 429" : "index_closed") : null, waits_for: of && n === 2 ? [{ node: entry.queueNames?.[3] ?? "node-7", documents: 730, for_s: 4.2 }] : [] });
    const group = (name, q) => {
      const behind = name === "archive" ? [1200, 4000, 33] : [0, 0, 0];
      const lanes = Array.from({ length: 12 }, (_, n) => lane(n, behind[n] ?? 0));
      const pending = lanes.reduce((sum, l) => sum + l.accepted - l.done, 0);
      const [dead, parked, replayed] = [3, 40, 2];
      const accepted = 1_000_000 + second % 1000;
      const states = { indexed: accepted - dead - parked - replayed - pending - (entry.off ?? 0), dead, parked, pending, replayed, purged: 0, skipped: 0, lost: 0 };
      const sum = Object.values(states).reduce((a, b) => a + b, 0);
      const waits = name === "archive" ? [{ reason: "retrying", why: "node-7 has no time: 429", cluster: name, lanes: [1, 2], for_s: 240.5, next_try_s: 1.2 }, { reason: "slow_node", why: "the node node-7 has not answered; it is sent 2 requests at once at present", node: "node-7", cluster: name, lanes: [2], documents: 730, for_s: 4.2 }, { reason: "parked", why: "they wait apart from their lanes", documents: parked }] : [];
      return [accepted, { ...states, rewound: 0, pending_bytes: pending * 312, waits, cluster: name, pipeline: `to-${name}`, state: entry.stopped ? "stopped" : "running", lag_s: pending ? 41.5 : 0, lanes, accounted: q === "kafka" ? null : accepted, states: q === "kafka" ? null : sum, adds_up: q === "kafka" ? null : sum === accepted }];
    };
    const queues = {};
    for (const name of all) {
      const groups = ["production", "archive"].map((one) => [one, group(one, name)]);
      queues[name] = { accepted: groups[0][1][0], records: 1200, bytes: 88_123_456, start: 0, end: 99_000, poisoned: null, refuses: null, dead_letters: 6, ...(name === "kafka" ? { topic: "tidegate-kafka" } : {}), groups: Object.fromEntries(groups.map(([one, [, value]]) => [one, value])) };
    }
    return { at_ms: Date.now(), queues };
  }

  lag(minutes) {
    const n = minutes * 60;
    const to = Math.floor(Date.now() / 1000) * 1000;
    const map = (make) => Array.from({ length: n }, (_, i) => (i > n * 0.55 && i < n * 0.6 ? null : make(to / 1000 - n + i)));
    return { step_ms: 1000, from_ms: to - n * 1000, groups: { production: { lag_s: map(() => 0.2), pending: map((s) => 20 + (s % 7)) }, archive: { lag_s: map((s) => 20 + 20 * Math.abs(Math.sin(s / 90))), pending: map((s) => Math.round(3000 + 2000 * Math.abs(Math.sin(s / 90)))) } } };
  }

  note(what, target, more = {}) {
    this.audit.unshift({ id: this.audit.length + 1, at_ms: Date.now(), user: this.user?.name ?? "?", what, target, before: null, after: null, reason: null, ...more });
  }
}

class Refusal extends Error {
  constructor(status, type, reason, more = {}) {
    super(reason);
    Object.assign(this, { status, body: { error: { type, reason }, status, ...more } });
  }
}

const STEPS = ["address", "dns", "tcp", "tls", "auth", "version"];

/** Fails at the step that the host's name says: `tls.bad:9200` fails at TLS. */
function testOf(address, secretGiven, gateway) {
  const failing = STEPS.find((step) => address.includes(`//${step}.bad`)) ?? (/^https?:\/\/[^\s/]+/.test(address) ? null : "address");
  const said = { address: "an address of http or https", dns: "10.0.1.15", tcp: "connected", tls: "TLS 1.3, certificate of CN=es-1", auth: secretGiven ? "accepted" : "no password wanted", version: "opensearch 3.3.2" };
  const wrong = { address: "this is no address", dns: "no such host", tcp: "connection refused", tls: "certificate signed by an unknown authority", auth: "401 Unauthorized: the password is wrong", version: "this is no Elasticsearch or OpenSearch" };
  const steps = [];
  for (const step of STEPS) {
    if (step === "tls" && address.startsWith("http:")) continue;
    steps.push({ step, ok: step !== failing, detail: step === failing ? wrong[step] : said[step], took_ms: 1.5 });
    if (step === failing) return { ok: false, steps };
  }
  return { ok: true, steps, found: { flavour: gateway ? "tidegate" : "opensearch", version: gateway ? "0.9.0" : "3.3.2", name: "demo", uuid: "x", nodes: 3 }, ...(gateway ? { clusters: ["demo", "second"] } : {}) };
}

async function route(mock, method, path, query, body, request) {
  const session = /tidegate=(\w+)/.exec(request.headers.cookie ?? "")?.[1];
  const inside = mock.sessions.has(session) && mock.mode !== "expired";
  const enter = () => {
    const key = Math.random().toString(36).slice(2);
    mock.sessions.add(key);
    return { cookie: `tidegate=${key}; HttpOnly; SameSite=Strict; Path=/`, value: whoIs(mock) };
  };
  if (method !== "GET" && !/^application\/json/.test(request.headers["content-type"] ?? "")) throw new Refusal(415, "not_json", "Only JSON is taken.");
  if (path === "session") {
    if (inside) return { value: whoIs(mock) };
    throw new Refusal(401, "no_session", "Log in first.", { first_start: !mock.user, login: mock.ways });
  }
  if (path === "setup" && method === "POST") {
    if (mock.user) throw new Refusal(409, "not_first", "There is an account already.");
    if (body.link !== LINK) throw new Refusal(403, "wrong_link", "This link is not the one that the console printed. It holds once, until the console is started anew.");
    mock.user = { name: body.name, password: body.password };
    mock.note("account made", body.name);
    return enter();
  }
  if (path === "login" && method === "POST") {
    if (mock.wrong >= 5) throw new Refusal(429, "throttled", "Too many attempts.", { retry_after_s: 30 });
    if (body.name !== mock.user?.name || body.password !== mock.user?.password) {
      mock.wrong++;
      throw new Refusal(401, "wrong", "Name or password is wrong.");
    }
    mock.wrong = 0;
    return enter();
  }
  if (path === "logout") {
    mock.sessions.delete(session);
    return { value: {} };
  }
  if (!inside) throw new Refusal(401, "no_session", "Log in first.");
  if (mock.mode === "down") throw new Refusal(503, "down", "The store does not answer.");
  return { value: await inner(mock, method, path.split("/").map(decodeURIComponent), query, body, request) };
}

const whoIs = (mock) => ({ user: { name: mock.user.name, ...mock.you }, version: "0.9.0-mock", login: mock.ways });

async function inner(mock, method, parts, query, body, request) {
  const [first, second, third] = parts;
  const lacks = missing(mock, method, parts, body);
  if (lacks) refuse(403, "missing_role", `this needs the role ${lacks[0]} ${lacks[2]}, and yours is ${lacks[1]}`, { missing: { needs: lacks[0], has: lacks[1] } });
  const entryOf = (list) => list.find((e) => e.id === second) ?? refuse(404, "unknown", "There is no such entry.");
  switch (`${method} ${first}`) {
    case "GET registry":
      return seen(mock);
    case "POST registry":
      return importYaml(mock, body.yaml);
    case "GET overview":
      return mock.overview();
    case "GET users":
    case "POST users":
    case "PUT users":
    case "DELETE users":
      return usersOf(mock, method, second, body, refuse);
    case "POST password":
      if (body.old !== mock.user.password) refuse(403, "wrong_password", "the old password is wrong");
      mock.user.password = body.new;
      return {};
    case "GET tabs":
      return mock.tabs;
    case "PUT tabs":
      mock.tabs = body;
      return {};
    case "GET alerts":
    case "PUT alerts":
    case "POST alerts":
    case "DELETE alerts":
      return alertsOf(mock, method, second, third, body, refuse);
    case "GET audit":
      return auditOf(mock, query);
    case "POST gateways":
    case "POST clusters": {
      const gateway = first === "gateways";
      if (second === "_test") {
        await new Promise((done) => setTimeout(done, 120));
        return testOf(gateway ? body.url : (body.endpoints?.[0] ?? ""), !!(body.password ?? body.token), gateway);
      }
      if (third === "trial" && gateway) return trialOf(mock, entryOf(mock.gateways), method, body, refuse);
      if (third === "call" && gateway) return gatewayCall(mock, entryOf(mock.gateways), body);
      if (third === "call") return mock.live.get(`cluster ${second}`) ? callOf(mock, entryOf(mock.clusters), body, request) : refuse(404, "unknown", "There is no such cluster.");
      const { password, token, client_pem, ...entry } = body;
      const made = gateway ? mock.addGateway({ ...entry, has_token: !!token, has_client_pem: !!client_pem, clusters: ["demo"] }) : mock.addCluster({ ...entry, has_password: !!password });
      if (gateway && !mock.clusters.some((c) => c.name === "demo")) {
        const demo = mock.addCluster({ name: "demo", endpoints: ["http://127.0.0.1:9200"], from_gateway: made.id });
        made.clusters = [{ name: "demo", cluster_id: demo.id }];
      }
      mock.note(`${first.slice(0, -1)} registered`, made.name, { after: entry });
      return made;
    }
    case "PUT clusters":
    case "PUT gateways": {
      const entry = entryOf(mock[first]);
      const { password, token, client_pem, ...rest } = body;
      mock.note(`${first.slice(0, -1)} changed`, entry.name, { before: { ...entry }, after: rest });
      const has = (name, secret) => (secret === undefined ? {} : { [`has_${name}`]: secret !== null });
      return Object.assign(entry, rest, has("password", password), has("token", token), has("client_pem", client_pem));
    }
    case "DELETE clusters":
    case "DELETE gateways": {
      if (third === "trial") return trialOf(mock, entryOf(mock.gateways), method, body, refuse);
      const entry = entryOf(mock[first]);
      mock[first] = mock[first].filter((e) => e !== entry);
      mock.note(`${first.slice(0, -1)} removed`, entry.name, { before: entry });
      return {};
    }
    case "GET gateways": {
      const entry = entryOf(mock.gateways);
      if (third === "queues") return mock.queues(entry);
      if (third === "traffic") return trafficOf(mock, entry, Number(query.get("minutes") ?? 15));
      if (third === "trial") return trialOf(mock, entry, method, body, refuse);
      if (third === "lag") return mock.lag(Number(query.get("minutes") ?? 15));
      break;
    }
    case "GET clusters": {
      const entry = entryOf(mock.clusters);
      if (third === "series") return mock.series(entry, Number(query.get("minutes") ?? 15));
      if (third === "nodes") return mock.nodes(entry);
      if (third === "heat") return heatOf(mock, entry);
      if (third === "indices") return indicesOf(mock, entry, query);
      if (third === "names") return { names: mock.live.get(`cluster ${entry.id}`).cluster.names(query.get("kind"), query.get("prefix") ?? "") };
    }
  }
  return refuse(404, "unknown", `There is no ${method} ${parts.join("/")}.`);
}

function refuse(status, type, reason, more) {
  throw new Refusal(status, type, reason, more);
}

function gatewayCall(mock, entry, { method, path, body }) {
  const told = (value, status = 200) => ({ status, took_ms: 2, headers: {}, body: JSON.stringify(value), truncated: false });
  const [at] = path.split("?");
  if (method !== "GET" && !/^\/config\/_(check|diff)/.test(at)) mock.note(`${method} ${path}`, entry.name);
  if (/^\/pipeline\//.test(at)) {
    entry.stopped = at.endsWith("_stop");
    return told({});
  }
  const records = /^\/queue\/.*\/records$/.test(at);
  if (records) return told(recordsOf(entry, new URLSearchParams(path.split("?")[1])));
  if (at.startsWith("/dead_letters")) {
    const [value, status] = lettersOf(entry, at, new URLSearchParams(path.split("?")[1]), method, body);
    // A source is written as it came, which no value of this language could hold.
    return { ...told(value, status), body: JSON.stringify(value).replace(/"source":"raw (\d+)"/g, (_, id) => `"source":${entry.raw[id]}`) };
  }
  if (at.startsWith("/config/")) return told(...configOf(mock, entry, path, body));
  if (at === "/trace") return told(...traceOf(entry, new URLSearchParams(path.split("?")[1])));
  return told({ error: { reason: "no such endpoint" } }, 404);
}

/** A document with another state for each group. Nothing is known about the index "none", and only a part about "cut". */
function traceOf(entry, query) {
  const [index, words] = [query.get("index"), entry.queueNames ?? []];
  const ago = (s) => Date.now() - s * 1000;
  const why = words[0] ?? "node-7 has no time: 429";
  const searched = { from: 1200, to: index === "cut" ? 40_000 : 99_000, start: 0, end: 99_000, since_ms: ago(3600), records: 978, bytes: 97_800, unreadable: index === "cut" ? 2 : 0, complete: index !== "cut", next: index === "cut" ? 40_000 : null };
  const group = (name, state, more = {}) => ({ group: words[1] ?? name, cluster: name, pipeline: name, state, pending: [], parked: [], dead: [], ...more });
  const clusters = { production: { asked: true, found: true, index: "logs-2026.11.23", version: 3, seq_no: 1204, primary_term: 1 }, archive: { asked: true, found: false, indices: [index], no_index: false }, spare: { asked: false, why: words[2] ?? "no answer within 2 s" } };
  if (index === "broken") return [{ error: { reason: "the disk cannot be read" } }, 500];
  if (index === "direct") return [{ queues: [], clusters, took_ms: 3 }];
  const groups = index === "none" ? [group("production", "not_seen")] : [
    group("production", "indexed"),
    group("archive", "pending", { pending: [{ position: 77_700, time_ms: ago(240), lane: 7, place: 0, documents_ahead: 4032, lane_docs_per_s: 100, estimated_s: 40.32, held_by: [{ reason: "retrying", why, lanes: [7] }] }] }),
    group("spare", "parked", { parked: [{ position: 5000, key: words[3] ?? "index:logs", why, since_ms: ago(600), attempts: 12, next_try_s: 2.5 }] }),
    group("old", "dead", { dead: [{ id: 1000, died_ms: ago(900), status: 400, type: "mapper_parsing_exception", reason: words[4] ?? "failed to parse field [price]" }] }),
  ];
  return [{ index, id: query.get("id"), queues: [{ queue: "logs", searched, not_searched: null, parked_searched: true, dead_letters_searched: index !== "cut", write_count: groups.length > 1 ? 2 : 0, groups }], clusters, took_ms: 3 }];
}

/** 990 records of 100 bytes. */
function recordsOf(entry, query) {
  const [from, limit] = [Number(query.get("from")), Number(query.get("limit"))];
  const all = Array.from({ length: 990 }, (_, n) => ({ position: n * 100, bytes: 100, documents: 1, time_ms: Date.now() - (990 - n) * 1000, kind: 0, params: {}, groups: [{ lane: n % 12, documents: 1, bytes: 90, damaged: n === 17, text: n === 17 ? "" : `{"index":{"_index":"logs","_id":"${n}"}}\n{"note":${JSON.stringify(entry.queueNames?.[n % 7] ?? "hello")}}\n`, cut: n === 5 }] }));
  const of = all.filter((one) => one.position >= from && (!query.get("lane") || one.groups[0].lane === Number(query.get("lane"))));
  return { records: of.slice(0, limit), next: of[limit]?.position ?? null };
}

/** 120 letters of two kinds, or with hostile words. */
function lettersOf(entry, at, query, method, body) {
  const reasons = entry.queueNames ?? ["failed to parse field [price] of type [long] in document with id '…'. Preview of field's value: '…'", "mapping set to strict, dynamic introduction of [colour] within [_doc] is not allowed"];
  const fields = entry.queueNames ?? ["price", "colour"];
  entry.letters ??= Array.from({ length: 120 }, (_, n) => ({ id: 1000 + n, died_ms: Date.now() - n * 60_000, index: entry.queueNames?.[n % 7] ?? "orders-2026.11", action: { index: { _index: "orders-2026.11", _id: String(n) } }, source: { price: `${n}`, note: reasons[0] }, status: 400, type: "mapper_parsing_exception", reason: reasons[n % reasons.length], field: fields[n % fields.length], attempts: 1, group: "archive", cluster: "archive" }));
  // Sources that a test gives as text, by the letter's id.
  entry.raw ??= {};
  const alone = at.match(/^\/dead_letters\/(\d+)$/)?.[1];
  if (alone) {
    if (method === "PUT" && entry.raw[alone]) entry.raw[alone] = /^\{"source":([^]*)\}$/.exec(body)[1];
    const found = entry.letters.find((one) => one.id === Number(alone));
    return found ? [found] : [{ error: { reason: `there is no dead letter ${alone}` } }, 404];
  }
  const fits = (one) => ["index", "type", "group", "field"].every((name) => !query.get(name) || one[name] === query.get(name)) && (!query.get("like") || one.reason === query.get("like")) && (!query.get("status") || String(one.status) === query.get("status")) && (!query.get("reason") || one.reason.includes(query.get("reason"))) && (!query.get("before") || one.id < Number(query.get("before"))) && (!query.get("id") || String(one.id) === query.get("id"));
  const found = entry.letters.filter(fits);
  const before = Number(query.get("before") ?? 0) || Math.max(999, ...entry.letters.map((one) => one.id)) + 1;
  if (at.endsWith("_purge") || at.endsWith("_replay")) {
    entry.letters = entry.letters.filter((one) => !found.includes(one));
    return [at.endsWith("_purge") ? { purged: found.length } : { replayed: found.length, refused: 0, refusals: [], stopped: null, more: false, before }];
  }
  const facet = (of) => ({ values: [...new Set(found.map(of))].map((value) => ({ value: String(value), letters: found.filter((one) => of(one) === value).length })), others: 0 });
  if (at.endsWith("_facets")) return [{ letters: found.length, before, like: facet((one) => one.reason), field: facet((one) => one.field), index: facet((one) => one.index), type: facet((one) => one.type), status: facet((one) => one.status), group: facet((one) => one.group) }];
  const from = Number(query.get("from") ?? 0);
  if (at.endsWith("_patch")) {
    // As if there were time for 50 letters in each request.
    const part = found.filter((one) => one.id >= from).slice(0, 50);
    const next = found.find((one) => one.id > (part.at(-1)?.id ?? Infinity))?.id ?? null;
    const preview = part.slice(0, 20).map((one) => ({ before: one, after: one }));
    return [{ [query.get("dry_run") ? "would" : "patched"]: part.length - 1, unchanged: 1, refused: 0, refusals: [], preview, more: next !== null, next, before }];
  }
  const limit = Number(query.get("limit") ?? 100);
  return [{ dead_letters: found.slice(from, from + limit), next: from + limit < found.length ? from + limit : null }];
}

const WRITES = (method, path) => method === "DELETE" || method === "PUT" || (method === "POST" && !/_search|_count|_simulate|_analyze|_msearch/.test(path));

async function callOf(mock, entry, { method, path, body, confirm }, request) {
  const writes = WRITES(method, path);
  if (writes && entry.read_only) refuse(403, "read_only", `Cluster ${entry.name} is read-only in this console.`);
  if (writes && entry.protected && method === "DELETE") {
    const index = path.split("/").filter(Boolean).at(-1) ?? entry.name;
    if (!confirm) refuse(409, "confirm", `DELETE on the protected cluster ${entry.name} wants to be confirmed.`, { confirm: { index } });
  }
  if (writes) mock.note(`${method} ${path}`, entry.name, { reason: confirm?.reason ?? null });
  if (path.startsWith("/_slow")) {
    const gone = await new Promise((done) => {
      const timer = setTimeout(() => done(false), 20_000);
      request.on("close", () => done(true));
      request.socket.on("close", () => (clearTimeout(timer), (mock.cancelled = true), done(true)));
    });
    return { status: 200, took_ms: 20_000, headers: {}, body: `{"gone":${gone}}`, truncated: false };
  }
  const answer = mock.live.get(`cluster ${entry.id}`).cluster.answer(method, path, body);
  return { status: answer.status, took_ms: 3, headers: { "content-type": "application/json" }, body: answer.text, truncated: !!answer.truncated };
}

/** Parses only what the tests use: names under `clusters:`. */
function importYaml(mock, yaml) {
  const lines = yaml.split("\n");
  const bad = lines.findIndex((line) => /\t/.test(line));
  if (bad >= 0) return { added: [], changed: [], problems: [{ line: bad + 1, column: lines[bad].indexOf("\t") + 1, reason: "a tab cannot begin a token" }] };
  const added = [];
  for (const line of lines) {
    const name = /^\s+- name: "?([^"]+)"?$/.exec(line)?.[1];
    if (name && !mock.clusters.some((c) => c.name === name)) {
      mock.addCluster({ name, endpoints: ["http://127.0.0.1:9209"] });
      added.push(name);
    }
  }
  return { added, changed: [], problems: [] };
}

export async function start(port = 0, entered = true) {
  const mock = new Mock(entered);
  const server = createServer((request, response) => void serve(mock, request, response));
  await new Promise((done) => server.listen(port, "127.0.0.1", done));
  const beat = setInterval(() => {
    if (mock.mode === "") for (const stream of mock.streams) stream.write(`event: overview\ndata: ${JSON.stringify(mock.overview())}\n\n`);
    if (mock.mode === "garbage") for (const stream of mock.streams) stream.write(`event: overview\ndata: ${JSON.stringify(mock.overview()).slice(0, 300)}\n\n`);
  }, 1000);
  const url = `http://127.0.0.1:${server.address().port}/`;
  return { mock, url, close: () => (clearInterval(beat), server.closeAllConnections(), server.close()) };
}

async function serve(mock, request, response) {
  const url = new URL(request.url, "http://x");
  // Any prefix is accepted, as behind a proxy.
  const path = url.pathname.replace(/^\/some\/prefix/, "");
  const send = (status, value, headers = {}) => {
    const whole = JSON.stringify(value);
    const text = mock.mode === "garbage" && !/session/.test(path) ? whole.slice(0, Math.min(40, whole.length / 2)) : whole;
    response.writeHead(status, { "content-type": "application/json", "cache-control": "no-store", ...headers }).end(text);
  };
  try {
    if (path === "/api/live") {
      if (!mock.sessions.has(/tidegate=(\w+)/.exec(request.headers.cookie ?? "")?.[1]) || mock.mode === "expired") return send(401, {});
      if (mock.mode === "down") return send(503, {});
      response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
      response.write(`event: overview\ndata: ${JSON.stringify(mock.overview())}\n\n`);
      mock.streams.add(response);
      request.on("close", () => mock.streams.delete(response));
      return;
    }
    if (path.startsWith("/api/")) {
      const chunks = [];
      for await (const chunk of request) chunks.push(chunk);
      const text = Buffer.concat(chunks).toString();
      if (path === "/api/audit/_download" && mock.you.role === "admin") {
        return response.writeHead(200, { "content-type": "application/x-ndjson", "content-disposition": 'attachment; filename="audit.ndjson"' }).end(downloadOf(mock, url.searchParams));
      }
      const { value, cookie } = await route(mock, request.method, path.slice(5), url.searchParams, text ? JSON.parse(text) : {}, request);
      return send(200, value, cookie ? { "set-cookie": cookie } : {});
    }
    const file = normalize(join(DIST, path === "/" ? "index.html" : path));
    if (!file.startsWith(DIST)) return send(404, {});
    const bytes = await readFile(file);
    const headers = { "content-type": TYPES[extname(file)] ?? "application/octet-stream", "content-security-policy": POLICY, "x-content-type-options": "nosniff" };
    response.writeHead(200, headers).end(bytes);
  } catch (error) {
    if (error instanceof Refusal) return send(error.status, error.body);
    send(error.code === "ENOENT" ? 404 : 500, { error: { type: "mock", reason: String(error.message) } });
  }
}

export { hostile };

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { url } = await start(Number(process.argv[2] ?? 9900), process.argv.includes("--in"));
  console.log(`${url}  (first start: ${url}#setup=${LINK}; with --in: ${NAME} / ${PASSWORD})`);
}
