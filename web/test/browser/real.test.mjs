// The walk-through against the real console and a real (or fake) cluster. Runs where these are given:
//
//   CONSOLE_URL   http://127.0.0.1:9000/            CONSOLE_LINK   the one-time link's secret, on its first start
//   CLUSTER_URL   http://127.0.0.1:9200             GATEWAY_URL    a gateway's admin address (optional)
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertFits, closeAll, finish, logIn, page, settled, shot, to, violations, write } from "./kit.mjs";
import { NAME, PASSWORD } from "../mock/server.mjs";

after(closeAll);
const TEMPLATE = 'PUT _template/walk\n{\n  "index_patterns": ["walk*"],\n  "settings": { "number_of_shards": 3, "number_of_replicas": 0 }\n}\n';
const { CONSOLE_URL: url, CONSOLE_LINK: link, CLUSTER_URL: cluster, GATEWAY_URL: gateway } = process.env;

test("the walk-through on the real console", { skip: !url || !link || !cluster }, async () => {
  const p = await page(url);
  await p.goto(`${url}#setup=${link}`);
  await p.getByLabel("Your name").fill(NAME);
  for (const label of ["Password", "Password again"]) await p.getByLabel(label, { exact: true }).fill(PASSWORD);
  await p.getByRole("button", { name: "Make the account" }).click();
  await p.getByRole("heading", { name: "Nothing is registered yet" }).waitFor();

  await p.getByRole("link", { name: "Register a cluster" }).click();
  await p.getByLabel("Name", { exact: true }).fill("first");
  await p.getByLabel("Addresses").fill("http://127.0.0.1:1");
  await p.getByRole("button", { name: "Test connection" }).click();
  await p.getByText("The connection fails at: Connect.").waitFor();
  await p.getByLabel("Addresses").fill(cluster);
  await p.getByRole("button", { name: "Test connection" }).click();
  await p.getByText("The connection works.").waitFor();
  await shot(p, "real-test");
  await p.getByRole("button", { name: "Save", exact: true }).click();
  await p.getByRole("link", { name: "first", exact: true }).waitFor();

  if (gateway) {
    await to(p, "#/registry/gateway/new");
    await p.getByLabel("Name", { exact: true }).fill("gateway-1");
    await p.getByLabel("Admin address").fill(gateway);
    await p.getByRole("button", { name: "Save", exact: true }).click();
    await p.getByRole("link", { name: "gateway-1" }).waitFor();
  }
  await p.waitForFunction(() => /OK|Warning/.test(document.querySelector("table.cluster tbody .state")?.textContent ?? ""));
  await p.waitForTimeout(5000);
  await shot(p, "real-overview");

  await p.getByRole("link", { name: "first", exact: true }).click();
  await settled(p);
  await p.locator("table.nodes tbody tr").first().waitFor();
  await p.waitForTimeout(2500);
  await shot(p, "real-cluster");
  await assertFits(p, "cluster");

  // The fake cluster has no templates: there an index is made.
  const templates = (await fetch(`${cluster}/_template`)).ok;
  await to(p, "#/dev");
  await p.locator(".cm-content").first().waitFor();
  await write(p, templates ? TEMPLATE : "GET _cluster/health?level=indices\n");
  await p.keyboard.press("Control+Enter");
  await p.locator(".outcome .status, .bench [role=alert]").first().waitFor();
  await shot(p, "real-dev");
  assert.equal(await p.locator(".outcome .status").textContent(), "200");
  await p.waitForFunction(() => document.querySelector(".tabs .saved").textContent === "Saved");
  await p.reload();
  await p.locator(".cm-content").first().getByText(templates ? "walk*" : "_cluster").first().waitFor();

  if (templates) {
    const id = await p.evaluate(() => fetch("api/registry").then((r) => r.json()).then((r) => r.clusters[0].id));
    await to(p, `#/c/${encodeURIComponent(id)}/templates`);
    await p.getByRole("link", { name: "walk" }).click();
    assert.equal(await p.getByLabel("Primary shards").inputValue(), "3");
    await p.getByRole("button", { name: "Delete" }).click();
    await p.locator("dialog").getByRole("button", { name: "Delete" }).click();
    await p.getByText("Template “walk” is deleted.").waitFor();
    await shot(p, "real-templates");
  }
  await to(p, "#/audit");
  await p.locator("tbody tr").first().waitFor();
  await shot(p, "real-audit");
  assert.deepEqual(await violations(p), []);
  await p.getByRole("button", { name: "Log out" }).click();
  await logIn(p, url);
  await finish(p);
});
