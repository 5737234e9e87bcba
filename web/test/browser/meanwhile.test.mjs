// What others do meanwhile: another admin, another console, and a server whose clock is another one.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeAll, finish, logIn, page, server, settled, to, until, violations } from "./kit.mjs";

after(closeAll);

const open = async (prepare = () => {}) => {
  const { url, close, mock } = await server();
  const p = await page(url);
  await prepare(p);
  await logIn(p, url);
  return { p, mock, close };
};

test("a form of a user gives back no role that another admin has taken away", async () => {
  const { p, mock, close } = await open();
  const dan = mock.users.find((one) => one.name === "dan");
  const puts = [];
  p.on("request", (request) => request.method() === "PUT" && puts.push(request.postDataJSON()));
  await to(p, "#/users/u/dan");
  await p.getByLabel("Role on production", { exact: true }).waitFor();
  Object.assign(dan, { role: "none", clusters: { archive: "viewer" } });
  await p.getByText("The roles of this user were changed meanwhile.").waitFor();
  assert.deepEqual(await violations(p), []);
  assert.equal(await p.getByLabel("Role", { exact: true }).inputValue(), "none");
  assert.equal(await p.getByLabel("Role on production", { exact: true }).count(), 0);
  // A password alone says nothing about roles.
  await p.getByLabel("New password").fill("another long password");
  await p.getByRole("button", { name: "Save" }).click();
  await p.getByText("User “dan” is saved.").waitFor();
  assert.deepEqual(puts, [{ password: "another long password" }]);
  // They are changed between what the page has seen and what it sends: the server refuses, and the form
  // begins anew.
  await to(p, "#/users/u/dan");
  await p.getByLabel("Role", { exact: true }).selectOption("viewer");
  await p.route("**/api/users/dan", (route) => (Object.assign(dan, { role: "none", clusters: {} }), route.fallback()));
  await p.getByRole("button", { name: "Save" }).click();
  await p.getByRole("alert").filter({ hasText: "somebody else has changed the roles of this user meanwhile" }).waitFor();
  await p.getByText("The roles of this user were changed meanwhile.").waitFor();
  assert.deepEqual([dan.role, dan.clusters, await p.getByLabel("Role", { exact: true }).inputValue()], ["none", {}, "none"]);
  await finish(p);
  close();
});

test("entries that others register, rename or protect are known on an open page", async () => {
  const { p, mock, close } = await open();
  await p.getByRole("link", { name: "staging", exact: true }).waitFor();
  mock.addCluster({ name: "brought along", endpoints: ["http://127.0.0.1:9301"] });
  await p.getByRole("link", { name: "brought along", exact: true }).click();
  await p.getByRole("heading", { level: 1, name: "brought along" }).waitFor();
  Object.assign(mock.clusters.find((one) => one.name === "brought along"), { name: "renamed", protected: true });
  await p.getByRole("heading", { level: 1, name: "renamed" }).waitFor();
  await p.locator("main").getByText("protected", { exact: true }).first().waitFor();
  // A link to an entry that no news has told of yet.
  await p.evaluate(() => (globalThis.EventSource = class { addEventListener() {} close() {} }));
  mock.mode = "silent";
  mock.addCluster({ name: "newest", endpoints: ["http://127.0.0.1:9302"] });
  await to(p, "#/c/newest");
  await p.getByRole("heading", { level: 1, name: "newest" }).waitFor();
  await to(p, "#/c/nowhere");
  await p.getByText("No cluster with this id is registered.").waitFor();
  mock.mode = "";
  await finish(p);
  close();
});

test("an answer about the registry that is late replaces none that was asked for later", async () => {
  const { p, mock, close } = await open();
  await p.getByRole("link", { name: "staging", exact: true }).waitFor();
  let late;
  const held = new Promise((done) => (late = done));
  const answers = [];
  // The first answer is made at once, and comes once another has.
  await p.route("**/api/registry", async (route) => {
    const answer = await route.fetch();
    answers.push(answer);
    if (answers.length === 1) await held;
    await route.fulfill({ response: answer });
  });
  mock.addCluster({ name: "first", endpoints: ["http://127.0.0.1:9301"] });
  await until("it is asked for", () => answers.length === 1);
  mock.addCluster({ name: "second", endpoints: ["http://127.0.0.1:9302"] });
  await until("it is asked for again", () => answers.length === 2);
  await to(p, "#/c/second");
  await p.getByRole("heading", { level: 1, name: "second" }).waitFor();
  late();
  await until("all have come", () => p.evaluate(() => !globalThis.underWay));
  await to(p, "#/");
  await to(p, "#/c/second");
  await p.getByRole("heading", { level: 1, name: "second" }).waitFor();
  await finish(p);
  close();
});

for (const [words, ahead] of [["ahead", 600_000], ["behind", -600_000]]) {
  test(`ages are by the server's clock: this browser's is ten minutes ${words}`, async () => {
    const shift = (ms) => {
      const { now } = Date;
      Date.now = () => now() + ms;
    };
    const { p, close } = await open((made) => made.context().addInitScript(shift, ahead));
    await to(p, "#/c/production");
    await p.locator("table.nodes tbody tr").first().waitFor();
    await settled(p);
    assert.equal(await p.getByText("old", { exact: false }).count(), 0);
    for (const hash of ["#/c/production/heat", "#/c/staging/indices", "#/g/gateway-1"]) {
      await to(p, hash);
      await settled(p);
      assert.equal(await p.locator(".stale").count(), 0, hash);
    }
    await to(p, "#/users");
    await p.getByRole("row").filter({ hasText: "dan" }).getByText("now").waitFor();
    await p.getByRole("row").filter({ hasText: "bo" }).getByText("3 h ago").waitFor();
    await finish(p);
    close();
  });
}
