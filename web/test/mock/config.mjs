// A gateway's configuration as the real admin port tells and takes it, with problems by simple rules.
const NAMES = { prod: "production" };

const text = (name) => `# ${name}
path.data: /var/lib/tidegate
admin:
  binding: 10.0.1.10:2900
  token: "********"
entry:
  - name: bulk
    router: ingest
    network: {binding: "0.0.0.0:8000"}
    max_concurrency: 10000
router:
  - name: ingest
    default_flow: split
    rules:
      - {method: [POST, PUT], pattern: ["/logs-*/_bulk"], flow: [queued]}
flow:
  - name: split
    filter:
      - bulk_reshuffle: {elasticsearch: ${NAMES.prod}, mode: sync, level: node}
      - elasticsearch: {elasticsearch: ${NAMES.prod}}
  - name: queued
    filter:
      - bulk_reshuffle: {elasticsearch: ${NAMES.prod}, mode: async, queue: logs}
      - elasticsearch: {elasticsearch: ${NAMES.prod}}
elasticsearch:
  - name: ${NAMES.prod}
    endpoints: [https://es-1.prod:9200, https://es-2.prod:9200]
    basic_auth: {username: tidegate, password: "********"}
`;

function stateOf(entry) {
  entry.config ??= { text: text(entry.name), former: null, version: 1, applied: null, notReady: [] };
  const state = entry.config;
  if (state.applied?.state === "unconfirmed") {
    const left = (state.ends - Date.now()) / 1000;
    state.applied = { ...state.applied, left_s: Math.max(0, left), not_ready: state.notReady };
    if (left <= 0) back(state, `nobody confirmed it within ${state.applied.within_s} s`);
  }
  return state;
}

function end(state, how, why = null) {
  state.applied = { ...state.applied, state: how, why, left_s: null };
}

function back(state, why) {
  [state.text, state.version] = [state.former, state.version + 1];
  end(state, "reverted", why);
}

function problemsOf(body, hostile) {
  return body.split("\n").flatMap((line, n) => {
    const at = (word) => line.indexOf(word) + 1;
    if (line.includes("ruoter")) return [{ severity: "error", file: "f", line: n + 1, column: at("ruoter"), path: "entry[0].ruoter", message: hostile ?? "unknown key", help: "did you mean `router`?" }];
    if (line.includes("insecure_skip_verify: true")) return [{ severity: "warning", file: "f", line: n + 1, column: at("insecure"), path: "elasticsearch[0].tls.insecure_skip_verify", message: "any certificate is accepted", help: null }];
    return [];
  });
}

export function configOf(mock, entry, path, body) {
  const [at, query] = path.split("?");
  const state = stateOf(entry);
  const refused = (reason, status = 409) => [{ error: { type: "conflict", reason }, status }, status];
  const problems = problemsOf(body ?? "", entry.queueNames?.[0]);
  const valid = !problems.some((one) => one.severity === "error");
  const verdict = { valid, errors: problems.filter((one) => one.severity === "error").length, warnings: problems.filter((one) => one.severity === "warning").length, problems };
  switch (at.replace("/config/", "")) {
    case "_file":
      return [{ file: entry.queueNames?.[1] ?? "/etc/tidegate/tidegate.yml", version: `v${state.version}`, in_force: !entry.fileDiffers, text: state.text, read_only: entry.fileReadOnly ?? null, has_former: state.former !== null, applied: state.applied }];
    case "_applied":
      return [state.applied];
    case "_check":
      return [verdict];
    case "_diff": {
      const restart = /^worker\.count/m.test(body) ? ["worker.count"] : [];
      return [valid ? { ...verdict, changes: { entries: { bulk: "changed" }, restart }, words: body === state.text ? "nothing changed" : "entries: bulk changed" } : verdict];
    }
    case "_apply":
      if (new URLSearchParams(query).get("version") !== `v${state.version}`) return refused("the configuration in force is another version than the one that this text is a change of: somebody has changed it meanwhile");
      [state.former, state.text, state.version] = [state.text, body, state.version + 1];
      state.ends = Date.now() + (entry.configWithin ?? 30) * 1000;
      state.applied = { actor: mock.user.name, state: "unconfirmed", changes: "entries: bulk changed", why: null, at_ms: Date.now(), within_s: entry.configWithin ?? 30, patience_s: 10, was_ready: true, not_ready: state.notReady, left_s: entry.configWithin ?? 30 };
      return [state.applied];
    case "_confirm":
      if (state.notReady.length) return refused(`the gateway is not ready with it: ${state.notReady.join("; ")}`);
      end(state, "confirmed");
      return [state.applied];
    case "_revert":
      back(state, `${mock.user.name} took it back`);
      return [state.applied];
  }
  return refused("no such endpoint", 404);
}
