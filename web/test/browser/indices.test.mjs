// The indices of a cluster: pages, order and filter; and where a setting of one of them comes from.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertFits, closeAll, finish, logIn, page, server, settled, shot, to, until, violations } from "./kit.mjs";

after(closeAll);

const first = (p) => p.locator("table.indices tbody tr th").first().textContent();

test("ten thousand indices are shown a page at a time, filtered and sorted, and the address tells which", async () => {
  const { url, close, mock } = await server();
  mock.clusters.find((one) => one.name === "staging").manyIndices = 10_000;
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/c/staging");
  await p.getByRole("link", { name: "Indices", exact: true }).click();
  await p.getByRole("heading", { level: 1, name: "Indices" }).waitFor();
  await p.getByText("1 to 100 of 10,006").waitFor();
  assert.equal(await p.locator("table.indices tbody tr").count(), 100);
  assert.ok((await p.evaluate(() => document.querySelectorAll("*").length)) < 5000);
  await p.getByRole("button", { name: "Next page" }).click();
  await p.getByText("101 to 200 of 10,006").waitFor();
  assert.match(p.url(), /from=100/);
  await p.keyboard.press("/");
  await p.keyboard.type("many-*99");
  await p.getByText(/1 to 100 of 2\d\d/).waitFor();
  assert.match(p.url(), /q=many-\*99|q=many-%2A99/);
  assert.doesNotMatch(p.url(), /from=/);
  await p.getByLabel("Sort by").selectOption("Most documents first");
  await until("the fullest is first", async () => (await first(p)) === "many-09999");
  await p.getByRole("button", { name: "Reverse the order" }).click();
  await until("the emptiest is first", async () => (await first(p)) === "many-00099");
  // The link shows the same to whoever gets it.
  const other = await p.context().newPage();
  await other.goto(p.url());
  await until("the same view", async () => (await first(other)) === "many-00099");
  await to(p, "#/c/staging/indices?sort=docs");
  await p.getByRole("button", { name: "Show them" }).click();
  await to(p, "#/c/staging/indices?hidden=1&q=security");
  await p.getByRole("link", { name: ".security" }).waitFor();
  await to(p, "#/c/staging/indices?q=nothing-like-it");
  await p.getByText("Nothing is called “nothing-like-it”.").waitFor();
  await finish(p);
  close();
});

for (const colorScheme of ["light", "dark"]) {
  test(`each setting of an index says where it comes from, ${colorScheme}`, async () => {
    const { url, close } = await server();
    const p = await page(url, { colorScheme });
    await logIn(p, url);
    await to(p, "#/c/staging/indices");
    await p.getByText("closed", { exact: true }).waitFor();
    assert.deepEqual(await violations(p), []);
    await shot(p, `indices-${colorScheme}`);
    await p.getByRole("link", { name: "logs-2026.11.23" }).click();
    await p.getByRole("heading", { level: 1, name: "logs-2026.11.23" }).waitFor();
    const row = (key) => p.getByRole("row").filter({ has: p.getByRole("rowheader", { name: key, exact: true }) });
    const source = (key) => row(key).locator("td").last().textContent();
    await row("index.refresh_interval").waitFor();
    assert.equal(await source("index.refresh_interval"), "component template fast-writes");
    assert.equal(await source("index.number_of_shards"), "index template logs");
    assert.equal(await source("index.number_of_replicas"), "the index itself; index template logs has 0");
    assert.equal(await source("index.max_result_window"), "the index itself");
    assert.equal(await source("index.uuid"), "the server, when the index was made");
    assert.equal(await row("index.codec").count(), 0);
    await p.getByRole("button", { name: "Show them" }).click();
    assert.equal(await source("index.codec"), "the server's default");
    await row("message.raw").waitFor();
    await p.getByText("UNASSIGNED: NODE_LEFT").waitFor();
    assert.deepEqual(await violations(p), []);
    await shot(p, `index-${colorScheme}`, { fullPage: true });
    await p.getByLabel("Filter settings").fill("template");
    await until("only those of templates", async () => (await row("index.max_result_window").count()) === 0);
    // An alias stands for several indices.
    await to(p, "#/c/staging/indices/logs");
    await p.getByText("“logs” is not one index. It stands for:").waitFor();
    await p.getByRole("link", { name: "logs-2026.11.22" }).waitFor();
    await finish(p);
    close();
  });
}

test("a cluster that does not answer leaves the last list with its age, and an empty one says so", async () => {
  const { url, close, mock } = await server();
  const staging = mock.clusters.find((one) => one.name === "staging");
  staging.indicesProblem = "connection refused";
  staging.indicesAt = Date.now() - 300_000;
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/c/staging/indices");
  await p.getByText("connection refused").waitFor();
  await p.getByText("This list is 5 min old").waitFor();
  await p.getByRole("link", { name: "orders" }).waitFor();
  staging.indicesProblem = undefined;
  staging.noIndices = true;
  await to(p, "#/c/staging/indices?sort=docs");
  await p.getByText("This cluster has no indices.").waitFor();
  await p.setViewportSize({ width: 320, height: 640 });
  staging.noIndices = false;
  staging.indicesAt = undefined;
  await to(p, "#/c/staging/indices");
  await p.getByRole("link", { name: "orders" }).waitFor();
  await settled(p);
  await assertFits(p, "indices");
  await finish(p);
  close();
});
