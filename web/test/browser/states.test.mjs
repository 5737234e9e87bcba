// What must hold on every page: designed states, hostile names, small windows, keys, accessibility.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertFits, closeAll, finish, logIn, numbersDiffer, page, PAGES, server, settled, shot, to, until, violations } from "./kit.mjs";
import { hostile } from "../mock/names.mjs";
import { NAME, PASSWORD } from "../mock/server.mjs";

after(closeAll);

for (const [look, options] of Object.entries({ light: { colorScheme: "light" }, dark: { colorScheme: "dark" }, forced: { colorScheme: "dark", forcedColors: "active" } })) {
  test(`every page passes axe, ${look}`, async () => {
    const { url, close } = await server();
    const p = await page(url, options);
    await p.goto(url);
    await p.getByRole("heading", { name: "Log in" }).waitFor();
    const found = Object.fromEntries([["login", await violations(p)]]);
    await shot(p, `login-${look}`);
    await logIn(p, url);
    for (const [name, hash] of Object.entries(PAGES)) {
      await to(p, hash);
      await settled(p);
      found[name] = await violations(p);
      await shot(p, `${name}-${look}`);
    }
    await p.evaluate(() => document.activeElement?.blur());
    await p.keyboard.press("?");
    await p.getByRole("heading", { name: "Keys" }).waitFor();
    found.keys = await violations(p);
    await p.keyboard.press("Escape");
    await p.keyboard.press("Control+k");
    await p.getByRole("combobox", { name: "Go to" }).waitFor();
    found.palette = await violations(p);
    await shot(p, `palette-${look}`);
    assert.deepEqual(Object.entries(found).filter(([, list]) => list.length), []);
    await finish(p);
    close();
  });
}

test("hostile names are words on every page, and nothing of them runs", async () => {
  const { url, close, mock } = await server();
  for (const [i, name] of hostile.entries()) {
    mock.addCluster({ name, endpoints: [`http://h:9200/${name}`], colour: "#7a4fd0", state: "warn", why: [name] });
    mock.addGateway({ name, url: `http://h:2900/${i}`, clusters: [name], state: "bad", why: [name] });
    mock.users.push({ name, role: "none", clusters: { [mock.clusters.at(-1).id]: "operator" }, made_ms: Date.now(), seen_ms: null });
    mock.note(name, name, { reason: name, before: name, after: { name } });
  }
  const evil = mock.clusters.at(-1);
  evil.nodeNames = hostile;
  const gate = mock.gateways.at(-1);
  gate.queueNames = hostile;
  const cluster = mock.live.get(`cluster ${evil.id}`).cluster;
  for (const name of hostile) {
    cluster.indices.push(name);
    cluster.legacy.set(name, { order: 1, index_patterns: [name], settings: { [name]: name }, mappings: {} });
    cluster.indexTemplates.set(name, { index_patterns: [name, "*"], priority: 3, template: { settings: { index: { [name]: name } } } });
  }
  mock.tabs = { tabs: hostile.map((name, i) => ({ id: `t${i}`, title: name, cluster_id: evil.id, text: `GET /${name}` })), active: "t0" };
  for (const viewport of [{ width: 1360, height: 860 }, { width: 1000, height: 700 }, { width: 320, height: 640 }]) {
    const p = await page(url, { viewport });
    await logIn(p, url);
    const pages = {
      ...PAGES,
      "evil-cluster": `#/c/${encodeURIComponent(evil.id)}`,
      "evil-indices": `#/c/${encodeURIComponent(evil.id)}/indices`,
      "evil-index": `#/c/${encodeURIComponent(evil.id)}/indices/${encodeURIComponent(hostile[0])}`,
      "evil-templates": `#/c/${encodeURIComponent(evil.id)}/templates`,
      "evil-template": `#/c/${encodeURIComponent(evil.id)}/templates/legacy/${encodeURIComponent(hostile[0])}`,
      "evil-who": `#/c/${encodeURIComponent(evil.id)}/templates/who?index=${encodeURIComponent(hostile[0])}`,
      "evil-queues": `#/g/${encodeURIComponent(gate.id)}`,
      "evil-queue": `#/g/${encodeURIComponent(gate.id)}/q/${encodeURIComponent(hostile[0])}`,
      "evil-config": `#/g/${encodeURIComponent(gate.id)}/config`,
      "evil-records": `#/g/${encodeURIComponent(gate.id)}/q/${encodeURIComponent(hostile[0])}/records`,
      "evil-letters": `#/g/${encodeURIComponent(gate.id)}/q/${encodeURIComponent(hostile[0])}/letters`,
      "evil-entry": `#/registry/cluster/${encodeURIComponent(evil.id)}`,
      "evil-user": `#/users/u/${encodeURIComponent(hostile[0])}`,
      "evil-search": `#/?q=${encodeURIComponent(hostile[0])}`,
    };
    for (const [name, hash] of Object.entries(pages)) {
      await to(p, hash);
      await settled(p);
      assert.doesNotMatch(await p.title(), /pwned/, name);
      assert.equal(await p.locator("main img, main script").count(), 0, name);
      await assertFits(p, `${name} at ${viewport.width}`);
    }
    await to(p, "#/");
    await settled(p);
    assert.ok((await p.getByText("⟨202E⟩reversed").count()) > 0, "a turned name is shown by number");
    await shot(p, `hostile-${viewport.width}`, { fullPage: viewport.width > 320 });
    await finish(p);
  }
  close();
});

test("320 px: every page fits, and the menu opens", async () => {
  const { url, close } = await server();
  const p = await page(url, { viewport: { width: 320, height: 640 } });
  await logIn(p, url);
  for (const [name, hash] of Object.entries(PAGES)) {
    await to(p, hash);
    await settled(p);
    await assertFits(p, name);
    await shot(p, `${name}-320`);
  }
  await p.getByRole("button", { name: "Menu" }).click();
  await p.getByRole("link", { name: "Audit" }).click();
  await p.getByRole("heading", { level: 1, name: "Audit" }).waitFor();
  await finish(p);
  close();
});

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
    await p.waitForTimeout(1200);
    // On a busy machine, the page may show figures that are older than the API's.
    let told = await numbersDiffer(p);
    for (let tries = 0; tries < 3 && told.wrong.length; tries++) told = await numbersDiffer(p);
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
