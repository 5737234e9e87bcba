// Each page in each look: accessible, and in place with hostile names and in small windows.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertFits, closeAll, finish, logIn, page, PAGES, server, settled, shot, to, violations } from "./kit.mjs";
import { hostile } from "../mock/names.mjs";

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
