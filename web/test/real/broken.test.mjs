// The real console in a real browser before things that misbehave: clusters that never answer, answer half,
// refuse, or are overloaded; a gateway that goes away; and HAProxy in front, below a path of its own.
//
//   PROGRAM=target/debug/tidegate node --test --test-force-exit test/real/broken.test.mjs
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, request as ask } from "node:http";
import { createServer as plain } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, test } from "node:test";
import { closeAll, finish, logIn, page, settled, shot, to } from "../browser/kit.mjs";
import { NAME, PASSWORD } from "../mock/server.mjs";

assert.ok(process.env.PROGRAM, "PROGRAM is not given");
const program = resolve(process.env.PROGRAM);
const home = mkdtempSync(join(tmpdir(), "tidegate-broken-"));
const [children, listeners] = [[], []];
after(async () => {
  await closeAll();
  children.forEach((child) => child.kill("SIGKILL"));
  listeners.forEach((listener) => (listener.closeAllConnections(), listener.close()));
  rmSync(home, { recursive: true, force: true });
});

const run = (what, args) => {
  const child = spawn(what, args, { cwd: home, stdio: ["ignore", "pipe", "inherit"] });
  children.push(child);
  return child;
};
const firstLines = async (child, holds) => {
  let text = "";
  for (child.stdout.on("data", (data) => (text += data)); !holds.test(text); ) await once(child.stdout, "data");
  return text;
};
const freePort = () => new Promise((done) => {
  const taken = plain().listen(0, "127.0.0.1", () => {
    const { port } = taken.address();
    taken.close(() => done(port));
  });
});

/** A relay before one of the test's servers: it passes everything on, or misbehaves as told. */
async function ill(behind) {
  const told = { mode: "well" };
  const error = { error: { type: "x", reason: "so it says" } };
  const listener = createServer((from, out) => {
    if (told.mode === "silent") return;
    if (told.mode === "half") return void out.writeHead(200, { "content-type": "application/json" }).end('{"_all":{"primaries":{"indexing":{"index_to');
    if (typeof told.mode === "number") return void out.writeHead(told.mode, { "content-type": "application/json" }).end(JSON.stringify(error));
    const on = ask(new URL(from.url, behind), { method: from.method, headers: from.headers }, (answer) => answer.pipe(out.writeHead(answer.statusCode, answer.headers)));
    on.on("error", () => out.destroy());
    from.pipe(on);
  });
  listeners.push(listener.listen(0, "127.0.0.1"));
  await once(listener, "listening");
  told.url = `http://127.0.0.1:${listener.address().port}`;
  return told;
}

async function start(registry, ...more) {
  const file = join(home, "registry.yml");
  writeFileSync(file, JSON.stringify(registry));
  const child = run(program, ["console", "--listen", "127.0.0.1:0", "--data", mkdtempSync(join(home, "data-")), "--register", file, ...more]);
  const text = await firstLines(child, /#setup=\S+\s/);
  return { url: /^console: (\S+)/.exec(text)[1], link: /#setup=(\S+)/.exec(text)[1] };
}

async function enter(p, url, link) {
  await p.goto(`${url}#setup=${link}`);
  await p.getByLabel("Your name").fill(NAME);
  for (const label of ["Password", "Password again"]) await p.getByLabel(label, { exact: true }).fill(PASSWORD);
  await p.getByRole("button", { name: "Create the account" }).click();
  await p.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
}

const row = (p, name) => p.getByRole("row").filter({ has: p.getByRole("link", { name, exact: true }) });
const sink = async () => /http:\/\/\S+/.exec(await firstLines(run(program, ["sink", "--port", "0", "--index", "logs:2"]), /http:\/\/\S+\s/))[0];

test("what misbehaves is said in its row, with its age, and the pages stand", async () => {
  const behind = await sink();
  const kinds = { silent: "silent", half: "half", refused: 401, busy: 429 };
  const all = Object.fromEntries(await Promise.all(Object.keys(kinds).map(async (name) => [name, await ill(behind)])));
  const never = await ill(behind);
  never.mode = "silent";
  const clusters = [...Object.entries(all), ["never", never]].map(([name, { url }]) => ({ name, endpoint: url }));
  const { url, link } = await start({ clusters: [...clusters, { name: "well", endpoint: behind }], gateways: [{ name: "gone", url: `http://127.0.0.1:${await freePort()}` }] });
  const p = await page(url);
  await enter(p, url, link);
  for (const name of [...Object.keys(kinds), "well"]) await row(p, name).getByText("OK", { exact: true }).waitFor();
  await row(p, "never").getByText("never seen", { exact: false }).waitFor();
  await row(p, "gone").getByText(/connect|refused/i).first().waitFor();
  const rate = (name) => row(p, name).locator("td.big data");
  for (const name of Object.keys(kinds)) await rate(name).waitFor();
  for (const [name, mode] of Object.entries(kinds)) all[name].mode = mode;
  const words = { silent: /answer|time|deadline/i, half: /no JSON|JSON/, refused: /401.*so it says/, busy: /429.*so it says/ };
  for (const [name, said] of Object.entries(words)) {
    await row(p, name).locator(".why li").filter({ hasText: said }).first().waitFor({ timeout: 60_000 });
    // No old rate is shown; other old figures are shown with their age.
    await row(p, name).locator("td.big .none").waitFor();
    await row(p, name).locator(".age").waitFor({ timeout: 60_000 });
  }
  await shot(p, "broken-overview", { fullPage: true });
  assert.equal(await row(p, "well").locator(".why li").count(), 0, "who is well is not touched");
  assert.ok(await rate("well").isVisible());
  const registered = await p.evaluate(async () => (await (await fetch("api/registry")).json()).clusters);
  for (const { name, id } of registered) {
    for (const [part, h1] of [["", name], ["/templates", "Templates"]]) {
      await to(p, `#/c/${id}${part}`);
      await p.getByRole("heading", { level: 1, name: h1, exact: true }).waitFor();
      if (name === "well" || name === "never") continue;
      await p.locator(".panel-note li").filter({ hasText: words[name] }).first().waitFor({ timeout: 60_000 });
      if (!part) await p.locator(".lead .age").waitFor();
    }
  }
  await to(p, `#/c/${registered.find((c) => c.name === "half").id}`);
  await settled(p);
  await shot(p, "broken-cluster");
  // A cluster that has never answered has no numbers, and the page makes none up.
  await to(p, `#/c/${registered.find((c) => c.name === "never").id}`);
  await settled(p);
  assert.equal(await p.locator(".tiles data.num").count(), 0);
  // All of these problems pass by themselves.
  for (const one of [...Object.values(all), never]) one.mode = "well";
  await to(p, "#/");
  for (const name of [...Object.keys(kinds), "never"]) await row(p, name).getByText("OK", { exact: true }).waitFor({ timeout: 60_000 });
  assert.equal(await p.locator("table.cluster .why li").count(), 0);
  await finish(p);
});

test("below a path of its own behind HAProxy all of it works, and nothing is asked for beside it", { skip: !existsSync("/usr/sbin/haproxy") && "there is no haproxy" }, async () => {
  const behind = await sink();
  const port = await freePort();
  const { url, link } = await start({ clusters: [{ name: "well", endpoint: behind }] }, "--base-path", "/ops/console");
  const file = join(home, "haproxy.cfg");
  writeFileSync(file, `defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend all
  bind 127.0.0.1:${port}
  http-request deny deny_status 404 unless { path_beg /ops/console/ }
  use_backend console if { path_beg /ops/console/ }
backend console
  server console ${new URL(url).host}
`);
  run("/usr/sbin/haproxy", ["-f", file, "-db", "-q"]);
  const at = `http://127.0.0.1:${port}/ops/console/`;
  for (let tries = 0; ; tries++) {
    const there = await fetch(at).then((answer) => answer.status, () => 0);
    if (there === 200) break;
    assert.ok(tries < 50, `HAProxy answers ${there}`);
    await new Promise((done) => setTimeout(done, 200));
  }
  const p = await page(at);
  const beside = [];
  p.on("request", (request) => new URL(request.url()).pathname.startsWith("/ops/console/") || beside.push(request.url()));
  p.on("response", (response) => response.status() >= 400 && !/\/api\/session$/.test(response.url()) && beside.push(`${response.status()} ${response.url()}`));
  await enter(p, at, link);
  // The stream gets through: the figure is current.
  await row(p, "well").locator("td.big data").waitFor();
  const [cookie] = await p.context().cookies();
  assert.deepEqual([cookie.httpOnly, cookie.sameSite], [true, "Strict"]);
  const { clusters } = await p.evaluate(async () => (await fetch("api/registry")).json());
  for (const [hash, h1] of [[`#/c/${clusters[0].id}`, "well"], [`#/c/${clusters[0].id}/templates`, "Templates"], ["#/registry", "Registry"], ["#/audit", "Audit"], ["#/dev", "Dev tools"]]) {
    await to(p, hash);
    await p.getByRole("heading", { level: 1, name: h1, exact: true }).waitFor();
    await settled(p);
  }
  await p.getByRole("button", { name: "Log out" }).click();
  await logIn(p, at);
  await p.reload();
  await row(p, "well").locator("td.big data").waitFor();
  assert.deepEqual(beside, []);
  await finish(p);
});
