// What the browser tests share: a server (the mock, or the real one at CONSOLE_URL), a browser, and checks of
// what must always hold.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { NAME, PASSWORD, start } from "../mock/server.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const SHOTS = process.env.CONSOLE_SHOTS ?? new URL("../../node_modules/.cache/shots", import.meta.url).pathname;
mkdirSync(SHOTS, { recursive: true });

const executable = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((path) => existsSync(path));

let browser;
export async function openBrowser() {
  browser ??= await chromium.launch({ executablePath: executable, args: ["--no-sandbox", "--disable-background-networking", "--disable-gpu"] });
  return browser;
}
const servers = [];
export async function closeAll() {
  await browser?.close();
  browser = undefined;
  servers.splice(0).forEach(({ close }) => close());
}

/** A new server of the mock. */
export async function server(entered = true) {
  const made = await start(0, entered);
  servers.push(made);
  return made;
}

/** Counts the page's requests that are under way; `settled` waits until there are none. */
function countRequests() {
  const { fetch } = globalThis;
  globalThis.underWay = 0;
  globalThis.fetch = async (...given) => {
    globalThis.underWay++;
    try {
      return await fetch(...given);
    } finally {
      // Whoever asked reads the answer first, and draws what is in it.
      setTimeout(() => globalThis.underWay--, 20);
    }
  };
}

/** A page that records what goes wrong: errors, refusals by the policy, requests to other origins. */
export async function page(url, options = {}) {
  const context = await (await openBrowser()).newContext({ viewport: { width: 1360, height: 860 }, reducedMotion: "reduce", ...options });
  await context.addInitScript(countRequests);
  const made = await context.newPage();
  made.setDefaultTimeout(60_000);
  const wrongs = [];
  // A test of logins at another server adds that one.
  const origins = [new URL(url).origin];
  made.on("pageerror", (error) => wrongs.push(`error: ${error.message}`));
  made.on("console", (message) => {
    // The page itself reports a refused answer; the browser's own line about it is not an error.
    if (message.type() === "error" && !/Failed to load resource/.test(message.text())) wrongs.push(`console: ${message.text()}`);
  });
  made.on("request", (request) => {
    const to = new URL(request.url());
    if (!["data:", "blob:"].includes(to.protocol) && !origins.includes(to.origin)) wrongs.push(`foreign request: ${request.url()}`);
  });
  Object.assign(made, { wrongs, origins });
  return made;
}

export async function finish(made) {
  assert.deepEqual(made.wrongs, [], "the page did something wrong");
  await made.context().close();
}

export async function logIn(made, url) {
  await made.goto(url);
  await made.getByLabel("Name").fill(process.env.CONSOLE_USER ?? NAME);
  await made.getByLabel("Password").fill(process.env.CONSOLE_PASSWORD ?? PASSWORD);
  await made.getByRole("button", { name: "Log in" }).click();
  await made.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
}

/** Goes to a deep link within the running page, and waits until the page has drawn it and sent its first requests. */
export async function to(made, hash) {
  await made.evaluate(async (h) => {
    location.hash = h;
    // A tab that is not in front has no frames.
    const frame = () => new Promise((done) => (requestAnimationFrame(done), setTimeout(done, 100)));
    const turn = () => new Promise((done) => setTimeout(done));
    // What an effect of the page does, it does after a frame.
    for (let n = 0; n < 2; n++) {
      await frame();
      await turn();
    }
  }, hash);
}

/**
 * Replaces the editor's text. The old text is deleted first: Chromium keeps the look of a replaced text with a style
 * attribute of its own, which the policy refuses, and the page would be blamed.
 */
export async function write(made, text) {
  await made.locator(".editor").first().locator(".cm-content").click();
  await made.keyboard.press("Control+a");
  await made.keyboard.press("Delete");
  await made.keyboard.insertText(text);
}

/** Pastes a text into an editor at once, however long it is. */
export const paste = (content, text) =>
  content.evaluate((element, pasted) => {
    const clipboardData = new DataTransfer();
    clipboardData.setData("text/plain", pasted);
    element.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
  }, text);

/** Texts of 10 MB for the dev tools: lines of a bulk, and one document as JSON is laid out. */
export const LONG_TEXTS = {
  bulk() {
    const lines = `{"index":{"_index":"logs"}}\n{"n":1,"message":"${"x".repeat(60)}"}\n`;
    return `POST /_bulk\n${lines.repeat(Math.ceil(10e6 / lines.length))}`;
  },
  document() {
    const one = `      {\n        "n": 1,\n        "tags": [\n          "${"x".repeat(60)}"\n        ]\n      },\n`;
    return `PUT /logs/_doc/1\n{\n  "a": {\n    "list": [\n${one.repeat(Math.ceil(10e6 / one.length))}      {}\n    ]\n  }\n}\n`;
  },
};

/** Returns a function that tells for how many ms the page's thread was busy until now. It is the thread's own time, so a busy machine does not count. */
export async function busyTime(made) {
  const cdp = await made.context().newCDPSession(made);
  await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
  return async () => 1000 * (await cdp.send("Performance.getMetrics")).metrics.find((one) => one.name === "TaskDuration").value;
}

export async function violations(made) {
  // A policy without eval refuses an injected script element, but not an evaluated one. It stays until the
  // page is loaded anew.
  if (!(await made.evaluate(() => "axe" in globalThis))) await made.evaluate(AXE);
  const found = await made.evaluate(() => globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], resultTypes: ["violations"] }));
  return found.violations.map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.target} ${n.failureSummary?.split("\n")[1] ?? ""}`).join(" | ")}`);
}

export const shot = (made, name, options = {}) => made.screenshot({ path: join(SHOTS, `${name}.png`), ...options });

/** Checks that nothing is wider than the window. */
export async function assertFits(made, where) {
  const wide = await made.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(wide <= 0, `${where}: ${wide} px too wide`);
}

export const PAGES = {
  overview: "#/",
  cluster: "#/c/production",
  heat: "#/c/production/heat",
  "heat-none": "#/c/branch-office/heat",
  indices: "#/c/staging/indices",
  index: "#/c/staging/indices/logs-2026.11.23",
  templates: "#/c/staging/templates",
  template: "#/c/staging/templates/index/logs",
  "template-new": "#/c/staging/templates/new",
  "who-sets": "#/c/staging/templates/who?index=logs-2026.11.23",
  dev: "#/dev?cluster=staging",
  registry: "#/registry",
  "cluster-form": "#/registry/cluster/production",
  "gateway-form": "#/registry/gateway/new",
  import: "#/registry/import",
  alerts: "#/alerts",
  webhook: "#/alerts/webhook",
  audit: "#/audit",
  "audit-older": "#/audit?user=dan&q=4711&before=400",
  users: "#/users",
  user: "#/users/u/cleo",
  "user-new": "#/users/new",
  gateway: "#/g/gateway-1",
  "gateway-trouble": "#/g/gateway-2?minutes=5",
  config: "#/g/gateway-1/config",
  queue: "#/g/gateway-1/q/logs",
  letters: "#/g/gateway-1/q/logs/letters",
  records: "#/g/gateway-1/q/logs/records",
  trace: "#/trace?g=gateway-1&index=logs&id=a%2Fb%3F",
  "trace-nothing": "#/trace?g=gateway-1",
};

/** Asks again and again until the condition holds; a busy machine gets enough time. */
export async function until(what, holds) {
  for (const ends = Date.now() + 60_000; !(await holds()); ) {
    assert.ok(Date.now() < ends, `not so: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

/**
 * How long something takes that should be quick, in ms: the shortest of a few tries, since a busy machine may be late once.
 * It stops trying once a try is below `most`.
 */
export async function quickest(most, once) {
  let least = Infinity;
  for (let tries = 0; tries < 5 && least >= most; tries++) {
    const began = Date.now();
    const again = await once();
    least = Math.min(least, Date.now() - began);
    if (least >= most) await again?.();
  }
  return least;
}

/**
 * Waits until a page is complete for some frames: no grey lines are left, and the charts are drawn. In one of these frames,
 * nothing was asked for; pages that ask every second do so again in others.
 */
export const settled = (made) =>
  made.waitForFunction(
    (seen) => {
      const drawn = (all, holds) => [...document.querySelectorAll(all)].every(holds);
      const complete = !document.querySelector(".skeleton") && document.querySelector("main h1") && drawn(".plot", (p) => p.querySelector("canvas")) && drawn(".heat-map canvas", (c) => c.width > 0);
      if (globalThis.settling?.seen !== seen) globalThis.settling = { seen, frames: 0, quiet: false };
      const now = globalThis.settling;
      now.frames = complete ? now.frames + 1 : 0;
      now.quiet = complete && (now.quiet || !globalThis.underWay);
      return now.frames > 3 && now.quiet;
    },
    ++settlings,
    { timeout: 60_000, polling: "raf" },
  );
let settlings = 0;

/**
 * Checks that every number on a page is one that the API returns for the same thing: a row of the overview, the cluster's
 * last seconds, or a node. The page is up to a few seconds old, and may have few numbers at first: it is read, and the API
 * is asked, until all numbers are known and there are at least `least`, for up to `ms`. It returns those that are not known,
 * and how many numbers were compared.
 */
export function numbersDiffer(made, least, ms = 4000) {
  return made.evaluate(async ([enough, span]) => {
    const known = new Map();
    const keep = (key, value) => {
      if (Array.isArray(value)) value.forEach((one) => keep(key, one));
      else if (value && typeof value === "object") Object.values(value).forEach((one) => keep(key, one));
      else if (typeof value === "number") (known.get(key) ?? known.set(key, new Set()).get(key)).add(value);
    };
    const json = async (path) => (await fetch(path)).json();
    const id = /^#\/c\/([^/?]+)$/.exec(location.hash.split("?")[0])?.[1];
    const gateway = /^#\/g\/([^/?]+)/.exec(location.hash)?.[1];
    const ask = async () => {
      for (const { kind, name, ...row } of (await json("api/overview")).rows) {
        keep(`${kind} ${name}`, row);
        if (row.id === decodeURIComponent(id ?? gateway ?? "")) keep("lead", row);
      }
      if (gateway) {
        keep("trial", await json(`api/gateways/${gateway}/trial`));
        const { now, series } = await json(`api/gateways/${gateway}/traffic?minutes=15`);
        keep("traffic", now);
        // The charts' legends show the newest value.
        for (const list of Object.values(series)) keep("traffic", list.slice(-12));
        for (const [name, { groups, ...queue }] of Object.entries((await json(`api/gateways/${gateway}/queues`)).queues)) {
          keep(`queue ${name}`, queue);
          for (const [group, { lanes, ...told }] of Object.entries(groups)) {
            keep(`group ${name} ${group}`, told);
            keep(`lanes ${name} ${group}`, (lanes ?? []).map((lane) => ({ ...lane, pending: lane.accepted - lane.done })));
          }
        }
      }
      if (!id) return;
      for (const list of Object.values((await json(`api/clusters/${id}/series?minutes=15`)).series)) keep("tiles", list.slice(-12));
      for (const node of (await json(`api/clusters/${id}/nodes`)).nodes) {
        keep(`node ${node.name}`, { ...node, disk: (100 * node.disk_used_bytes) / node.disk_total_bytes });
      }
    };
    // Everything is read at once, in one turn of the page.
    const read = () => [...document.querySelectorAll("main data.num")].map((data) => {
      const kind = data.closest("table.cluster") ? "cluster" : data.closest("table.gateway") ? "gateway" : data.closest("table.nodes") ? "node" : null;
      const name = kind && data.closest("tr").querySelector("th .name").textContent;
      const given = data.closest("[data-numbers]")?.dataset.numbers;
      return { key: given ?? (kind ? `${kind} ${name}` : data.closest(".lead") ? "lead" : "tiles"), value: Number(data.value), text: data.textContent };
    });
    for (const until = performance.now() + span; ; ) {
      const shown = read();
      await ask();
      const wrong = shown.filter(({ key, value }) => !known.get(key)?.has(value)).map(({ key, value, text }) => `${key} shows ${text} (${value}), the API said ${[...(known.get(key) ?? [])].slice(-30)}`);
      if ((!wrong.length && shown.length >= enough) || performance.now() >= until) return { wrong, compared: shown.length };
      await new Promise((done) => setTimeout(done, 200));
    }
  }, [least, ms]);
}
