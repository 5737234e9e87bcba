// A cluster's heat as the real server tells it: rates by shard, the hottest first.
export function heatOf(mock, entry) {
  const gateways = mock.gateways.filter((one) => one.clusters.some((link) => link.cluster_id === entry.id));
  const second = Math.floor(Date.now() / 1000);
  const nodes = entry.nodeNames ?? Array.from({ length: entry.manyNodes ?? 6 }, (_, i) => `node-${i + 1}`);
  const indices = entry.nodeNames ?? ["logs-2026.11.25", "logs-2026.11.24", "orders", "metrics"];
  const base = mock.live.get(`cluster ${entry.id}`).base;
  const shards = indices.flatMap((index, i) =>
    Array.from({ length: entry.manyShards ?? (i === 0 ? 24 : 12) }, (_, shard) => {
      const weight = i === 1 ? 0 : entry.hot === `${index}[${shard}]` ? 40 : (i === 0 ? 1 : 0.35) * (0.85 + 0.3 * Math.abs(Math.sin(shard * 7 + i)));
      const docs_per_s = Math.round((mock.rate(base, second + shard) / 40) * weight * 10) / 10;
      const node = (shard * 5 + i) % nodes.length;
      const rejects = entry.rejecting === nodes[node] && docs_per_s > 0;
      return { index, shard, node, rejected_per_s: rejects ? Math.round(docs_per_s) / 4 : 0, latency_ms: docs_per_s ? (rejects ? 840 : 12 + shard / 4) : null, docs: Math.round(weight * 1e6) + shard, docs_per_s, bytes_per_s: Math.round(docs_per_s * 310) };
    }),
  );
  if (entry.quietHeat) shards.length = 0;
  shards.sort((a, b) => b.docs_per_s - a.docs_per_s || b.docs - a.docs);
  return { at_ms: Date.now(), window_s: 10, nodes, shards: gateways.length ? shards : [], left_out: 0, others_per_s: entry.others ?? 0, gateways: gateways.length, problems: entry.heatProblems ?? [] };
}
