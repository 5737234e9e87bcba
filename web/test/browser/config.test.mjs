// A gateway's configuration: problems at their lines, what changes, the count-down, and what became of it.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertFits, closeAll, finish, logIn, page, server, settled, shot, to, until, violations } from "./kit.mjs";

after(closeAll);

const content = (p) => p.locator(".config .cm-content");

/** Types at the end of a line of the editor. */
async function typeAt(p, line, typed) {
  await content(p).click();
  await p.keyboard.press("Control+Home");
  for (let n = 1; n < line; n++) await p.keyboard.press("ArrowDown");
  await p.keyboard.press("End");
  await p.keyboard.insertText(typed);
}

async function open(options) {
  const { url, close, mock } = await server();
  const p = await page(url, options);
  await logIn(p, url);
  await to(p, "#/g/gateway-1");
  await p.getByRole("link", { name: "Configuration", exact: true }).click();
  await p.getByRole("heading", { level: 1, name: "Configuration: gateway-1" }).waitFor();
  await p.locator(".config .cm-line").first().waitFor();
  await settled(p);
  return { p, close, gateway: mock.gateways.find((one) => one.name === "gateway-1"), mock, url };
}

for (const colorScheme of ["light", "dark"]) {
  test(`checked, compared, applied and kept, ${colorScheme}`, async () => {
    const { p, close, gateway, mock } = await open({ colorScheme });
    assert.match(await content(p).textContent(), /password: "\*{8}"/);
    await typeAt(p, 8, "\n    ruoter: x");
    await p.getByRole("button", { name: "Check" }).click();
    // The problem stands below its line, and in the list, which leads to the line.
    await p.locator(".cm-words.bad").filter({ hasText: "entry[0].ruoter: unknown key; did you mean `router`?" }).waitFor();
    await p.getByRole("heading", { name: "1 error, 0 warnings" }).waitFor();
    assert.deepEqual(await violations(p), []);
    await shot(p, `config-problem-${colorScheme}`);
    await p.getByRole("button", { name: "line 9, column 5" }).click();
    await until("the editor is at the line", () => p.evaluate(() => document.querySelector(".config .editor").shadowRoot.querySelector(".cm-activeLine")?.textContent.includes("ruoter")));
    await p.getByRole("button", { name: "Compare and apply" }).click();
    assert.equal(await p.locator(".review").count(), 0, "what cannot be used is not applied");
    await content(p).click();
    await p.keyboard.press("Control+z");
    await typeAt(p, 10, "0");
    await p.getByRole("button", { name: "Compare and apply" }).click();
    await p.getByText("entries: bulk changed").waitFor();
    assert.deepEqual(await p.locator(".line-diff tr.removed, .line-diff tr.added").allTextContents(), ["10−removed    max_concurrency: 10000", "10+added    max_concurrency: 100000"]);
    assert.ok((await p.locator(".line-diff .gap").count()) === 2);
    assert.deepEqual(await violations(p), []);
    await shot(p, `config-review-${colorScheme}`, { fullPage: true });
    await p.getByRole("button", { name: "Apply", exact: true }).click();
    await p.getByText(/^It goes back in \d+ seconds unless somebody keeps it\.$/).waitFor();
    await p.getByText("The gateway is ready.").waitFor();
    const seconds = async () => Number(/\d+/.exec(await p.locator(".count-down strong").textContent())[0]);
    const first = await seconds();
    await until("it counts down", async () => (await seconds()) < first);
    assert.ok(await p.getByRole("button", { name: "Compare and apply" }).isDisabled(), "one change at a time");
    assert.deepEqual(await violations(p), []);
    await shot(p, `config-pending-${colorScheme}`);
    await p.getByRole("button", { name: "Keep it" }).click();
    await p.getByText(/^The change of .* by ann is kept\./).waitFor();
    assert.match(gateway.config.text, /max_concurrency: 100000/);
    assert.ok(mock.audit.some((one) => /^POST \/config\/_apply/.test(one.what)));
    await finish(p);
    close();
  });
}

test("what nobody keeps goes back and says so, and so does what was taken back or is not ready", async () => {
  const { p, close, gateway } = await open();
  const apply = async () => {
    await typeAt(p, 10, "0");
    await p.getByRole("button", { name: "Compare and apply" }).click();
    await p.getByRole("button", { name: "Apply", exact: true }).click();
    await p.getByRole("button", { name: "Keep it" }).waitFor();
  };
  gateway.configWithin = 3;
  await apply();
  await p.getByText(/was taken back: \(entries: bulk changed\) nobody confirmed it within 3 s/).waitFor();
  await until("the former text is shown", async () => /max_concurrency: 10000(?!0)/.test(await content(p).textContent()));
  gateway.configWithin = 60;
  await apply();
  gateway.config.notReady = ["the cluster `production` does not answer"];
  await p.getByText("The gateway is not ready: the cluster `production` does not answer. If that lasts, it goes back earlier.").waitFor();
  await p.getByRole("button", { name: "Keep it" }).click();
  await p.getByText(/409: the gateway is not ready with it/).waitFor();
  await shot(p, "config-not-ready-light");
  await p.getByRole("button", { name: "Go back now" }).click();
  await p.getByText(/was taken back: \(entries: bulk changed\) ann took it back/).waitFor();
  // Somebody else was faster.
  gateway.config.notReady = [];
  await until("the former text is shown", async () => /max_concurrency: 10000(?!0)/.test(await content(p).textContent()));
  await typeAt(p, 10, "0");
  await p.getByRole("button", { name: "Compare and apply" }).click();
  gateway.config.version++;
  await p.getByRole("button", { name: "Apply", exact: true }).click();
  await p.getByText(/409: the configuration in force is another version/).waitFor();
  // Nobody's work is lost: the text stays, and is compared with what is in force now.
  gateway.config.text = gateway.config.text.replace("0.0.0.0:8000", "0.0.0.0:8001");
  await p.getByRole("button", { name: "Try again" }).click();
  await p.getByText(/409: the configuration in force is another version/).waitFor({ state: "detached" });
  await p.getByText("Another text has come into force since you began.").waitFor();
  assert.ok(await p.getByRole("button", { name: "Compare and apply" }).isDisabled(), "it is a change of another text");
  await p.getByRole("button", { name: "Go on, and compare it with the one in force" }).click();
  await p.getByRole("button", { name: "Compare and apply" }).click();
  await p.locator(".line-diff tr.removed").filter({ hasText: "0.0.0.0:8001" }).waitFor();
  await p.locator(".line-diff tr.added").filter({ hasText: "max_concurrency: 100000" }).waitFor();
  await finish(p);
  close();
});

test("what somebody else has applied meanwhile is not undone, and a comparison holds for the text that was compared", async () => {
  const { p, close, gateway, mock } = await open();
  await typeAt(p, 10, "0");
  // Another admin's change comes into force and is kept.
  const theirs = gateway.config.text.replace("0.0.0.0:8000", "0.0.0.0:8001");
  Object.assign(gateway.config, { former: gateway.config.text, text: theirs, version: 2, applied: { actor: "cleo", state: "confirmed", changes: "entries: bulk changed", why: null, at_ms: Date.now(), within_s: 30, left_s: null, was_ready: true, not_ready: [] } });
  await p.getByText("Another text has come into force since you began.").waitFor();
  assert.deepEqual(await violations(p), []);
  assert.ok(await p.getByRole("button", { name: "Compare and apply" }).isDisabled());
  assert.match(await content(p).textContent(), /max_concurrency: 100000/, "the own text stays");
  await p.getByRole("button", { name: "Go on, and compare it with the one in force" }).click();
  // The text goes on being written while it is compared.
  let late;
  const held = new Promise((done) => (late = done));
  await p.route("**/api/gateways/*/call", async (route) => {
    if (/_diff/.test(route.request().postDataJSON()?.path)) await held;
    await route.fallback();
  });
  await p.getByRole("button", { name: "Compare and apply" }).click();
  await typeAt(p, 10, "7");
  late();
  await until("it is compared", () => p.evaluate(() => !document.querySelector("[aria-busy=true]")));
  assert.equal(await p.locator(".review").count(), 0, "another text was compared");
  await p.getByRole("button", { name: "Compare and apply" }).click();
  await p.locator(".line-diff tr.removed").filter({ hasText: "0.0.0.0:8001" }).waitFor();
  await p.locator(".line-diff tr.added").filter({ hasText: "max_concurrency: 1000007" }).waitFor();
  assert.equal(mock.audit.filter(({ what }) => /_apply/.test(what)).length, 0);
  await finish(p);
  close();
});

test("a file that cannot be replaced, one that is not in force, a restart, a viewer, a small window", async () => {
  const { p, close, gateway, mock, url } = await open({ viewport: { width: 320, height: 640 } });
  await assertFits(p, "config");
  await typeAt(p, 2, "\nworker.count: 2");
  await p.getByRole("button", { name: "Compare and apply" }).click();
  await p.getByText("A restart is needed for worker.count").waitFor();
  assert.ok(await p.getByRole("button", { name: "Apply", exact: true }).isDisabled());
  await assertFits(p, "config review");
  await shot(p, "config-320", { fullPage: true });
  Object.assign(gateway, { fileReadOnly: "Read-only file system (os error 30)", fileDiffers: true });
  await to(p, "#/g/gateway-1");
  await p.goBack();
  await p.getByText("/etc/tidegate/tidegate.yml cannot be replaced (Read-only file system (os error 30))").waitFor();
  await p.getByText("has changes that are not in force").waitFor();
  assert.ok(await p.getByRole("button", { name: "Compare and apply" }).isDisabled());
  mock.you = { role: "operator", clusters: {} };
  const viewer = await page(url);
  await logIn(viewer, url);
  await to(viewer, "#/g/gateway-1/config");
  await viewer.getByRole("heading", { name: "This needs the role admin" }).waitFor();
  await finish(viewer);
  await finish(p);
  close();
});
