// Two people at the real console: one changes what the other may do, and the audit log has all of it.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, test } from "node:test";
import { closeAll, finish, page, settled, shot, to, until } from "../browser/kit.mjs";
import { NAME, PASSWORD } from "../mock/server.mjs";

const { CONSOLE_URL: url, CONSOLE_LINK: link, CLUSTER_URL: cluster } = process.env;
assert.ok(url && link && cluster, "CONSOLE_URL, CONSOLE_LINK and CLUSTER_URL are not given");
after(closeAll);

const run = async (p, text) => {
  await p.locator(".editor").first().locator(".cm-content").click();
  await p.keyboard.press("Control+a");
  await p.keyboard.press("Delete");
  await p.keyboard.insertText(text);
  await p.keyboard.press("Control+Home");
  await p.keyboard.press("Control+Enter");
};

test("an admin gives and takes roles, the other's page follows, and the log tells it", async () => {
  const admin = await page(url);
  await admin.goto(`${url}#setup=${link}`);
  await admin.getByLabel("Your name").fill(NAME);
  for (const label of ["Password", "Password again"]) await admin.getByLabel(label, { exact: true }).fill(PASSWORD);
  await admin.getByRole("button", { name: "Create the account" }).click();
  await admin.getByRole("link", { name: "Register a cluster" }).click();
  for (const name of ["prod", "secret"]) {
    await to(admin, "#/registry");
    await to(admin, "#/registry/cluster/new");
    await admin.getByLabel("Name", { exact: true }).fill(name);
    await admin.getByLabel("Addresses").fill(cluster);
    await admin.getByRole("button", { name: "Save", exact: true }).click();
    await admin.getByText(`“${name}” is saved.`).waitFor();
  }
  const role = async (everywhere, prod) => {
    await to(admin, "#/users");
    await to(admin, "#/users/u/eve");
    await admin.getByLabel("Role", { exact: true }).selectOption(everywhere);
    if (prod) await admin.getByLabel("Role on prod", { exact: true }).selectOption(prod);
    await admin.getByRole("button", { name: "Save" }).click();
    await admin.getByRole("heading", { level: 1, name: "Users" }).waitFor();
  };
  await to(admin, "#/users/new");
  await admin.getByLabel("Name", { exact: true }).fill("eve");
  await admin.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await admin.getByLabel("Role", { exact: true }).selectOption("none");
  await admin.getByLabel("Another role on").selectOption({ label: "prod" });
  await admin.getByRole("button", { name: "Save" }).click();
  await admin.getByText("User “eve” is saved.").waitFor();
  await shot(admin, "real-users");

  const eve = await page(url);
  await eve.goto(url);
  await eve.getByLabel("Name").fill("eve");
  await eve.getByLabel("Password").fill(PASSWORD);
  await eve.getByRole("button", { name: "Log in" }).click();
  await eve.getByRole("link", { name: "prod", exact: true }).waitFor();
  assert.equal(await eve.getByText("secret").count(), 0);
  await to(eve, "#/users");
  await eve.getByRole("heading", { name: "This needs the role admin" }).waitFor();
  const secret = (await admin.evaluate(() => fetch("api/registry").then((r) => r.json()))).clusters.find((one) => one.name === "secret").id;
  const prod = (await admin.evaluate(() => fetch("api/registry").then((r) => r.json()))).clusters.find((one) => one.name === "prod").id;
  await to(eve, `#/c/${secret}`);
  await eve.getByRole("heading", { name: "This needs the role viewer" }).waitFor();
  // She reads, and does not write; then she does, in the page that was open.
  await to(eve, `#/dev?cluster=${prod}`);
  await eve.locator(".cm-content").first().waitFor();
  await run(eve, "GET /_cluster/health\n");
  await eve.locator(".outcome .status", { hasText: "200" }).waitFor();
  await run(eve, 'PUT /notes/_doc/1\n{"a": 1}\n');
  await eve.getByText("this needs the role operator on this cluster, and yours is viewer").first().waitFor();
  await role("none", "operator");
  await eve.getByRole("toolbar").getByText("viewer", { exact: true }).waitFor({ state: "detached" });
  await run(eve, 'PUT /notes/_doc/1\n{"a": 1}\n');
  await eve.locator(".outcome .status", { hasText: "201" }).waitFor();
  await role("none", "none");
  await to(eve, "#/");
  await eve.getByText("Nothing is shown to you yet").waitFor();
  await role("viewer", "viewer");
  await eve.getByRole("link", { name: "secret", exact: true }).waitFor();

  // All of that is in the log, and in what is downloaded of it.
  await to(admin, "#/audit?user=eve");
  await settled(admin);
  const deeds = await admin.locator("table.audit tbody td:nth-child(3)").allTextContents();
  assert.deepEqual(deeds, ["PUT /notes/_doc/1", "log in"]);
  await to(admin, "#/audit?target=eve");
  await admin.getByRole("cell", { name: "add user", exact: true }).waitFor();
  await admin.getByRole("button", { name: /^Show: change roles eve/ }).last().click();
  await admin.getByRole("dialog").getByRole("row", { name: /clusters\.prod viewer operator/ }).waitFor();
  await shot(admin, "real-audit");
  await admin.keyboard.press("Escape");
  await to(admin, "#/audit");
  await settled(admin);
  const [download] = await Promise.all([admin.waitForEvent("download"), admin.getByRole("link", { name: "Download NDJSON" }).click()]);
  const lines = readFileSync(await download.path(), "utf8").trim().split("\n").map((line) => JSON.parse(line));
  const whats = lines.filter((one) => one.target === "eve").map((one) => one.what);
  assert.deepEqual(whats, ["change roles", "change roles", "change roles", "add user"]);
  assert.equal(await admin.locator("table.audit tbody tr").count(), lines.length);
  assert.doesNotMatch(JSON.stringify(lines), new RegExp(`${PASSWORD}|argon`));

  // One who is removed is out at once.
  await to(admin, "#/users/u/eve");
  await admin.getByRole("button", { name: "Remove" }).click();
  await admin.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await eve.getByRole("heading", { name: "Log in" }).waitFor();
  await until("no request of hers was foreign", async () => eve.wrongs.length === 0);
  await finish(eve);
  await finish(admin);
});
