/** The first flow splits, the second one queues, and the others only forward. */
function flowOf(i, whys) {
  const counter = (total, per_s) => ({ total, per_s });
  const passed = i === 0 ? whys.slice(0, 2) : i === 1 ? ["url_parameter", "unknown_index", "rights", "update", "ambiguous_alias"] : [];
  return {
    counters: { requests: counter(3e6 >> i, [71, 96, 2][i] ?? 0.1), docs: counter(i ? 0 : 9e8, i ? 0 : 36_000), docs_queued: counter(i === 1 ? 4e8 : 0, i === 1 ? 9600 : 0), bulk_passed: counter(3750 * passed.length, 0.2 * passed.length), single_passed: counter(0, 0) },
    passed: passed.map((why, n) => ({ kind: "bulk", why, meaning: null, total: 3000 >> n, per_s: 0.1 })),
  };
}

// A gateway's traffic as the real server tells it: rates now and over the last minutes.
export function trafficOf(mock, entry, minutes) {
  const { base } = mock.live.get(`gateway ${entry.id}`);
  const names = entry.queueNames;
  const n = minutes * 60;
  const to = Math.floor(Date.now() / 1000) * 1000;
  const map = (make) => Array.from({ length: n }, (_, i) => (i > n * 0.55 && i < n * 0.6 ? null : Math.round(make(to / 1000 - n + i))));
  const second = to / 1000;
  const split = (s) => mock.rate(base, s) * 0.8;
  const counter = (per_s, of = 4e5) => ({ total: Math.round(per_s * of), per_s });
  const health = (i) => ({ up: i !== 2 || entry.name !== "gateway-2", failures_in_row: 0, answers: 88_123, failures: i === 2 ? 41 : 0, busy: i ? 3 * i : 0, latency_us: 4210 + 900 * i, slowness: i === 2 ? 6.2 : 1, in_flight: 3 + i, limit: i === 2 ? 2 : 16 });
  const whys = names ?? ["unknown_index", "url_parameter", "ambiguous_alias"];
  const cluster = (name) => [name, { state: entry.name === "gateway-2" ? "unreachable" : "watching", polled_ago_ms: 120, versions: ["3.3.2"], flavour: "opensearch", warnings: entry.name === "gateway-2" ? ["node-3 is out: connection refused"] : [], hit_rate: 1, indices_split: 41, indices_passed: { join_field: 2 }, nodes: (names ?? ["node-1", "node-2", "node-3"]).map((one, i) => ({ name: one, id: `n${i}`, address: `http://10.0.1.${10 + i}:9200`, roles: ["data"], health: health(i) })) }];
  const now = {
    at_ms: Date.now(),
    window_s: 10,
    uptime_s: 86_400,
    version: "0.9.0",
    counters: { docs: counter(Math.round(split(second))), docs_queued: counter(Math.round(base * 0.2)), requests: counter(Math.round(base / 500)), bulk_passed: counter(0.4) },
    passed: entry.quiet ? [] : whys.map((why, i) => ({ kind: i === 1 ? "single" : "bulk", why, meaning: why === "unknown_index" ? "The index does not exist (it may be created by this very request)." : null, total: 4000 >> (2 * i), per_s: 0.4 / (1 + i) })),
    entries: Object.fromEntries((names ?? ["bulk", "search"]).map((name, i) => [name, { address: `0.0.0.0:${8000 + i}`, connections: 128 >> i, accepted: 90_000, turned_away: i ? 7 : 0, made_room: 0, requests: 4e6, in_flight: 12 + i, refused: 3 * i, handshakes_failed: i, requests_per_s: Math.round(base / 500 / (1 + i)), refused_per_s: 0, accepted_per_s: 1.5 }])),
    flows: Object.fromEntries((names ?? ["split", "queued", "search"]).map((name, i) => [name, flowOf(i, whys)])),
    gain: { nodes: 3, hops_per_s: Math.round((split(second) * 2) / 3), requests_per_s: 180, cores: 0.1584, request_cpu_ms: 0.88 },
    memory: { buffers_bytes: 131_072_000, buffers_bytes_max: 150_994_944 },
    delivery_memory: { bytes: 8_388_608, bytes_max: 50_331_648, lanes_waiting: 0 },
    clusters_at_ms: Date.now(),
    clusters: Object.fromEntries(entry.clusters.map((one) => cluster(one.name))),
  };
  return { now: entry.silent ? null : now, step_ms: 1000, from_ms: to - n * 1000, series: { split_per_s: map(split), queued_per_s: map(() => base * 0.2), requests_per_s: map((s) => mock.rate(base / 500, s)), passed_per_s: map((s) => (s % 40 < 3 ? 4 : 0)) } };
}
