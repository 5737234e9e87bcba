// The audit log, as the real server searches it: a bounded part at once, the newest first.
const SEARCHED_MAX = 500;

const fits = (query) => {
  const word = (name) => (query.get(name) ?? "").toLowerCase();
  const number = (name, none) => (query.get(name) ? Number(query.get(name)) : none);
  const text = (e) => [e.user, e.what, e.target, e.reason ?? "", JSON.stringify(e.before), JSON.stringify(e.after)].join(" ").toLowerCase();
  return (e) =>
    (!word("user") || e.user.toLowerCase() === word("user")) && (!word("target") || e.target.toLowerCase() === word("target")) && text(e).includes(word("q")) && e.at_ms >= number("from_ms", -Infinity) && e.at_ms < number("to_ms", Infinity);
};

export function auditOf(mock, query) {
  const limit = Number(query.get("limit") ?? 100);
  const before = Number(query.get("before") ?? Infinity);
  // Times are looked up, not searched for.
  const [fromMs, toMs] = [Number(query.get("from_ms") ?? 0), Number(query.get("to_ms") ?? Infinity)];
  const [found, good] = [{ entries: [], searched: 0, back_to_ms: null, next: null }, fits(query)];
  for (const entry of mock.audit.filter((one) => one.id < before && one.at_ms >= fromMs && one.at_ms < toMs)) {
    found.searched++;
    found.back_to_ms = entry.at_ms;
    if (good(entry)) found.entries.push(entry);
    if (found.entries.length >= limit || found.searched >= SEARCHED_MAX) {
      found.next = String(entry.id);
      break;
    }
  }
  return found;
}

export const downloadOf = (mock, query) => mock.audit.filter(fits(query)).map((entry) => `${JSON.stringify(entry)}\n`).join("");

/** Two months of work, the same at each start. */
export function fillAudit(mock) {
  const deeds = [
    ["ann", "change cluster", "archive", { before: { read_only: false, colour: null, endpoints: ["http://10.0.1.15:9200"] }, after: { read_only: true, colour: "#2f6fdb", endpoints: ["http://10.0.1.15:9200"] } }],
    ["dan", "POST /dead_letters/_replay?queue=logs&like=failed", "gateway-1", { reason: "the mapping is mended" }],
    ["dan", "PUT /_index_template/logs", "staging", {}],
    ["ann", "change roles", "cleo", { before: { role: "viewer", clusters: {} }, after: { role: "none", clusters: { staging: "admin", archive: "viewer" } } }],
    ["dan", "DELETE /logs-2026.09.01", "production", { reason: "older than 60 days, ticket 4711" }],
    ["bo", "log in", "console", {}],
  ];
  for (let n = 700; n > 0; n--) mock.note(deeds[n % deeds.length][1], deeds[n % deeds.length][2], { user: deeds[n % deeds.length][0], at_ms: mock.started - n * 7_200_000, ...deeds[n % deeds.length][3] });
  mock.note("failed login", "console", { user: "dora", at_ms: mock.started - 3_600_000, after: { address: "203.0.113.9", since: new Date(mock.started - 7_200_000).toISOString(), wrong: 11, throttled: 1204 } });
}
