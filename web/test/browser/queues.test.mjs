// The pages of a gateway's queues.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeAll, finish, logIn, page, quickest, server, settled, shot, to } from "./kit.mjs";

after(closeAll);

test("accounts that do not add up are red within two seconds, and well again as soon", async () => {
  const { url, close, mock } = await server();
  const p = await page(url);
  await logIn(p, url);
  await p.getByRole("link", { name: "gateway-1", exact: true }).click();
  await p.getByRole("heading", { level: 1, name: "gateway-1" }).waitFor();
  await settled(p);
  assert.equal(await p.locator(".accounts .adds").count(), 4);
  const gateway = mock.gateways.find((one) => one.name === "gateway-1");
  const well = async () => {
    gateway.off = 0;
    await p.locator(".accounts.wrong").first().waitFor({ state: "detached", timeout: 60_000 });
  };
  const took = await quickest(2000, async () => {
    gateway.off = 7;
    await p.getByText(/documents were accepted, .* are accounted for \(−7\)/).first().waitFor({ timeout: 60_000 });
    return well;
  });
  assert.ok(took < 2000, `${took} ms`);
  assert.equal(await p.locator(".accounts.wrong").count(), 4);
  await shot(p, "queues-wrong");
  await well();
  await finish(p);
  close();
});

test("who holds back whom is said, with its lanes and since when; a pipeline is stopped and started", async () => {
  const { url, close, mock } = await server();
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/g/gateway-1");
  await p.getByRole("link", { name: "logs", exact: true }).click();
  await settled(p);
  const wait = p.locator("table.waits tbody tr").filter({ hasText: "tries again" });
  assert.deepEqual((await wait.locator("td").allTextContents()).slice(2), ["node-7 has no time: 429", "2", "4,033", "4 min", "1 s"]);
  const lanes = p.locator("section").filter({ has: p.getByRole("heading", { name: "Lanes: archive" }) });
  assert.deepEqual(await lanes.locator("tbody th").allTextContents(), ["1", "0", "2"], "the most pending first");
  const nodes = lanes.locator("tbody tr").filter({ hasText: "node-7 730 for 4" });
  assert.deepEqual(await nodes.locator("th").allTextContents(), ["2"], "the lane that waits for the node");
  await p.locator(".waits tr").filter({ hasText: "slow node" }).getByText("730").waitFor();
  await p.getByRole("button", { name: "Stop to-archive" }).click();
  await p.getByRole("dialog").getByRole("button", { name: "Stop" }).click();
  await p.getByRole("button", { name: "Start to-archive" }).waitFor();
  await p.getByText("to-archive: stopped").waitFor();
  await p.getByRole("button", { name: "Start to-archive" }).click();
  await p.getByText("to-archive: running").waitFor();
  assert.deepEqual(mock.audit.slice(0, 2).map(({ what }) => what), ["POST /pipeline/to-archive/_start", "POST /pipeline/to-archive/_stop?wait_s=5"]);
  await p.getByRole("group", { name: "Time range" }).getByRole("button", { name: "5 min", exact: true }).click();
  assert.match(p.url(), /q\/logs\?minutes=5$/);
  await finish(p);
  close();
});

test("the records browser says how far it has looked, and what it could not look through", async () => {
  const { url, close } = await server();
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/g/gateway-1/q/logs/records");
  const said = p.locator(".searched");
  await said.filter({ hasText: "Searched 5 kB of 99 kB, 50 records. 50 found." }).waitFor();
  assert.equal(await p.locator("tbody tr").count(), 50);
  await p.getByRole("button", { name: "Go on" }).click();
  await p.getByRole("rowheader", { name: "5000", exact: true }).waitFor();
  await p.getByLabel("Contains text").fill('"_id":"777"');
  await p.getByRole("button", { name: "Look", exact: true }).click();
  await said.filter({ hasText: "Searched 99 kB of 99 kB, 990 records. 1 found. Longer records, searched only up to 65.5 kB: 1." }).waitFor();
  assert.equal(await p.getByRole("rowheader").textContent(), "77700");
  assert.match(p.url(), /records\?text=/);
  // The page never says just "none".
  await p.getByLabel("Contains text").fill("not there");
  await p.getByLabel("Lane", { exact: true }).fill("3");
  await p.getByRole("button", { name: "Look", exact: true }).click();
  await said.filter({ hasText: "Searched 99 kB of 99 kB, 83 records. 0 found." }).waitFor();
  await finish(p);
  close();
});

test("numbers of a gateway that falls silent are kept, with their age and the reason", async () => {
  const { url, close, mock } = await server();
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/g/gateway-1");
  await settled(p);
  mock.mode = "down";
  await p.getByText(/These numbers are .* old/).waitFor();
  await p.getByRole("alert").filter({ hasText: "The store does not answer." }).first().waitFor();
  assert.ok((await p.locator(".stale .accounts data").count()) > 8);
  mock.mode = "";
  await p.getByText(/These numbers are .* old/).waitFor({ state: "detached", timeout: 60_000 });
  await finish(p);
  close();
});

test("a change of many letters goes on from where the gateway stopped, and adds up what it says", async () => {
  const { url, close } = await server();
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/g/gateway-1/q/logs/letters");
  const asked = [];
  p.on("request", (request) => {
    const path = request.method() === "POST" ? (request.postDataJSON()?.path ?? "") : "";
    if (path.includes("_patch")) asked.push(`${path.includes("dry_run") ? "dry " : ""}${/from=(\d+)/.exec(path)?.[1] ?? "0"}`);
  });
  await p.getByRole("button", { name: "Change all" }).click();
  const dialog = p.getByRole("dialog");
  await dialog.getByLabel("Field", { exact: true }).fill("price");
  await dialog.getByRole("button", { name: "Preview" }).click();
  await dialog.getByText("117 would change, 3 would not, 0 cannot be changed this way.", { exact: true }).waitFor();
  assert.equal(await dialog.locator("pre[aria-label^=Before]").count(), 20);
  await dialog.getByRole("button", { name: "Change 117" }).click();
  await p.getByText("117 letters were changed.", { exact: true }).waitFor();
  assert.deepEqual(asked, ["dry 0", "dry 1050", "dry 1100", "0", "1050", "1100"]);
  await finish(p);
  close();
});
