// The walk-through on the real console, real clusters and real gateways, as
// `crates/cli/tests/real_console.rs` starts them. Variables of the environment:
//
//   CONSOLE_URL    http://127.0.0.1:9000/
//   CONSOLE_LINK   the secret of the one-time link, at the console's first start
//   CLUSTER_URL    three nodes of OpenSearch
//   SECOND_URL     another cluster
//   GATEWAY_URL    the admin address of a gateway before the first cluster, with a queue
//   GATEWAY_ENTRY  the address for its clients
//   GATEWAY2_URL   the admin address of another gateway, without a queue
//   GATEWAY2_ENTRY the address for its clients
//   PREFIX         the prefix of all names made here, since others use the clusters too
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertFits, closeAll, finish, logIn, numbersDiffer, page, settled, shot, to, until, violations, write } from "../browser/kit.mjs";
import { NAME, PASSWORD } from "../mock/server.mjs";

const env = process.env;
const url = env.CONSOLE_URL;
for (const name of ["CONSOLE_URL", "CONSOLE_LINK", "CLUSTER_URL", "SECOND_URL", "GATEWAY_URL", "GATEWAY_ENTRY", "GATEWAY2_URL", "GATEWAY2_ENTRY", "PREFIX"]) assert.ok(env[name], `${name} is not given`);
const index = `${env.PREFIX}-walk`;
after(closeAll);

const row = (p, name) => p.getByRole("row").filter({ has: p.getByRole("link", { name, exact: true }) });
const post = async (at, body) => {
  const answer = await fetch(`${at}/_bulk`, { method: "POST", headers: { "content-type": "application/x-ndjson" }, body });
  const told = await answer.json();
  assert.equal(told.errors, false, JSON.stringify(told).slice(0, 400));
};
let next = 0;
const bulk = (docs) => Array.from({ length: docs }, () => `{"index":{"_index":"${index}","_id":"${next++}"}}\n{"n":${next},"message":"hello"}\n`).join("");

/** Sends bulks to both gateways until it is told to stop. Returns the number of documents. */
function load() {
  let on = true;
  const run = (async () => {
    while (on) {
      await Promise.all([post(env.GATEWAY_ENTRY, bulk(100)), post(env.GATEWAY2_ENTRY, bulk(100))]);
      await new Promise((done) => setTimeout(done, 150));
    }
  })();
  return async () => {
    on = false;
    await run;
    return next;
  };
}

async function register(p, kind, name, address) {
  await to(p, `#/registry/${kind}/new`);
  await p.getByLabel("Name", { exact: true }).fill(name);
  await p.getByLabel(kind === "cluster" ? "Addresses" : "Admin address").fill(address);
  await p.getByRole("button", { name: "Test connection" }).click();
  await p.getByText("The connection works.").waitFor();
  await p.getByRole("button", { name: "Save", exact: true }).click();
  await p.getByRole("link", { name, exact: true }).waitFor();
}

async function agree(p, least) {
  // Unknown figures are dashes. A server that has just started answers its first questions slowly, and the
  // console asks again the later, the longer an answer took.
  await p
    .waitForFunction((enough) => document.querySelectorAll("main data.num").length >= enough, least, { timeout: 60_000 })
    .catch(async (error) => {
      throw new Error(`fewer than ${least} numbers are known:\n${await p.locator("main").innerText()}`, { cause: error });
    });
  // The page and the test ask at different moments; a page that was read between two answers is read once
  // more.
  let told = await numbersDiffer(p, least);
  for (let tries = 0; tries < 4 && (told.wrong.length || told.compared < least); tries++) told = await numbersDiffer(p, least);
  assert.deepEqual(told.wrong, []);
  assert.ok(told.compared >= least, `only ${told.compared} numbers`);
}

async function run(p, text) {
  await write(p, text);
  await p.keyboard.press("Control+Enter");
  await p.locator(".outcome .status").first().waitFor();
  assert.equal(await p.locator(".outcome .status").textContent(), "200");
}

const answerOf = (p) => p.locator(".editor").nth(1).locator(".cm-content").textContent();
const now = (p) => p.evaluate(() => Number(document.querySelector(".tiles dd data")?.value ?? 0));

test("the walk-through", async () => {
  const p = await page(url);
  await p.goto(`${url}#setup=${env.CONSOLE_LINK}`);
  await p.getByLabel("Your name").fill(NAME);
  for (const label of ["Password", "Password again"]) await p.getByLabel(label, { exact: true }).fill(PASSWORD);
  await p.getByRole("button", { name: "Create the account" }).click();
  await p.getByRole("heading", { name: "Nothing is registered yet" }).waitFor();
  await shot(p, "real-first-start");

  // A wrong address fails at the right step; then two clusters and two gateways are registered.
  await to(p, "#/registry/cluster/new");
  await p.getByLabel("Name", { exact: true }).fill("wrong");
  await p.getByLabel("Addresses").fill("http://127.0.0.1:1");
  await p.getByRole("button", { name: "Test connection" }).click();
  await p.getByText("The connection fails at: Connect.").waitFor();
  await register(p, "cluster", "first", env.CLUSTER_URL);
  await register(p, "cluster", "second", env.SECOND_URL);
  await register(p, "gateway", "queueing", env.GATEWAY_URL);
  await register(p, "gateway", "splitting", env.GATEWAY2_URL);
  const registry = await p.evaluate(() => fetch("api/registry").then((r) => r.json()));
  const ids = Object.fromEntries(registry.clusters.map(({ name, id }) => [name, id]));
  assert.deepEqual(Object.keys(ids).sort(), ["first", "second"], "the gateways' cluster is the one that was there");

  // The template is made in the dev tools, at the cluster that the editor names; the other one does not get
  // it.
  await to(p, `#/dev?cluster=${encodeURIComponent(ids.first)}`);
  await p.locator(".cm-content").first().waitFor();
  await run(p, `PUT _template/${index}\n{\n  "index_patterns": ["${index}*"],\n  "settings": { "number_of_shards": 3, "number_of_replicas": 0, "refresh_interval": "1s" }\n}\n`);
  assert.match(await answerOf(p), /"acknowledged": true/);
  await run(p, `PUT ${index}\n`);
  await shot(p, "real-dev");
  await p.waitForFunction(() => document.querySelector(".tabs .saved").textContent === "Saved");
  await p.reload();
  await p.locator(".cm-content").first().getByText(`PUT ${index}`).first().waitFor();

  const stop = load();
  try {
    // Overview: both clusters, both gateways; both gateways write, and the cluster that they write to.
    await to(p, "#/");
    for (const name of ["first", "queueing", "splitting"]) {
      await p.waitForFunction(
        (wanted) => [...document.querySelectorAll("tbody tr")].some((tr) => tr.querySelector("th a")?.textContent === wanted && Number(tr.querySelector("td.big data")?.value) > 0),
        name,
        { timeout: 60_000 },
      );
      assert.match(await row(p, name).locator(".state").textContent(), /OK|Warning/);
    }
    await row(p, "second").getByText("elasticsearch").waitFor();
    await p.waitForTimeout(2000);
    await shot(p, "real-overview");
    await agree(p, 12);
    await assertFits(p, "overview");

    // The cluster's page: the chart moves, and shows the share of the gateways; there are three nodes.
    await p.getByRole("link", { name: "first", exact: true }).click();
    await settled(p);
    await p.waitForFunction(() => document.querySelectorAll("table.nodes tbody tr").length === 3);
    const chart = () => p.locator(".plot canvas").first().evaluate((canvas) => canvas.toDataURL());
    const before = await chart();
    await until("the chart moves", async () => (await chart()) !== before);
    await p.waitForFunction(() => Number(document.querySelectorAll(".tiles dd")[1].querySelector("data")?.value) > 0, undefined, { timeout: 60_000 });
    assert.ok((await now(p)) > 0);
    await agree(p, 12);
    await shot(p, "real-cluster", { fullPage: true });
    assert.deepEqual(await violations(p), []);

    // The keyboard leads to the second cluster and its own figures: nobody writes there through a gateway.
    await p.keyboard.press("Control+k");
    await p.keyboard.type("second");
    await p.keyboard.press("Enter");
    await p.getByRole("heading", { level: 1, name: "second" }).waitFor();
    await settled(p);
    assert.match(p.url(), new RegExp(encodeURIComponent(ids.second)));
    await p.waitForFunction(() => document.querySelectorAll("table.nodes tbody tr").length === 3);
  } finally {
    await stop();
  }
  const sent = await stop();
  assert.ok(sent > 1000, `${sent} documents were sent`);

  // All documents are there, as the cluster itself counts them in the dev tools; none are in the other
  // cluster.
  await to(p, `#/dev?cluster=${encodeURIComponent(ids.first)}`);
  await p.locator(".cm-content").first().waitFor();
  for (const until = Date.now() + 90_000; ; ) {
    await run(p, `POST ${index}/_refresh\n`);
    await run(p, `GET ${index}/_count\n`);
    await p.waitForTimeout(200);
    const count = Number(/"count": (\d+)/.exec(await answerOf(p))?.[1]);
    if (count === sent) break;
    assert.ok(Date.now() < until, `${count} of ${sent} documents are there`);
    await p.waitForTimeout(500);
  }

  // The index is in the list with as many documents as were sent, and its settings say where they come from.
  const told = await (await fetch(`${env.CLUSTER_URL}/_cat/indices/${index}?format=json`)).json();
  await to(p, `#/c/${encodeURIComponent(ids.first)}/indices?q=${index}`);
  await until("all documents are counted", async () => (await row(p, index).locator("data.num").nth(2).getAttribute("value")) === String(sent));
  assert.equal(await row(p, index).locator("data.num").first().getAttribute("value"), told[0].pri);
  await row(p, index).getByRole("link").click();
  const setting = (key) => p.getByRole("row").filter({ has: p.getByRole("rowheader", { name: key, exact: true }) });
  assert.equal(await setting("index.number_of_shards").locator("td").last().textContent(), `legacy template ${index}`);
  assert.equal(await setting("index.uuid").locator("td").last().textContent(), "the server, when the index was made");
  assert.equal(await setting("message").locator("td").first().textContent(), "text");
  await shot(p, "real-index", { fullPage: true });
  assert.deepEqual(await violations(p), []);

  // The template is in the list with its settings, the page says which template sets an index's values, and
  // the template is deleted again.
  await to(p, `#/c/${encodeURIComponent(ids.first)}/templates`);
  await p.getByRole("link", { name: index }).click();
  assert.equal(await p.getByLabel("Primary shards").inputValue(), "3");
  await shot(p, "real-template");
  await p.getByRole("button", { name: "Delete" }).click();
  await p.locator("dialog").getByRole("button", { name: "Delete" }).click();
  await p.getByText(`Template “${index}” is deleted.`).waitFor();

  await to(p, "#/audit");
  await p.locator("tbody tr").first().waitFor();
  await p.getByText(`PUT /_template/${index}`).first().waitFor();
  await shot(p, "real-audit");
  assert.deepEqual(await violations(p), []);
  await p.getByRole("button", { name: "Log out" }).click();
  await logIn(p, url);
  await finish(p);
});
