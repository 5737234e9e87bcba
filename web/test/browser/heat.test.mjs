// The heat map: which shards are written to most, by colour, by words, by keys and as a table.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertFits, closeAll, finish, logIn, page, server, settled, shot, to, until, violations } from "./kit.mjs";

after(closeAll);

const told = (p) => p.locator(".heat-map + .plot-told");
/** The colour in the middle of a place of the map, in CSS pixels. */
const colourAt = (p, x, y) => p.locator(".heat-map canvas").evaluate((c, at) => [...c.getContext("2d").getImageData(Math.round((at.x * c.width) / c.clientWidth), Math.round((at.y * c.height) / c.clientHeight), 1, 1).data].join(","), { x, y });

for (const colorScheme of ["light", "dark"]) {
  test(`a hot shard is seen, named and first in the list, ${colorScheme}`, async () => {
    const { url, close, mock } = await server();
    const production = mock.clusters.find((one) => one.name === "production");
    const p = await page(url, { colorScheme });
    await logIn(p, url);
    await p.getByRole("link", { name: "Write heat" }).click();
    await p.getByRole("heading", { level: 1, name: "Write heat: production" }).waitFor();
    await settled(p);
    assert.equal(await p.locator(".note.warn").count(), 0);
    production.hot = "orders[3]";
    await p.getByText(/orders\[3\] on node-6 gets .* times the mean of the 12 shards of its index\./).waitFor();
    await until("it is first", async () => /^orders3node-6/.test(await p.locator("table.heat tbody tr").first().textContent()));
    assert.equal(await p.locator(".heat-legend li").count(), 6);
    assert.deepEqual(await violations(p), []);
    await shot(p, `heat-${colorScheme}`, { fullPage: true });
    // The pointer tells exact numbers.
    const map = p.locator(".heat-map canvas");
    const box = await map.boundingBox();
    await p.mouse.move(box.x + 200, box.y + 14);
    await until("a shard is told", async () => /^logs-2026\.11\.2\d\[\d+\]  ·  node-1  ·  [\d.,]+ documents\/s  ·  [\d.]+ k?B\/s  ·  0 rejected\/s  ·  latency (–|[\d.]+ ms)  ·  [\d,]+ counted$/.test(await told(p).textContent()));
    await p.mouse.move(0, 0);
    // The keys go through all shards, node by node.
    await p.locator(".heat-map").focus();
    await p.keyboard.press("Home");
    await until("the first", async () => /node-1/.test(await told(p).textContent()));
    await p.keyboard.press("ArrowDown");
    await until("a row below", async () => /node-2/.test(await told(p).textContent()));
    await p.keyboard.press("End");
    await until("the last", async () => /node-6/.test(await told(p).textContent()));
    await p.keyboard.press("ArrowLeft");
    await p.keyboard.press("ArrowUp");
    await until("a row above", async () => /node-5/.test(await told(p).textContent()));
    // As a table, with the same numbers as the API's.
    await p.keyboard.press("t");
    await until("all shards are rows", async () => (await p.locator(".scroll table.heat tbody tr").count()) === 60);
    await p.locator(".scroll table.heat data.num").first().waitFor();
    await finish(p);
    close();
  });
}

test("hotter shards have a darker colour, and without writes there is none", async () => {
  const { url, close, mock } = await server();
  const production = mock.clusters.find((one) => one.name === "production");
  production.hot = "orders[3]";
  const p = await page(url, { colorScheme: "light" });
  await logIn(p, url);
  await to(p, "#/c/production/heat");
  await settled(p);
  const light = (rgba) => rgba.split(",").slice(0, 3).reduce((sum, one) => sum + Number(one), 0);
  // Ask the map itself where the hot shard and a cold one are.
  const find = async (wanted) => {
    const map = p.locator(".heat-map canvas");
    const box = await map.boundingBox();
    for (let y = 10; y < box.height; y += 16) {
      for (let x = 192; x < box.width; x += 24) {
        await p.mouse.move(box.x + x, box.y + y);
        if (wanted.test((await told(p).textContent()) ?? "")) return [x, y];
      }
    }
    throw new Error(`not on the map: ${wanted}`);
  };
  const [hot, cold] = [await find(/^orders\[3\]/), await find(/^logs-2026\.11\.24\[/)];
  await p.mouse.move(0, 0);
  await until("no shard is marked", async () => (await told(p).textContent()).trim() === "");
  assert.ok(light(await colourAt(p, ...hot)) < light(await colourAt(p, ...cold)) - 200);
  await finish(p);
  close();
});

test("rejections and latency are shown in place of documents, and the address keeps the choice", async () => {
  const { url, close, mock } = await server();
  mock.clusters.find((one) => one.name === "production").rejecting = "node-4";
  const p = await page(url, { colorScheme: "dark" });
  await logIn(p, url);
  await to(p, "#/c/production/heat");
  await settled(p);
  const nodes = async () => [...new Set(await p.locator("table.heat tbody td[data-label=Node]").allTextContents())];
  await p.getByRole("button", { name: "Rejections" }).click();
  await p.getByRole("heading", { name: "Shards with the most rejections" }).waitFor();
  await p.getByText("rejected documents (429) a second, over 10 s").waitFor();
  await until("the node that rejects is first", async () => (await nodes())[0] === "node-4");
  await shot(p, "heat-rejections-dark", { fullPage: true });
  await p.getByRole("button", { name: "Latency" }).click();
  await p.getByRole("heading", { name: "The slowest shards" }).waitFor();
  await until("the slow node is first", async () => (await nodes())[0] === "node-4" && /840 ms/.test(await p.locator("table.heat tbody tr").first().textContent()));
  assert.match(new URL(p.url()).hash, /show=latency/);
  assert.match(await p.locator(".heat-legend").textContent(), /to 840 ms/);
  await p.emulateMedia({ colorScheme: "light" });
  assert.deepEqual(await violations(p), []);
  await shot(p, "heat-latency-light", { fullPage: true });
  await p.reload();
  await p.getByRole("heading", { name: "The slowest shards" }).waitFor();
  assert.equal(await p.getByRole("button", { name: "Latency" }).getAttribute("aria-pressed"), "true");
  await finish(p);
  close();
});

test("without gateways or writes it says why, a silent gateway is named, and a thousand nodes fit", async () => {
  const { url, close, mock } = await server();
  const production = mock.clusters.find((one) => one.name === "production");
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/c/staging/heat");
  await p.getByText("No registered gateway delivers to this cluster").waitFor();
  production.quietHeat = true;
  await to(p, "#/c/production/heat");
  await p.getByText("No gateway has written to this cluster yet").waitFor();
  production.quietHeat = false;
  production.heatProblems = [{ gateway: "gateway-2", why: "connection refused" }];
  await p.getByText("The counts of gateway-2 are missing: connection refused").waitFor();
  Object.assign(production, { manyNodes: 1000, manyShards: 500, others: 1234 });
  await p.getByText("The 200 hottest of 1000 nodes.").waitFor();
  await p.getByText(/1\.23 k documents a second go to indices/).waitFor();
  await settled(p);
  assert.ok((await p.evaluate(() => document.querySelectorAll("*").length)) < 5000);
  await p.setViewportSize({ width: 320, height: 640 });
  await until("it fits", async () => (await p.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)) <= 0);
  await assertFits(p, "heat");
  await finish(p);
  close();
});
