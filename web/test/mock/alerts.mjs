// Alerts, silences and the webhook, as the real server tells them.
import { roleOn, roleOnGateway, seen } from "./roles.mjs";

const RULES = [
  ["no_answer", "bad", "A cluster or a gateway does not answer, or not with what is asked for.", 30],
  ["cluster_red", "bad", "A cluster's health is red: some primary shards are not assigned.", 30],
  ["disk_full", "warn", "The disk of a node is 90 % full or more.", 60],
  ["writes_rejected", "warn", "Nodes of a cluster reject writes.", 60],
  ["queue_refuses", "bad", "A queue of a gateway accepts nothing.", 10],
  ["accounts_wrong", "bad", "The accounts of a consumer group do not add up.", 0],
  ["group_behind", "warn", "A consumer group is five minutes behind or more.", 0],
  ["dead_letters", "warn", "There are dead letters in a queue.", 0],
].map(([rule, severity, meaning, hold_s]) => ({ rule, severity, meaning, hold_s }));

export function fillAlerts(mock) {
  const ago = (s) => mock.started - s * 1000;
  const alert = (rule, kind, id, words, s, more = {}) => ({ rule, severity: RULES.find((one) => one.rule === rule).severity, kind, id, name: id, part: "", words, since_ms: ago(s), fired_ms: ago(s), silence: null, ...more });
  mock.alerts.active = [
    alert("no_answer", "cluster", "branch-office", "connection refused by 10.9.0.4:9200", 164),
    alert("group_behind", "gateway", "gateway-1", "queue logs, group archive: 7 minutes behind", 660, { part: "logs/archive" }),
    alert("dead_letters", "gateway", "gateway-2", "queue ingest has 3 dead letters", 7200, { part: "ingest", silence: { until_ms: mock.started + 5 * 3_600_000, user: "dan", reason: "the mapping is mended on Monday" } }),
  ];
  mock.alerts.ended = [
    { ...alert("disk_full", "cluster", "archive", "node-2: disk is 91 % full", 90_000), resolved_ms: ago(82_000) },
    { ...alert("writes_rejected", "cluster", "production", "node-1, node-3: writes are rejected, up to 12 a second", 180_000), resolved_ms: ago(179_700) },
  ];
  mock.alerts.webhook = { place: "https://alerts.example:443", has_secret: true, ca_pem: null, verify: true };
  mock.alerts.delivery = { waiting: 0, taken_ms: ago(164), failed_ms: null, failed: null, failures: 0, dropped: 0 };
}

const isOf = (kind, id) => (one) => one.kind === kind && one.id === id;

export const alertsShown = (mock, kind, id) => mock.alerts.active.filter(isOf(kind, id)).map(({ rule, severity, part, words, since_ms, silence }) => ({ rule, severity, part, words, since_ms, silenced: silence !== null }));

export function alertsOf(mock, method, second, third, body, refuse) {
  const { clusters, gateways } = seen(mock);
  const visible = ({ kind, id }) => (kind === "cluster" ? clusters : gateways).some((one) => one.id === id);
  if (second === undefined) {
    return { at_ms: Date.now(), active: mock.alerts.active.filter(visible), ended: mock.alerts.ended.filter(visible), rules: RULES, has_webhook: mock.alerts.webhook !== null };
  }
  if (second === "_silence") {
    const entry = (body.kind === "cluster" ? mock.clusters : mock.gateways).find((one) => one.id === body.id) ?? refuse(404, "not_found", "there is none with this id");
    const has = body.kind === "cluster" ? roleOn(mock.you, entry.id) : roleOnGateway(mock.you, entry);
    if (!["operator", "admin"].includes(has)) refuse(403, "missing_role", "this needs the role operator");
    if (body.minutes && !body.reason.trim()) refuse(400, "bad_request", "reason: 1 to 500 characters are wanted");
    const silence = body.minutes ? { until_ms: Date.now() + body.minutes * 60_000, user: mock.user.name, reason: body.reason } : null;
    for (const one of mock.alerts.active) if (one.rule === body.rule && isOf(body.kind, body.id)(one)) one.silence = silence;
    mock.note(silence ? "silence alert" : "end silence", entry.name, { reason: body.reason || null });
    return {};
  }
  if (mock.you.role !== "admin") refuse(403, "missing_role", "this needs the role admin for everything");
  if (third === "_test") {
    mock.alerts.sent.push(body);
    const bad = /refusing/.test(body.url ?? "");
    return { ok: !bad, words: bad ? "it answers 503 Service Unavailable" : null, took_ms: 12 };
  }
  if (method === "GET") return { webhook: mock.alerts.webhook, ...mock.alerts.delivery };
  if (method === "DELETE") mock.alerts.webhook = null;
  else mock.alerts.webhook = { place: body.url ? new URL(body.url).origin : mock.alerts.webhook.place, has_secret: body.secret !== undefined ? body.secret !== null : (mock.alerts.webhook?.has_secret ?? false), ca_pem: body.ca_pem, verify: body.verify };
  mock.note(method === "DELETE" ? "remove webhook" : "set webhook", "alerts", { after: mock.alerts.webhook });
  return {};
}
