// The dev tools: whose tabs, which cluster, and whose answer.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeAll, finish, logIn, page, server, to, until, violations, write } from "./kit.mjs";
import { NAME, PASSWORD } from "../mock/server.mjs";

after(closeAll);

const tab = (id, cluster, text) => ({ id, title: id, cluster_id: cluster, text });
const editor = (p) => p.locator(".editor").first().locator(".cm-content");
const answer = (p) => p.locator(".editor").nth(1).locator(".cm-content");
const cluster = (p) => p.locator(".bar select").inputValue();

async function open(tabs, hash = "#/dev") {
  const { url, close, mock } = await server();
  mock.tabs = tabs;
  const p = await page(url);
  await logIn(p, url);
  await to(p, hash);
  await editor(p).waitFor();
  return { p, mock, close, url };
}

test("tabs are their user's: who logs in next sees and keeps the own ones", async () => {
  const { p, mock, close } = await open({ tabs: [tab("ann's", "staging", "GET _ann")], active: "ann's" });
  // What she types cannot be saved.
  await p.route("**/api/tabs", (route) => (route.request().method() === "PUT" ? route.fulfill({ status: 503, json: { error: { type: "down", reason: "the store is full" } } }) : route.fallback()));
  await write(p, "DELETE secret-of-ann");
  await p.getByText("Not saved: the store is full").waitFor();
  await p.getByRole("button", { name: "Log out" }).click();
  await p.getByLabel("Name").waitFor();
  await p.unroute("**/api/tabs");
  mock.user = { name: "bo", password: "another long password" };
  mock.tabs = { tabs: [tab("bo's", "staging", "GET _bo")], active: "bo's" };
  await p.getByLabel("Name").fill("bo");
  await p.getByLabel("Password").fill("another long password");
  await p.getByRole("button", { name: "Log in" }).click();
  await p.getByRole("button", { name: "bo's", exact: true }).waitFor();
  assert.equal(await editor(p).textContent(), "GET _bo");
  assert.equal(await p.getByText("Not saved").count(), 0);
  await write(p, "GET _bo/again");
  await until("his text is saved", () => mock.tabs.tabs[0].text === "GET _bo/again");
  assert.deepEqual(mock.tabs.tabs.map(({ title }) => title), ["bo's"]);
  await finish(p);
  close();
});

test("what a session that ended left unsaved is saved once the same user is back", async () => {
  const { p, mock, close } = await open({ tabs: [tab("one", "staging", "GET _one")], active: "one" });
  mock.mode = "expired";
  await write(p, "GET _two");
  await p.getByLabel("Name").waitFor();
  mock.mode = "";
  await p.getByLabel("Name").fill(NAME);
  await p.getByLabel("Password").fill(PASSWORD);
  await p.getByRole("button", { name: "Log in" }).click();
  await until("it is saved", () => mock.tabs.tabs[0].text === "GET _two");
  assert.equal(await editor(p).textContent(), "GET _two");
  await finish(p);
  close();
});

test("a link turns the tab to its cluster once; the address turns no other tab to it", async () => {
  const { p, mock, close } = await open({ tabs: [tab("one", "archive", "GET _one"), tab("two", "archive", "GET _two")], active: "one" }, "#/dev?cluster=staging");
  await until("the tab is turned", async () => (await cluster(p)) === "staging");
  await until("the address has no cluster", () => /#\/dev$/.test(p.url()));
  await until("it is saved", () => mock.tabs.tabs[0].cluster_id === "staging");
  await p.getByRole("button", { name: "Close tab “one”" }).click();
  await p.getByRole("dialog").getByRole("button", { name: "Close tab" }).click();
  assert.equal(await cluster(p), "archive");
  // The rail follows the tab.
  await until("the rail follows", async () => (await p.locator(".rail .switch select").first().inputValue()) === "archive");
  await until("it is saved", () => mock.tabs.tabs.length === 1);
  await p.reload();
  await editor(p).filter({ hasText: "GET _two" }).waitFor();
  await until("the page has settled", () => p.evaluate(() => !globalThis.underWay));
  assert.equal(await cluster(p), "archive");
  assert.equal(mock.tabs.tabs[0].cluster_id, "archive");
  await finish(p);
  close();
});

test("an answer says whose it is, and stands beside no other tab, cluster or request", async () => {
  const { p, close } = await open({ tabs: [tab("one", "staging", "GET _cluster/health"), tab("two", "archive", "GET _two")], active: "one" });
  await editor(p).click();
  await p.keyboard.press("Control+Enter");
  const bar = p.locator(".outcome");
  await bar.getByText("staging: GET /_cluster/health", { exact: true }).waitFor();
  await answer(p).filter({ hasText: "cluster_name" }).waitFor();
  assert.deepEqual(await violations(p), []);
  const none = () => until("no answer is shown", async () => (await answer(p).textContent()) === "" && (await bar.textContent()) === "Put the cursor into a request and press Ctrl Enter.");
  await p.getByRole("button", { name: "two", exact: true }).click();
  await none();
  await p.getByRole("button", { name: "one", exact: true }).click();
  await answer(p).filter({ hasText: "cluster_name" }).waitFor();
  await p.locator(".bar select").selectOption("archive");
  await none();
  await p.locator(".bar select").selectOption("staging");
  await answer(p).filter({ hasText: "cluster_name" }).waitFor();
  // A run takes the former answer away, whatever becomes of it.
  await write(p, "GET _slow");
  await p.keyboard.press("Control+Enter");
  await bar.getByText("staging: GET /_slow", { exact: true }).waitFor();
  assert.equal(await answer(p).textContent(), "");
  await p.getByRole("button", { name: "Cancel" }).click();
  await bar.getByText("Cancelled.").waitFor();
  assert.equal(await answer(p).textContent(), "");
  await p.locator(".bar select").selectOption("archive");
  await write(p, "DELETE orders");
  await p.keyboard.press("Control+Enter");
  await p.getByRole("alert").filter({ hasText: /archive: DELETE \/orders .*read-only/ }).waitFor();
  assert.equal(await answer(p).textContent(), "");
  await finish(p);
  close();
});

test("a confirmation names its call, and neither page nor user inherits it", async () => {
  const { p, mock, close } = await open({ tabs: [tab("one", "production", "DELETE orders")], active: "one" });
  const asks = p.getByRole("heading", { name: "This needs your confirmation" });
  const begin = async () => {
    await editor(p).click();
    await p.keyboard.press("Control+Enter");
    await asks.waitFor();
  };
  await begin();
  await p.getByRole("dialog").getByText("DELETE /orders on production", { exact: true }).waitFor();
  assert.deepEqual(await violations(p), []);
  // Another page that shows confirmations.
  await to(p, "#/c/staging/templates");
  await p.getByRole("heading", { level: 1, name: "Templates" }).waitFor();
  assert.equal(await asks.count(), 0);
  await to(p, "#/dev");
  await begin();
  // The question goes with the session.
  await p.getByRole("button", { name: "Log out", includeHidden: true }).evaluate((button) => button.click());
  await p.getByLabel("Password").waitFor();
  await p.getByLabel("Name").fill(NAME);
  await p.getByLabel("Password").fill(PASSWORD);
  await p.getByRole("button", { name: "Log in" }).click();
  await editor(p).waitFor();
  assert.equal(await asks.count(), 0);
  // A call whose refusal comes once its page has been left asks nobody.
  let late;
  const held = new Promise((done) => (late = done));
  await p.route("**/api/clusters/*/call", async (route) => (await held, route.fallback()));
  await editor(p).click();
  await p.keyboard.press("Control+Enter");
  await p.locator(".outcome").getByText("production: DELETE /orders").waitFor();
  await to(p, "#/c/staging/templates");
  late();
  await p.getByRole("heading", { level: 1, name: "Templates" }).waitFor();
  await until("the call is answered", () => p.evaluate(() => !globalThis.underWay));
  assert.equal(await asks.count(), 0);
  assert.equal(mock.audit.filter(({ what }) => /DELETE/.test(what) && /orders/.test(what)).length, 0);
  await finish(p);
  close();
});
