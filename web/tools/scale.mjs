// The console before many clusters and gateways: what its pages, its process and its folder need there, each
// beside its bar.
//
//   node tools/scale.mjs PROGRAM [--clusters 100] [--nodes 10] [--indices 100] [--shards 10]
//                                [--gateways 50] [--live 60] [--minutes 0]
//
// The clusters are `tidegate sink`'s, which report documents that nobody sends; the gateways are real, each
// with a queue for two of the clusters. With `--minutes`, the pages are walked through each minute in place
// of all this, and the page's heap is measured.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { once } from "node:events";
import { parseArgs } from "node:util";
import { closeAll, page, to } from "../test/browser/kit.mjs";
import { feel } from "./feel.mjs";

const number = (name, least) => [name, { type: "string", default: String(least) }];
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: Object.fromEntries([number("clusters", 100), number("nodes", 10), number("indices", 100), number("shards", 10), number("gateways", 50), number("live", 60), number("minutes", 0)]),
});
const [program] = positionals;
const many = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, Number(value)]));
const home = mkdtempSync(join(tmpdir(), "tidegate-scale-"));
const children = [];
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const rows = [];
/** A line of the table; `most` is the bar. */
function bar(what, value, most, unit, remark = "") {
  rows.push([what, `${value.toFixed(value < 10 ? 2 : 0)} ${unit}`, `<= ${most} ${unit}`, value <= most ? "ok" : "MISSED", remark]);
}

function start(args, env = {}) {
  const child = spawn(program, args, { cwd: home, env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
  children.push(child);
  child.said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (child.said = (child.said + data).slice(-64_000)));
  return child;
}
async function says(child, pattern) {
  for (const ends = Date.now() + 120_000; ; await wait(50)) {
    const found = pattern.exec(child.said);
    if (found) return found;
    if (child.exitCode !== null || Date.now() > ends) throw new Error(`it did not say ${pattern}: ${child.said}`);
  }
}

async function world() {
  // A cluster prints a line: the addresses of its nodes.
  const sink = start(["sink", "--port", "0", "--clusters", String(many.clusters), "--nodes", String(many.nodes), "--indices", `${many.indices}:${many.shards}`, "--claim", "5000"]);
  const [lines] = await says(sink, new RegExp(`^(?:http:.*\n){${many.clusters}}`));
  const clusters = lines.trim().split("\n").map((line, at) => ({ name: `cluster-${String(at).padStart(3, "0")}`, endpoints: line.split(" ").slice(0, 3) }));
  const gateways = [];
  for (let at = 0; at < many.gateways; at++) {
    const own = [0, 1].map((n) => clusters[(2 * at + n) % clusters.length]);
    const folder = join(home, `gateway-${at}`);
    mkdirSync(folder);
    const file = join(folder, "tidegate.yml");
    writeFileSync(
      file,
      JSON.stringify({
        "path.data": folder,
        "worker.count": 1,
        admin: { binding: "127.0.0.1:0" },
        entry: [{ name: "e", router: "r", network: { binding: "127.0.0.1:0" } }],
        router: [{ name: "r", default_flow: "f" }],
        flow: [{ name: "f", filter: [{ bulk_reshuffle: { elasticsearch: own[0].name, mode: "async", queue: { name: "logs", min_free: "1mb" } } }] }],
        pipeline: own.map((one, n) => ({ name: `p${n}`, processor: [{ bulk_indexing: { elasticsearch: one.name } }] })),
        elasticsearch: own.map((one) => ({ name: one.name, endpoint: one.endpoints[0] })),
      }),
    );
    gateways.push({ name: `gateway-${String(at).padStart(3, "0")}`, child: start(["gateway", "--config", file]) });
  }
  for (const gateway of gateways) {
    await says(gateway.child, /the cluster is being watched[^]*the cluster is being watched/);
    [, gateway.entry] = /"listening".*?"address":"([^"]+)"/.exec(gateway.child.said);
    gateway.url = `http://${/"admin API listening".*?"address":"([^"]+)"/.exec(gateway.child.said)[1]}`;
  }
  return { clusters, gateways };
}

async function console_({ clusters, gateways }) {
  const file = join(home, "registry.yml");
  writeFileSync(file, JSON.stringify({ clusters, gateways: gateways.map(({ name, url }) => ({ name, url })) }));
  const child = start(["console", "--listen", "127.0.0.1:0", "--data", join(home, "console"), "--register", file]);
  const [, secret] = await says(child, /#setup=(\S+)\s/);
  const [, url] = /console: (\S+)/.exec(child.said);
  const body = JSON.stringify({ link: secret, name: "ann", password: "correct horse battery" });
  const answer = await fetch(`${url}api/setup`, { method: "POST", headers: { "content-type": "application/json", "sec-fetch-site": "same-origin" }, body });
  const cookie = answer.headers.get("set-cookie").split(";")[0];
  const get = async (path) => (await fetch(`${url}api/${path}`, { headers: { cookie } })).json();
  return { child, url, get, cookie };
}

const cpu = (pid) => readdirSync(`/proc/${pid}/task`).reduce((sum, task) => sum + Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, "utf8").split(" ")[0]), 0);
const resident = (pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]) / 1024;
const size = (folder) => readdirSync(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0) / 2 ** 20;
const percentile = (list, share) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * share))];
/** The share of a core that a process takes while something goes on. */
async function share(pid, going) {
  const [before, began] = [cpu(pid), performance.now()];
  await going();
  return (cpu(pid) - before) / 1e6 / (performance.now() - began);
}

/** Opens a page and waits for its content, in one go within the browser; tells the milliseconds and the elements. */
const opened = (made, hash, content) =>
  made.evaluate(
    ([hash, content]) =>
      new Promise((done, failed) => {
        const [began, before] = [performance.now(), document.querySelector("main h1")?.textContent];
        location.hash = hash;
        const look = () => {
          const main = document.querySelector("main");
          if (main?.querySelector("h1")?.textContent !== before && main?.querySelector(content) && !main.querySelector(".skeleton")) return done({ ms: performance.now() - began, elements: document.querySelectorAll("*").length });
          if (performance.now() - began > 60_000) return failed(new Error(`${hash} has no ${content}`));
          requestAnimationFrame(look);
        };
        requestAnimationFrame(look);
      }),
    [hash, content],
  );

/** Each page, and what counts as its content. */
function pages(cluster, gateway) {
  return {
    // Its rows come a few at a time.
    overview: ["#/", `table.gateway tbody tr:nth-child(${many.gateways})`],
    cluster: [`#/c/${cluster}`, "table.nodes tbody tr"],
    heat: [`#/c/${cluster}/heat`, "h1"],
    templates: [`#/c/${cluster}/templates`, "h1"],
    "dev tools": [`#/dev?cluster=${cluster}`, ".editor"],
    gateway: [`#/g/${gateway}`, "table"],
    queue: [`#/g/${gateway}/q/logs`, ".views"],
    letters: [`#/g/${gateway}/q/logs/letters`, ".letters"],
    records: [`#/g/${gateway}/q/logs/records`, ".views"],
    configuration: [`#/g/${gateway}/config`, ".editor"],
    trace: ["#/trace", "form"],
    registry: ["#/registry", "table tbody tr"],
    alerts: ["#/alerts", "h1"],
    audit: ["#/audit", "table tbody tr"],
    users: ["#/users", "table tbody tr"],
  };
}

const longTasks = (made) => made.evaluate(() => globalThis.longTasks.splice(0));
const heapOf = async (cdp) => {
  await cdp.send("HeapProfiler.collectGarbage");
  return (await cdp.send("Runtime.getHeapUsage")).usedSize / 2 ** 20;
};

/** From a bulk at a gateway to its row in the overview, in ms: one after the other, each time another gateway that was idle. */
async function eventToPixel(made, gateways) {
  const took = [];
  for (const { name, entry } of gateways) {
    await to(made, `#/?q=${name}`);
    const cell = made.locator("table.gateway tbody tr td.big data.num");
    await cell.waitFor();
    await wait(Math.random() * 1000);
    const seen = made.evaluate(
      () =>
        new Promise((done) => {
          const look = () => (Number(document.querySelector("table.gateway td.big data.num")?.value) > 0 ? requestAnimationFrame(() => done(Date.now())) : requestAnimationFrame(look));
          look();
        }),
    );
    const body = '{"index":{"_index":"index-0"}}\n{"n":1}\n'.repeat(100);
    const sent = Date.now();
    const answer = await fetch(`http://${entry}/_bulk`, { method: "POST", headers: { "content-type": "application/x-ndjson" }, body });
    if (answer.status !== 200) throw new Error(await answer.text());
    took.push((await seen) - sent);
  }
  return took;
}

async function soak(made, cdp, shown, child) {
  const heaps = [];
  await wait(60_000);
  const begun = Date.now();
  for (let minute = 0; minute <= many.minutes; minute++) {
    const { users, ...others } = shown;
    await opened(made, ...users);
    for (const other of Object.values(others)) {
      await opened(made, ...other);
      await opened(made, ...users);
    }
    await opened(made, ...shown.overview);
    heaps.push(await heapOf(cdp));
    console.log(`soak, minute ${minute}: heap ${heaps.at(-1).toFixed(1)} MB, console ${resident(child.pid).toFixed(0)} MB`);
    if (minute < many.minutes) await wait(Math.max(0, begun + 60_000 * (minute + 1) - Date.now()));
  }
  bar(`heap of the page after ${many.minutes} minutes`, heaps.at(-1) - heaps[0], 5, "MB more", `from ${heaps[0].toFixed(1)} MB, at most ${Math.max(...heaps).toFixed(1)} MB`);
}

async function measure() {
  const began = Date.now();
  const around = await world();
  const { child, url, get, cookie } = await console_(around);
  const seenAll = async () => (await get("overview")).rows.filter((row) => row.seen_ms_ago !== null).length;
  while ((await seenAll()) < many.clusters + many.gateways) await wait(500);
  console.log(`${many.clusters} clusters, ${many.clusters * many.nodes} nodes, ${many.clusters * many.indices} indices, ${many.clusters * many.indices * many.shards} shards, ${many.gateways} gateways: all seen ${((Date.now() - began) / 1000).toFixed(0)} s after the start`);
  const { rows: all } = await get("overview");
  const idOf = (name) => all.find((row) => row.name === name).id;
  const shown = pages(idOf(around.clusters[0].name), idOf(around.gateways[0].name));
  const made = await page(url);
  const [name, value] = cookie.split("=");
  await made.context().addCookies([{ name, value, url }]);
  await made.addInitScript(() => {
    globalThis.longTasks = [];
    new PerformanceObserver((list) => globalThis.longTasks.push(...list.getEntries().map((one) => one.duration))).observe({ type: "longtask" });
  });
  const cdp = await made.context().newCDPSession(made);
  const cold = Date.now();
  await made.goto(url);
  await made.locator("table.gateway tbody tr").first().waitFor();
  const coldMs = Date.now() - cold;
  if (many.minutes) await soak(made, cdp, shown, child);
  else {
    await look(made, cdp, shown, child, coldMs, around.gateways);
    await feel(bar, made, url, { name, value, url }, idOf(around.clusters[0].name));
  }
  await closeAll();
  await wait(35_000);
  bar("CPU of the console, no page open", await share(child.pid, () => wait(30_000)), 0.25, "cores");
  bar("memory of the console", resident(child.pid), 300, "MB");
  const series = many.clusters * CLUSTER_SERIES + many.gateways * GATEWAY_SERIES;
  bar("disk of the console", size(join(home, "console")), 500, "MB", `${series} series, which are in memory`);
}

/** Rates, latency, rejections, heap and disk; rates of a gateway, and for its two groups what is delivered, lag and pending. */
const CLUSTER_SERIES = 5;
const GATEWAY_SERIES = 5 + 2 * 3;

async function look(made, cdp, shown, child, coldMs, gateways) {
  let elements = ["", 0];
  const times = [];
  await opened(made, ...shown.alerts);
  for (const [which, [hash, content]] of Object.entries(shown)) {
    const tries = [];
    for (let n = 0; n < 3; n++) {
      await opened(made, ...(which === "users" ? shown.trace : shown.users));
      const one = await opened(made, hash, content);
      tries.push(one.ms);
      await wait(1200);
      const now = await made.evaluate(() => document.querySelectorAll("*").length);
      if (now > elements[1]) elements = [which, now];
    }
    times.push([which, percentile(tries, 0.5), Math.max(...tries)]);
  }
  times.sort((a, b) => b[1] - a[1]);
  bar("first page, loaded cold", coldMs, 1000, "ms");
  bar("each page to its content, median of 3", times[0][1], 1000, "ms", times.slice(0, 3).map(([which, ms]) => `${which} ${ms.toFixed(0)} ms`).join(", "));
  bar("each page to its content, slowest of 3", Math.max(...times.map((one) => one[2])), 1000, "ms");
  bar("elements of a page", elements[1], 5000, "", elements[0]);
  for (const which of ["overview", "cluster", "gateway", "queue"]) {
    await opened(made, ...shown[which]);
    await wait(2000);
    await longTasks(made);
    const metric = async () => Object.fromEntries((await cdp.send("Performance.getMetrics")).metrics.map((one) => [one.name, one.value]));
    await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
    const before = await metric();
    const core = await share(child.pid, () => wait(many.live * 1000));
    const after = await metric();
    const tasks = await longTasks(made);
    bar(`${which}, ${many.live} s live, longest task`, Math.max(0, ...tasks), 50, "ms", `${tasks.length} above 50 ms; ${((1000 * (after.TaskDuration - before.TaskDuration)) / many.live).toFixed(0)} ms of CPU a second`);
    bar(`CPU of the console, ${which} open`, core, 0.25, "cores");
  }
  const took = await eventToPixel(made, gateways);
  bar("bulk at a gateway to the overview, p95", percentile(took, 0.95), 1500, "ms", `median ${percentile(took, 0.5)} ms of ${took.length}`);
}

try {
  const load = loadavg()[0];
  await measure();
  const widths = [0, 1, 2, 3].map((column) => Math.max(...rows.map((row) => row[column].length)));
  rows.forEach((row) => console.log(row.map((text, column) => text.padEnd(widths[column] ?? 0)).join("  ").trimEnd()));
  console.log(`load average of the machine: ${load.toFixed(1)} at the start, ${loadavg()[0].toFixed(1)} at the end`);
  process.exitCode = rows.some((row) => row[3] === "MISSED") ? 1 : 0;
} finally {
  await closeAll();
  children.forEach((child) => child.exitCode === null && child.kill("SIGKILL"));
  await Promise.all(children.map((child) => child.exitCode ?? child.signalCode ?? once(child, "exit")));
  rmSync(home, { recursive: true, force: true });
}
