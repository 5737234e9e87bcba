// A gateway's trials as the real server tells them: a run is over whenever a test says so
// (`entry.trial.step()`).
const averages = (counted, cpu) => ({ runs: 4, counted_s: 20_000 / counted, counted_per_s: counted, acknowledged_s: 20_000 / (1.1 * counted), acknowledged_per_s: 1.1 * counted, cpu_s: cpu });
const change = (percent, low, high, verdict) => ({ percent, interval: [low, high], rounds: 4, verdict });

export const figures = (flawed = 0) => ({
  cluster: "OpenSearch 3.3.2",
  runs: 8,
  flawed_runs: flawed,
  phases: [{ phase: "new", direct: averages(31_250, 1.24), gateway: averages(38_500, 1.06), counted: change(23.2, 14.8, 32.3, "more"), acknowledged: change(1.4, -3.1, 6.2, "within_noise"), cpu: change(-14.5, -18.2, -10.6, "less") }],
});

function stateOf(mock, entry) {
  const hostile = entry.queueNames;
  entry.trial ??= { running: null, done: 0, last: null, leftovers: [], why: null, step: null };
  const trial = entry.trial;
  trial.end = (state, told = null) => {
    trial.last = { ...trial.running, ended_ms: Date.now(), state, figures: told };
    trial.running = null;
  };
  trial.step = () => {
    trial.done++;
    if (trial.done === 2 * trial.running.load.rounds) trial.end("compared", figures());
  };
  if (hostile && !trial.last) {
    const load = { documents: 20_000, batch: 1000, rounds: 4, clients: 4, shards: 3, replicas: 0, ids: true };
    trial.last = { id: 1, gateway: entry.id, cluster: "none", user: hostile[0], indices: "tidegate-trial-1", load, began_ms: Date.now() - 60_000, ended_ms: Date.now(), state: "failed", figures: { ...figures(2), cluster: hostile[1] } };
    [trial.why, trial.leftovers] = [hostile[2], hostile.slice(0, 3)];
  }
  return trial;
}

export function trialOf(mock, entry, method, body, refuse) {
  const trial = stateOf(mock, entry);
  const linked = mock.clusters.filter((one) => entry.clusters.some((link) => link.cluster_id === one.id));
  const closed = linked.find((one) => one.read_only || one.protected);
  const names = [...new Set(entry.clusters.map((one) => one.name))];
  const fence = (one) => (one.read_only || one.protected ? [one.read_only ? "read_only" : "protected", `${one.name} is registered as ${one.read_only ? "read-only" : "protected"}`] : null);
  // The names of the clusters by the entries' names; by default, each entry delivers to all.
  const reach = entry.reach ?? { bulk: names, search: names };
  const ways = Object.entries(reach).filter(([, behind]) => behind.length === 1).map(([name, [only]]) => [name, linked.find((one) => one.name === only)]);
  const refused = !ways.length && names.length > 1 ? ["several_clusters", `the gateway delivers to several clusters (${names.join(", ")}), and no entry to one of them only that is registered here: the index could stay on another one; run \`tidegate compare\` where you know which`] : ways.length && ways.every(([, one]) => fence(one)) ? fence(closed) : null;
  if (method === "POST") {
    if (refused) refuse(403, ...refused);
    if (trial.running) refuse(409, "busy", "another trial is running: a console runs one at a time");
    Object.assign(trial, { running: { id: 7, gateway: entry.id, cluster: body.cluster, user: mock.user.name, indices: body.indices, load: body.load, began_ms: Date.now(), ended_ms: null, state: "running", figures: null }, done: 0, leftovers: [], why: null });
    mock.note("begin trial", entry.name, { after: { cluster: body.cluster, indices: body.indices, load: body.load } });
    return trial.running;
  }
  if (method === "DELETE") {
    const cancelled = !!trial.running;
    if (cancelled) trial.end("cancelled");
    return { cancelled };
  }
  const running = trial.running && { trial: trial.running, progress: { done: trial.done, runs: 2 * trial.running.load.rounds, said: trial.done ? `round ${Math.ceil(trial.done / 2)}, new     direct   acknowledged in 0.58 s, counted in 0.64 s (31250/s), 1.24 s of the nodes' CPU` : "warming up both ways", state: "running" } };
  return { can_run: true, is_busy: !!running, running, last: trial.last, why: trial.why, leftovers: trial.leftovers, refused, clusters: linked.filter((one) => ways.some(([, other]) => other === one)).map((one) => ({ id: one.id, name: one.name, refused: fence(one) })), entries: Object.fromEntries(ways.map(([name], n) => [name, `http://10.0.1.10:800${n}`])), reach: Object.fromEntries(ways.map(([name, one]) => [name, [one.id]])), indices: "tidegate-trial-3f09a2c418d7e6b5" };
}
