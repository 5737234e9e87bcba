// Users and roles: what an admin changes, and what those with less see of each page.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertFits, closeAll, finish, logIn, page, server, settled, shot, to, until, violations } from "./kit.mjs";
import { NAME, PASSWORD } from "../mock/server.mjs";

after(closeAll);

for (const colorScheme of ["light", "dark"]) {
  test(`a page that the role does not reach names the one that is missing, ${colorScheme}`, async () => {
    const { url, close, mock } = await server();
    mock.you = { role: "none", clusters: { staging: "viewer" } };
    const p = await page(url, { colorScheme });
    await logIn(p, url);
    assert.deepEqual(await p.locator("main th a").allTextContents(), ["staging"], "only what may be seen is a row");
    const nav = p.getByRole("navigation", { name: "Pages" });
    assert.equal(await nav.getByRole("link", { name: /Audit|Users/ }).count(), 0);
    const forbidden = { users: "admin", audit: "admin", "registry/import": "admin", "registry/cluster/new": "admin", "registry/gateway/new": "admin", "registry/cluster/staging": "admin", "registry/cluster/production": "viewer", "c/production": "viewer", "c/archive/templates": "viewer", "g/gateway-1": "viewer", "g/gateway-2/q/ingest/letters": "viewer" };
    for (const [hash, role] of Object.entries(forbidden)) {
      await to(p, `#/${hash}`);
      await p.getByRole("heading", { name: `This needs the role ${role}` }).waitFor();
      await p.getByText(/and yours is (none|viewer)\. An admin of this console can give it to you/).waitFor();
      assert.deepEqual(await violations(p), [], hash);
      await assertFits(p, hash);
    }
    await shot(p, `forbidden-${colorScheme}`);
    // What there is not is told as that.
    await to(p, "#/c/nowhere");
    await p.getByText("No cluster with this id is registered.").waitFor();
    await finish(p);
    close();
  });
}

test("with less than the role, pages can be looked at and say what cannot be done", async () => {
  const { url, close, mock } = await server();
  mock.you = { role: "viewer", clusters: {} };
  const p = await page(url);
  await logIn(p, url);
  assert.equal(await p.locator("main table.cluster tbody tr").count(), 4);
  await to(p, "#/registry");
  await p.getByText("Registering, changing and removing needs the role admin, and yours is viewer.").waitFor();
  assert.equal(await p.getByRole("main").getByRole("link", { name: /Register|Import/ }).count(), 0);
  assert.equal(await p.locator("main tbody th a").count(), 0, "no entry leads to its form");
  await shot(p, "registry-viewer-light");
  await to(p, "#/c/staging/templates/index/logs");
  await p.getByText("Saving and deleting templates needs the role operator, and yours is viewer.").waitFor();
  assert.equal(await p.getByRole("button", { name: /^(Save|Delete)$/ }).count(), 0);
  await p.getByRole("button", { name: "Simulate" }).waitFor();
  await to(p, "#/g/gateway-1/q/logs/letters");
  await p.getByText("Changing, replaying and throwing away dead letters needs the role operator").waitFor();
  for (const name of ["Change all", "Replay", "Throw away"]) assert.ok(await p.getByRole("button", { name, exact: true }).isDisabled(), name);
  await shot(p, "letters-viewer-light");
  await to(p, "#/g/gateway-1/q/logs");
  await p.getByText("to-archive: running").waitFor();
  assert.equal(await p.getByRole("button", { name: "Stop to-archive" }).count(), 0);
  // The server refuses what is tried all the same, in words.
  await to(p, "#/dev?cluster=staging");
  await p.locator(".cm-content").first().waitFor();
  const { status, text } = await p.evaluate(async () => {
    const answer = await fetch("api/clusters/staging/call", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ method: "DELETE", path: "/logs" }) });
    return { status: answer.status, text: await answer.text() };
  });
  assert.equal(status, 403);
  assert.match(text, /this needs the role operator on this cluster, and yours is viewer/);
  await finish(p);
  close();
});

test("where the console's token only reads, pages say so and do not offer to act", async () => {
  const { url, close, mock } = await server();
  mock.gateways[0].right = "read";
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/g/gateway-1/q/logs");
  await p.getByText("Starting and stopping pipelines needs a token of the gateway with the right operate").waitFor();
  await p.getByText("to-archive: running").waitFor();
  assert.equal(await p.getByRole("button", { name: "Stop to-archive" }).count(), 0);
  assert.deepEqual(await violations(p), []);
  await to(p, "#/g/gateway-1/q/logs/letters");
  await p.getByText("Changing, replaying and throwing away dead letters needs a token").waitFor();
  for (const name of ["Change all", "Replay", "Throw away"]) assert.ok(await p.getByRole("button", { name, exact: true }).isDisabled(), name);
  await shot(p, "letters-token-light");
  await to(p, "#/g/gateway-1/config");
  await p.getByText("Checking and changing the configuration needs a token").waitFor();
  for (const name of ["Check", "Compare and apply"]) assert.ok(await p.getByRole("button", { name, exact: true }).isDisabled(), name);
  // A token with more holds at once.
  mock.gateways[0].right = "operate";
  await p.getByText("Checking and changing the configuration needs a token").waitFor({ state: "detached" });
  await to(p, "#/g/gateway-1/q/logs");
  await p.getByRole("button", { name: "Stop to-archive" }).waitFor();
  await finish(p);
  close();
});

test("another role holds at once on a page that is open", async () => {
  const { url, close, mock } = await server();
  mock.you = { role: "viewer", clusters: {} };
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/g/gateway-1/q/logs");
  await p.getByText("to-archive: running").waitFor();
  mock.you = { role: "viewer", clusters: { production: "operator", archive: "operator" } };
  await p.getByRole("button", { name: "Stop to-archive" }).waitFor();
  mock.you = { role: "operator", clusters: { archive: "viewer" } };
  await p.getByRole("button", { name: "Stop to-archive" }).waitFor({ state: "detached" });
  mock.you = { role: "operator", clusters: { archive: "none" } };
  await p.getByRole("heading", { name: "This needs the role viewer" }).waitFor();
  mock.you = { role: "admin", clusters: {} };
  await p.getByRole("button", { name: "Stop to-archive" }).waitFor();
  await p.getByRole("link", { name: "Users" }).waitFor();
  mock.you = { role: "none", clusters: {} };
  await to(p, "#/");
  await p.getByText("Nothing is shown to you yet").waitFor();
  await shot(p, "overview-nothing-light");
  await finish(p);
  close();
});

test("an admin adds a user, gives roles on single clusters, sets a password and removes; the last admin stays", async () => {
  const { url, close, mock } = await server();
  const p = await page(url);
  await logIn(p, url);
  await p.keyboard.press("g");
  await p.keyboard.press("u");
  await p.getByRole("heading", { level: 1, name: "Users" }).waitFor();
  await p.getByRole("row").filter({ hasText: "cleo" }).getByText("admin on staging").waitFor();
  await p.getByRole("row").filter({ hasText: "cleo" }).getByText("not logged in").waitFor();
  await p.getByRole("link", { name: "Add a user" }).click();
  await p.getByLabel("Name", { exact: true }).fill("eve");
  await p.getByLabel("Password", { exact: true }).fill("short");
  await p.getByRole("button", { name: "Save" }).click();
  await p.getByRole("alert").filter({ hasText: "needs 10 characters" }).waitFor();
  await p.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await p.getByLabel("Role", { exact: true }).selectOption("none");
  await p.getByLabel("Another role on").selectOption("staging");
  await p.getByLabel("Role on staging", { exact: true }).selectOption("operator");
  await p.getByLabel("Another role on").selectOption("archive");
  await p.getByRole("button", { name: "No other role on archive" }).click();
  await p.getByRole("button", { name: "Save" }).click();
  await p.getByText("User “eve” is saved.").waitFor();
  const eve = () => mock.users.find((one) => one.name === "eve");
  assert.deepEqual([eve().role, eve().clusters], ["none", { staging: "operator" }]);
  // Live: a change, with the password kept; then with another one.
  await p.getByRole("link", { name: "eve" }).click();
  await p.getByLabel("Role", { exact: true }).selectOption("viewer");
  await p.getByRole("button", { name: "Save" }).click();
  await until("she is a viewer", () => eve().role === "viewer");
  await p.getByRole("link", { name: "eve" }).click();
  await p.getByLabel("New password").fill("another long password");
  await p.getByRole("button", { name: "Save" }).click();
  await until("the password is set", () => mock.passwords.length === 2);
  assert.deepEqual(mock.passwords, [["eve", null], ["eve", "another long password"]]);
  await p.getByRole("link", { name: "eve" }).click();
  await p.getByRole("button", { name: "Remove" }).click();
  await p.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await p.getByText("User “eve” is removed.").waitFor();
  assert.equal(eve(), undefined);
  // Nobody locks all admins out.
  await p.getByRole("link", { name: NAME, exact: true }).click();
  await p.getByLabel("Role", { exact: true }).selectOption("viewer");
  await p.getByRole("button", { name: "Save" }).click();
  await p.getByRole("alert").filter({ hasText: "the last user with the role admin" }).waitFor();
  await to(p, "#/users/u/nobody");
  await p.getByText("There is no such user").waitFor();
  await finish(p);
  close();
});

test("everybody sees the own roles and changes the own password", async () => {
  const { url, close, mock } = await server();
  mock.you = { role: "viewer", clusters: { staging: "operator" } };
  const p = await page(url);
  await logIn(p, url);
  await p.getByRole("button", { name: "You: ann viewer" }).click();
  const dialog = p.getByRole("dialog", { name: NAME });
  await dialog.getByText("looks, and makes calls that only read").waitFor();
  assert.match(await dialog.getByRole("listitem").nth(1).textContent(), /operator\s+staging/);
  const fill = async (old, one, two) => {
    await dialog.getByLabel("Old password").fill(old);
    await dialog.getByLabel("New password", { exact: true }).fill(one);
    await dialog.getByLabel("New password again").fill(two);
    await dialog.getByRole("button", { name: "Change password" }).click();
  };
  await fill("wrong", "a long new password", "another long new one");
  await dialog.getByText("The two passwords differ.").waitFor();
  await fill("wrong", "a long new password", "a long new password");
  await dialog.getByText("the old password is wrong").waitFor();
  assert.deepEqual(await violations(p), []);
  await shot(p, "you-light");
  await fill(PASSWORD, "a long new password", "a long new password");
  await p.getByText("Your password is changed.").waitFor();
  await dialog.waitFor({ state: "detached" });
  assert.equal(mock.user.password, "a long new password");
  await finish(p);
  close();
});
