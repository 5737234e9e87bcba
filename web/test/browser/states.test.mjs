// What must hold on every page: designed states, keys, numbers. The looks of each page are in looks.test.mjs.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeAll, finish, logIn, numbersDiffer, page, server, settled, shot, to, until } from "./kit.mjs";
import { NAME, PASSWORD } from "../mock/server.mjs";

after(closeAll);

test("silence is said with its age, the figures are kept, and news clears it", async () => {
  const { url, close, mock } = await server();
  const p = await page(url);
  await logIn(p, url);
  await p.locator("td.big data").first().waitFor();
  for (const mode of ["silent", "garbage", "down"]) {
    mock.mode = mode;
    await p.getByText("No news from the console for").waitFor({ timeout: 60_000 });
    assert.ok((await p.locator("td.big data").count()) > 0, `${mode}: figures are kept`);
    if (mode === "silent") await shot(p, "stale-light");
    mock.mode = "";
    await p.getByRole("alert").filter({ hasText: "No news" }).waitFor({ state: "detached", timeout: 60_000 });
  }
  await finish(p);
  close();
});

test("half-broken answers leave each page standing, with words", async () => {
  const { url, close, mock } = await server();
  const p = await page(url);
  await logIn(p, url);
  for (const mode of ["garbage", "down"]) {
    for (const hash of ["#/c/staging", "#/c/staging/templates", "#/audit", "#/g/gateway-1", "#/g/gateway-1/q/logs"]) {
      await to(p, "#/registry");
      mock.mode = mode;
      await to(p, hash);
      await p.getByRole("alert").filter({ hasText: mode === "down" ? "The store does not answer" : "not JSON" }).first().waitFor();
      assert.ok(await p.getByRole("link", { name: "Overview" }).isVisible());
      mock.mode = "";
    }
  }
  await finish(p);
  close();
});

test("a session that ends leads to the login and back to the same place", async () => {
  const { url, close, mock } = await server();
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/c/archive?minutes=60");
  await settled(p);
  mock.mode = "expired";
  await p.getByRole("heading", { name: "Log in" }).waitFor({ timeout: 60_000 });
  mock.mode = "";
  await p.getByText("Your session has ended.").waitFor();
  await p.getByLabel("Name").fill(NAME);
  await p.getByLabel("Password").fill(PASSWORD);
  await p.keyboard.press("Enter");
  await p.getByRole("heading", { level: 1, name: "archive" }).waitFor();
  assert.match(p.url(), /#\/c\/archive\?minutes=60$/);
  await finish(p);
  close();
});

test("the keyboard alone: log in, go anywhere, open a row, run a request, leave the editor", async () => {
  const { url, close } = await server();
  const p = await page(url);
  await p.goto(url);
  await p.getByLabel("Name").waitFor();
  await p.keyboard.type(NAME);
  await p.keyboard.press("Tab");
  await p.keyboard.type(PASSWORD);
  await p.keyboard.press("Enter");
  await p.locator("tbody tr").first().waitFor();
  for (const [key, heading] of Object.entries({ c: "branch-office|archive|production|staging", t: "Templates", r: "Registry", a: "Audit", o: "Overview" })) {
    await p.keyboard.press("g");
    await p.keyboard.press(key);
    await p.getByRole("heading", { level: 1, name: new RegExp(`^(${heading})$`) }).waitFor();
  }
  await p.locator("tbody tr").nth(1).waitFor();
  await p.keyboard.press("j");
  await p.keyboard.press("j");
  await p.keyboard.press("Enter");
  await p.getByRole("heading", { level: 1, name: "archive" }).waitFor();
  await settled(p);
  await p.keyboard.press("t");
  await p.getByRole("columnheader", { name: "Time" }).first().waitFor();
  await p.keyboard.press("g");
  await p.keyboard.press("d");
  await p.locator(".cm-content").first().waitFor();
  const inEditor = () => p.evaluate(() => document.activeElement?.classList.contains("editor") ?? false);
  for (let i = 0; i < 40 && !(await inEditor()); i++) await p.keyboard.press("Tab");
  assert.ok(await inEditor(), "the editor is reached by Tab");
  await p.keyboard.press("Control+Enter");
  await p.locator(".outcome .status", { hasText: "200" }).waitFor();
  await p.keyboard.press("Tab");
  assert.ok(!(await p.evaluate(() => document.activeElement === document.querySelector(".editor"))), "Tab leaves the editor");
  await finish(p);
  close();
});

test("Ctrl K: a few letters lead anywhere, from a field and from the editor too", async () => {
  const { url, close } = await server();
  const p = await page(url);
  await p.goto(url);
  await p.getByLabel("Name").waitFor();
  await p.keyboard.press("Control+k");
  assert.equal(await p.locator("dialog").count(), 0, "before the login there is nowhere to go");
  await logIn(p, url);
  const box = p.getByRole("combobox", { name: "Go to" });
  const go = async (typed, heading) => {
    await p.keyboard.press("Control+k");
    await box.waitFor();
    await p.keyboard.type(typed);
    await p.keyboard.press("Enter");
    await p.getByRole("heading", { level: 1, name: heading }).waitFor();
    assert.equal(await box.count(), 0);
  };
  await go("audit", "Audit");
  await go("arch", "archive");
  await p.keyboard.press("/");
  await go("stag templ", "Templates");
  assert.match(p.url(), /#\/c\/staging\/templates$/);
  await to(p, "#/dev?cluster=staging");
  await p.locator(".cm-content").first().click();
  await go("import", "Import");
  // Arrows choose, Escape leaves everything as it was, and the page says if nothing matches.
  await p.keyboard.press("Control+k");
  await box.waitFor();
  const options = p.locator(".palette [role=option]");
  await options.nth(1).waitFor();
  await p.keyboard.press("ArrowDown");
  await options.nth(1).and(p.locator("[aria-selected=true]")).waitFor();
  await p.keyboard.type("zzzz");
  await p.getByText("Nothing matches these letters.").waitFor();
  await p.keyboard.press("Enter");
  await p.keyboard.press("Escape");
  await p.getByRole("heading", { level: 1, name: "Import" }).waitFor();
  // The mouse works as well, and changes the theme.
  await p.getByRole("button", { name: /^Go to/ }).click();
  await p.keyboard.type("theme dark");
  // The list follows the letters a moment later.
  await options.filter({ hasText: /dark/i }).first().click();
  await p.waitForFunction(() => document.documentElement.dataset.theme === "dark");
  await finish(p);
  close();
});

test("every number of a page is the API's of that moment", async () => {
  const { url, close } = await server();
  const p = await page(url);
  await logIn(p, url);
  for (const [hash, least] of [["#/", 10], ["#/c/production", 10], ["#/g/gateway-1", 20], ["#/g/gateway-1/q/logs", 12]]) {
    await to(p, hash);
    await settled(p);
    // On a busy machine, the page may show figures that are older than the API's.
    let told = await numbersDiffer(p, least);
    for (let tries = 0; tries < 3 && told.wrong.length; tries++) told = await numbersDiffer(p, least);
    assert.deepEqual(told.wrong, [], hash);
    assert.ok(told.compared >= least, `${hash}: only ${told.compared} numbers`);
  }
  await finish(p);
  close();
});

test("behind a prefix the page works as at the root", async () => {
  const { url, close } = await server();
  const p = await page(url);
  await logIn(p, `${url}some/prefix/`);
  await to(p, "#/c/production");
  await settled(p);
  assert.match(p.url(), /\/some\/prefix\/#\/c\/production$/);
  await finish(p);
  close();
});

test("many tabs of one browser share one stream", async () => {
  const { url, close, mock } = await server();
  const p = await page(url);
  await logIn(p, url);
  const more = [];
  for (let i = 0; i < 7; i++) {
    const tab = await p.context().newPage();
    await tab.goto(url);
    await tab.locator("td.big data").first().waitFor();
    more.push(tab);
  }
  await p.waitForTimeout(1200);
  await until("one stream", () => mock.streams.size <= 1);
  await finish(p);
  close();
});
