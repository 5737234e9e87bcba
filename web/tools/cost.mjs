// What a console costs those that it watches, in CPU time of their own processes, by turns with it and
// without it.
//
//   node tools/cost.mjs gateway PROGRAM [TURNS] [ROUNDS]
//   node tools/cost.mjs changes PROGRAM [TURNS] [S]
//   node tools/cost.mjs cluster PROGRAM URL PIDS [TURNS] [S]
//
// `gateway` measures a gateway under load, before a fake cluster, per document; `changes` one whose changes
// somebody follows; `cluster` a real cluster that does nothing else, of a core, a node.
//
// Without it: the console is stopped where it stands (SIGSTOP), so nothing else differs. Turns go without,
// with, with, without.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { once } from "node:events";

const [, , what, program, ...rest] = process.argv;
const home = mkdtempSync(join(tmpdir(), "tidegate-cost-"));
const children = [];
const start = (args, env = {}) => {
  // The console may be another build: what it costs others does not depend on how it was compiled.
  const child = spawn(args[0] === "console" ? (process.env.CONSOLE_PROGRAM ?? program) : program, args, { cwd: home, env: { ...process.env, ...env }, stdio: ["ignore", "pipe", args[0] === "loadgen" ? "ignore" : "inherit"] });
  children.push(child);
  return child;
};
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const port = () => new Promise((done) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const { port: free } = server.address();
    server.close(() => done(free));
  });
});
/** Nanoseconds on a processor: all threads, or those of a name. */
function cpu(pid, name) {
  const at = (task, file) => readFileSync(`/proc/${pid}/task/${task}/${file}`, "utf8");
  const tasks = readdirSync(`/proc/${pid}/task`).filter((task) => !name || at(task, "comm").trim() === name);
  return tasks.reduce((sum, task) => sum + Number(at(task, "schedstat").split(" ")[0]), 0);
}

async function console_(registry) {
  const file = join(home, "registry.yml");
  writeFileSync(file, JSON.stringify(registry));
  const child = start(["console", "--listen", `127.0.0.1:${await port()}`, "--data", join(home, "console"), "--register", file]);
  let said = "";
  for (child.stdout.on("data", (data) => (said += data)); !/#setup=\S+\s/.test(said); ) await once(child.stdout, "data");
  const url = /^console: (\S+)/.exec(said)[1];
  const headers = { "content-type": "application/json", "sec-fetch-site": "same-origin" };
  const body = JSON.stringify({ link: /#setup=(\S+)/.exec(said)[1], name: "ann", password: "correct horse battery" });
  const cookie = (await fetch(`${url}api/setup`, { method: "POST", headers, body })).headers.get("set-cookie").split(";")[0];
  // A page that is open: while nobody looks, the console asks less often.
  const seen = new AbortController();
  fetch(`${url}api/live`, { headers: { cookie }, signal: seen.signal }).then(async (answer) => {
    for await (const _ of answer.body);
  }).catch(() => {});
  const get = (path) => fetch(`${url}api/${path}`, { headers: { cookie }, signal: AbortSignal.timeout(1000) }).then((answer) => answer.json());
  /** Opens the page of the only cluster, which asks as often as this; a stopped console does not answer. */
  child.open = async () => {
    const [{ id }] = (await get("registry")).clusters;
    child.asking = setInterval(() => ["series?minutes=15", "nodes"].forEach((what) => get(`clusters/${id}/${what}`).catch(() => {})), 2000);
  };
  /** Closes that page; the overview stays open. */
  child.close = async () => {
    clearInterval(child.asking);
    await wait(35_000);
  };
  child.shut = async () => {
    seen.abort();
    await wait(35_000);
  };
  await wait(3000);
  return child;
}

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const told = (list, digits) => `${median(list).toFixed(digits)} (${Math.min(...list).toFixed(digits)}..${Math.max(...list).toFixed(digits)})`;

async function byTurns(watcher, turns, one) {
  const all = { without: [], with: [] };
  for (let turn = 0; turn < turns; turn++) {
    for (const side of turn % 2 ? ["with", "without"] : ["without", "with"]) {
      watcher.kill(side === "with" ? "SIGCONT" : "SIGSTOP");
      await wait(1000);
      all[side].push(await one());
    }
  }
  watcher.kill("SIGCONT");
  return all;
}

/**
 * Whoever asks the admin port costs the thread that serves it, and it alone. So that thread's time under load, with the console
 * and without, tells what a console costs where the whole process's time drowns in what else the machine does.
 */
async function gateway(turns = 8, rounds = 1500) {
  const sink = start(["sink", "--port", "0", "--index", "loadgen:6"]);
  const [first] = String((await once(sink.stdout, "data"))[0]).split("\n");
  const [listen, admin] = [`127.0.0.1:${await port()}`, `127.0.0.1:${await port()}`];
  const child = start(["gateway", "--cluster", first, "--listen", listen, "--admin", admin, "--log-level", "warn"]);
  await wait(2000);
  const watcher = await console_({ clusters: [{ name: "c", endpoint: first }], gateways: [{ name: "g", url: `http://${admin}` }] });
  const load = new URL("../../examples/loadgen/bulk.yml", import.meta.url).pathname;
  const one = async () => {
    const [before, port, begun] = [cpu(child.pid), cpu(child.pid, "admin"), performance.now()];
    const run = start(["loadgen", "--plain", "--log", "error", "--config", load, "-c", "4", "--total-rounds", String(rounds)], { ES_ENDPOINT: `http://${listen}` });
    run.stdout.resume();
    await once(run, "exit");
    const seconds = (performance.now() - begun) / 1000;
    rate = (rounds * 1000) / seconds;
    ports.push((cpu(child.pid, "admin") - port) / 1e6 / seconds);
    return (cpu(child.pid) - before) / 1e9 / ((rounds * 1000) / 1e6);
  };
  let rate = 0;
  const ports = [];
  await one();
  ports.length = 0;
  const all = await byTurns(watcher, Number(turns), one);
  const pairs = all.with.map((value, i) => 100 * (value / all.without[i] - 1));
  console.log(`gateway, CPU s a million documents: without ${told(all.without, 3)}, with ${told(all.with, 3)}; more by ${told(pairs, 2)} %; ${Math.round(rate)} docs/s`);
  // By turns, as they were taken.
  const sides = { without: ports.filter((_, i) => i % 4 === 0 || i % 4 === 3), with: ports.filter((_, i) => i % 4 === 1 || i % 4 === 2) };
  const second = median(sides.with) - median(sides.without);
  console.log(`its admin thread, ms of a core a second: without ${told(sides.without, 3)}, with ${told(sides.with, 3)}; at ${median(all.without).toFixed(2)} s a million documents that is 1 % of what ${Math.round((100 * second * 1000) / median(all.without))} docs/s cost`);
  // Nothing but the console asks now: what it costs a second, whatever is written.
  const idle = await byTurns(watcher, 4, async () => {
    const before = cpu(child.pid);
    await wait(10_000);
    return (cpu(child.pid) - before) / 1e6 / 10;
  });
  console.log(`gateway without load, ms of a core a second: without ${told(idle.without, 2)}, with ${told(idle.with, 2)}`);
  await watcher.shut();
  const unseen = await byTurns(watcher, 3, async () => {
    const before = cpu(child.pid, "admin");
    await wait(10_000);
    return (cpu(child.pid, "admin") - before) / 1e6 / 10;
  });
  console.log(`its admin thread without load and without a page open: without ${told(unseen.without, 3)}, with ${told(unseen.with, 3)}`);
}

/** What a client that follows a gateway's changes costs its admin thread, before few shards and before many. */
async function changes(turns = 3, seconds = 20) {
  for (const [indices, shards] of [[1, 6], [1000, 10]]) {
    const named = Array.from({ length: indices }, (_, i) => ["--index", `i${i}:${shards}`]).flat();
    const sink = start(["sink", "--port", "0", ...named]);
    const [first] = String((await once(sink.stdout, "data"))[0]).split("\n");
    const [listen, admin] = [`127.0.0.1:${await port()}`, `127.0.0.1:${await port()}`];
    const child = start(["gateway", "--cluster", first, "--listen", listen, "--admin", admin, "--log-level", "warn"]);
    await wait(5000);
    const all = { without: [], with: [] };
    // Not by turns: for a minute after the last one has left, the gateway still looks for changes.
    for (const side of ["without", "with"]) {
      const left = new AbortController();
      if (side === "with") {
        const answer = await fetch(`http://${admin}/changes`, { headers: { accept: "text/event-stream" }, signal: left.signal });
        answer.text().catch(() => {});
      }
      for (let turn = 0; turn < Number(turns); turn++) {
        const [before, begun] = [cpu(child.pid, "admin"), performance.now()];
        await wait(seconds * 1000);
        all[side].push((cpu(child.pid, "admin") - before) / 1e3 / (performance.now() - begun));
      }
      left.abort();
    }
    console.log(`admin thread, ${indices * shards} shards, ms of a core a second: without ${told(all.without, 3)}, with a follower ${told(all.with, 3)}`);
    [child, sink].forEach((one) => one.kill("SIGKILL"));
  }
}

async function cluster(url, pids, turns = 5, seconds = 30) {
  const nodes = pids.split(",").map(Number);
  const watcher = await console_({ clusters: [{ name: "c", endpoint: url }] });
  await watcher.open();
  await clusterTurns(watcher, nodes, "its page open", turns, seconds);
  await watcher.close();
  await clusterTurns(watcher, nodes, "the overview open", turns, seconds);
  await watcher.shut();
  await clusterTurns(watcher, nodes, "no page open", turns, seconds);
}

async function clusterTurns(watcher, nodes, looked, turns, seconds) {
  const own = [];
  const all = await byTurns(watcher, Number(turns), async () => {
    const sum = () => nodes.reduce((all, pid) => all + cpu(pid), 0);
    const [before, ours] = [sum(), cpu(watcher.pid)];
    await wait(seconds * 1000);
    own.push((cpu(watcher.pid) - ours) / 1e7 / seconds);
    return (sum() - before) / 1e7 / seconds / nodes.length;
  });
  const pairs = all.with.map((value, i) => value - all.without[i]);
  console.log(`cluster, ${looked}, % of a core a node: without ${told(all.without, 2)}, with ${told(all.with, 2)}; more by ${told(pairs, 2)}; the console itself at most ${Math.max(...own).toFixed(2)} % of a core`);
}

try {
  await { gateway, changes, cluster }[what](...rest);
} finally {
  children.forEach((child) => child.exitCode === null && (child.kill("SIGCONT"), child.kill("SIGKILL")));
  rmSync(home, { recursive: true, force: true });
}
