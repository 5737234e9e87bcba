// A cluster's indices as the real server pages them, and what a cluster tells of one of them.
const ROWS = 100;
const DAY = 86_400_000;

function all(mock, entry) {
  const { cluster, docs } = mock.live.get(`cluster ${entry.id}`);
  const rows = cluster.indices.map((name, i) => ({ name, health: i % 7 === 3 ? "yellow" : "green", status: "open", primaries: name.startsWith("logs") ? 6 : 3, replicas: 1, docs: Math.round(docs / (i + 2)), deleted: i * 17, bytes: Math.round(docs / (i + 2)) * 624, primary_bytes: Math.round(docs / (i + 2)) * 312, created_ms: mock.started - (i + 1) * DAY }));
  rows.push({ name: ".security", health: "green", status: "open", primaries: 1, replicas: 1, docs: 12, deleted: 0, bytes: 4096, primary_bytes: 2048, created_ms: mock.started - 90 * DAY });
  rows.push({ name: "archived-2025", health: null, status: "close", primaries: 3, replicas: 1, docs: null, deleted: null, bytes: null, primary_bytes: null, created_ms: mock.started - 400 * DAY });
  for (let n = 0; n < (entry.manyIndices ?? 0); n++) rows.push({ ...rows[0], name: `many-${String(n).padStart(5, "0")}`, docs: n });
  return rows;
}

export function indicesOf(mock, entry, query) {
  const [q, sort, from] = [query.get("q") ?? "", query.get("sort") ?? "name", Number(query.get("from") ?? 0)];
  const rows = entry.noIndices ? [] : all(mock, entry);
  const pieces = q.toLowerCase().split("*");
  const matching = rows.filter(({ name }) => {
    let at = 0;
    return pieces.every((piece) => (at = name.toLowerCase().indexOf(piece, at)) >= 0 && ((at += piece.length), true));
  });
  const found = matching.filter(({ name }) => query.get("hidden") === "true" || !name.startsWith("."));
  const turn = query.get("reverse") === "true" ? -1 : 1;
  const key = { created: "created_ms" }[sort] ?? sort;
  found.sort((a, b) => {
    if (sort === "name") return turn * (a.name < b.name ? -1 : 1);
    const [x, y] = [a[key], b[key]];
    return Number(x === null) - Number(y === null) || turn * (x === y ? 0 : x < y ? 1 : -1) || (a.name < b.name ? -1 : 1);
  });
  const sum = (of) => found.reduce((n, row) => n + (row[of] ?? 0), 0);
  return { at_ms: entry.indicesAt ?? Date.now() - 4000, problem: entry.indicesProblem ?? null, total: rows.length, matched: found.length, hidden: matching.length - matching.filter(({ name }) => !name.startsWith(".")).length, docs: sum("docs"), bytes: sum("bytes"), from, page_rows: ROWS, rows: found.slice(from, from + ROWS) };
}

/** `GET INDEX/_settings` and `/_mapping`, and `GET _cat/shards/INDEX`. */
export function tellIndex(cluster, name, what) {
  const aliases = { logs: cluster.indices.filter((one) => one.startsWith("logs-")) };
  const names = aliases[name] ?? (cluster.indices.includes(name) ? [name] : []);
  if (!names.length) return null;
  if (what === "shards") {
    return Array.from({ length: 6 }, (_, i) => ["p", "r"].map((prirep) => ({ shard: String(i), prirep, state: i === 4 && prirep === "r" ? "UNASSIGNED" : "STARTED", docs: i === 4 && prirep === "r" ? null : "13570", store: i === 4 && prirep === "r" ? null : "4233840", node: i === 4 && prirep === "r" ? null : `node-${((i + Number(prirep === "r")) % 3) + 1}`, "unassigned.reason": i === 4 && prirep === "r" ? "NODE_LEFT" : null }))).flat();
  }
  const settings = { "index.number_of_shards": "6", "index.number_of_replicas": "1", "index.refresh_interval": "30s", "index.max_result_window": "50000", "index.creation_date": "1763894400000", "index.uuid": "hH3kqS0VT3Oo1sT2cW9b4A", "index.provided_name": name, "index.version.created": "137267827" };
  const defaults = { "index.codec": "default", "index.gc_deletes": "60s", "index.translog.durability": "REQUEST", "index.translog.sync_interval": "5s" };
  const mappings = { properties: { at: { type: "date" }, message: { type: "text", fields: { raw: { type: "keyword", ignore_above: 256 } } }, client: { properties: { ip: { type: "ip" } } } } };
  return Object.fromEntries(names.map((one) => [one, what === "_mapping" ? { mappings } : { settings, defaults }]));
}
