// Alerts: on the overview and on their page, silenced for a time, and the webhook that tells of them.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeAll, finish, logIn, page, server, settled, shot, to, until, violations } from "./kit.mjs";

after(closeAll);

for (const colorScheme of ["light", "dark"]) {
  test(`an alert is seen, silenced with a reason, and told of again, ${colorScheme}`, async () => {
    const { url, close, mock } = await server();
    const p = await page(url, { colorScheme });
    await logIn(p, url);
    // The overview leads to them, and the rail counts those that are not silenced.
    await p.getByRole("row").filter({ hasText: "branch-office" }).getByRole("link", { name: "1 alert" }).click();
    await p.getByRole("heading", { level: 1, name: "Alerts" }).waitFor();
    assert.match(await p.getByRole("link", { name: /^Alerts/ }).textContent(), /Alerts2/);
    await settled(p);
    const rows = p.locator("table.alerts").first().locator("tbody tr");
    assert.equal(await rows.count(), 3);
    assert.match(await rows.first().textContent(), /Trouble.*No answer.*branch-office.*connection refused.*3 min ago/s);
    assert.match(await rows.nth(2).textContent(), /silenced for 5 h.*dan: the mapping is mended on Monday/s);
    await p.getByText("The 8 rules").click();
    assert.deepEqual(await violations(p), []);
    await shot(p, `alerts-${colorScheme}`, { fullPage: true });
    await p.getByRole("button", { name: "Silence: No answer branch-office" }).click();
    const dialog = p.getByRole("dialog");
    await dialog.getByRole("button", { name: "Silence" }).click();
    await dialog.getByText("Say why.").waitFor();
    await dialog.getByLabel("For").selectOption("480");
    await dialog.getByLabel("Reason").fill("the line is dug up");
    await shot(p, `alerts-silence-${colorScheme}`);
    await p.keyboard.press("Enter");
    await rows.first().getByText("silenced for 8 h").waitFor();
    assert.equal(mock.alerts.active[0].silence.reason, "the line is dug up");
    await until("one is left in the rail", async () => /Alerts1/.test(await p.getByRole("link", { name: /^Alerts/ }).textContent()));
    await p.getByRole("button", { name: "End the silence: No answer branch-office" }).click();
    await rows.first().getByRole("button", { name: /^Silence/ }).waitFor();
    mock.alerts.active = [];
    await p.getByText("Nothing is wrong.").waitFor();
    await finish(p);
    close();
  });
}

test("the webhook is tried, saved without its secrets on the page, and removed", async () => {
  const { url, close, mock } = await server();
  mock.alerts.delivery = { waiting: 4, taken_ms: null, failed_ms: mock.started, failed: "it answers 503 Service Unavailable", failures: 6, dropped: 2 };
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/alerts");
  await p.getByRole("link", { name: "Webhook" }).click();
  await p.getByText("Stored: https://alerts.example:443, with a path that is not shown.").waitFor();
  await p.getByText(/Not taken 6 times in a row/).waitFor();
  await shot(p, "webhook");
  await p.getByLabel("Address").fill("alerts.example");
  await p.getByRole("button", { name: "Save" }).click();
  await p.getByText("An address like https://alerts.example/hook is needed.").waitFor();
  await p.getByLabel("Address").fill("https://refusing.example/hook/hunter2");
  await p.getByRole("button", { name: "Send a test message" }).click();
  await p.getByText("The receiver has not taken the test message: it answers 503 Service Unavailable").waitFor();
  await p.getByLabel("Address").fill("https://new.example/hook/hunter2");
  await p.getByLabel("Token").fill("s3cret");
  await p.getByRole("button", { name: "Send a test message" }).click();
  await p.getByText("The receiver has taken the test message.").waitFor();
  assert.deepEqual(mock.alerts.sent.at(-1), { url: "https://new.example/hook/hunter2", secret: "s3cret", ca_pem: null, verify: true });
  await p.getByRole("button", { name: "Save" }).click();
  await p.getByRole("heading", { level: 1, name: "Alerts" }).waitFor();
  await to(p, "#/alerts/webhook");
  await p.getByText("Stored: https://new.example").waitFor();
  assert.doesNotMatch(await p.content(), /hunter2|s3cret/);
  await p.getByRole("button", { name: "Remove", exact: true }).first().click();
  await p.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await p.getByText("Nobody is told: no webhook is set.").waitFor();
  // Without the role admin, neither the webhook nor a button is there.
  mock.you = { role: "none", clusters: { "branch-office": "viewer" } };
  await p.getByText("Alerts are shown here and in the overview only: no webhook is set.").waitFor();
  await until("one row", async () => (await p.locator("table.alerts").first().locator("tbody tr").count()) === 1);
  assert.equal(await p.getByRole("button", { name: /^Silence/ }).count(), 0);
  await to(p, "#/alerts/webhook");
  await p.getByRole("heading", { name: /admin/ }).waitFor();
  await finish(p);
  close();
});

test("an open page says that it asks by itself, and what a user asks for does not say so", async () => {
  const { url } = await server();
  const p = await page(url);
  const polls = { alerts: [], silence: [] };
  p.on("request", (request) => {
    const path = new URL(request.url()).pathname;
    const of = path.endsWith("/api/alerts") ? polls.alerts : path.endsWith("/_silence") ? polls.silence : [];
    of.push(request.headers()["x-poll"] ?? null);
  });
  await logIn(p, url);
  await p.getByRole("link", { name: /^Alerts/ }).click();
  await until("the page asks again", async () => polls.alerts.length >= 3);
  assert.deepEqual(polls.alerts.slice(0, 3), [null, "1", "1"]);
  await p.getByRole("button", { name: "Silence: No answer branch-office" }).click();
  await p.getByRole("dialog").getByLabel("Reason").fill("the line is dug up");
  await p.keyboard.press("Enter");
  await until("it is silenced", async () => polls.silence.length === 1);
  assert.deepEqual(polls.silence, [null]);
  await finish(p);
});
