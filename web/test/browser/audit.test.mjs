// Who did what: found, narrowed, looked at closely, and taken along.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, test } from "node:test";
import { closeAll, finish, logIn, page, server, settled, shot, to, until, violations } from "./kit.mjs";

after(closeAll);

const rows = (p) => p.locator("table.audit tbody tr");

for (const colorScheme of ["light", "dark"]) {
  test(`what has changed is told value by value, ${colorScheme}`, async () => {
    const { url, close } = await server();
    const p = await page(url, { colorScheme });
    await logIn(p, url);
    await to(p, "#/audit?user=ann");
    await settled(p);
    await p.getByRole("button", { name: /^Show: change roles cleo/ }).first().click();
    const dialog = p.getByRole("dialog", { name: "change roles cleo" });
    await dialog.locator(".diff tbody tr").first().waitFor();
    const cells = (await dialog.locator(".diff tbody tr").allTextContents()).map((text) => text.trim());
    assert.deepEqual(cells, ["roleviewernone", "clusters.staging(absent)admin", "clusters.archive(absent)viewer"]);
    await shot(p, `audit-change-${colorScheme}`);
    assert.deepEqual(await violations(p), []);
    await dialog.getByText("All of it").click();
    await dialog.getByText('"archive": "viewer"').waitFor();
    await p.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    // Refused logins are counted.
    await to(p, "#/audit?q=203.0.113.9");
    await p.getByRole("button", { name: /^Show: failed login console/ }).click();
    const counted = p.getByRole("dialog", { name: "failed login console" }).locator(".diff tbody tr");
    await counted.first().waitFor();
    const counts = await counted.allTextContents();
    assert.deepEqual(counts.map((text) => text.trim()).filter((text) => !/^since/.test(text)), ["address(absent)203.0.113.9", "wrong(absent)11", "throttled(absent)1204"]);
    await finish(p);
    close();
  });
}

test("the log is searched back to its beginning, and says how far it came", async () => {
  const { url, close, mock } = await server();
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/audit");
  await settled(p);
  assert.equal(await rows(p).count(), 100);
  // New entries come by themselves.
  mock.note("log in", "console", { user: "somebody-new" });
  await p.getByRole("link", { name: "somebody-new" }).waitFor();
  await p.getByRole("button", { name: "Older entries" }).click();
  await until("the address has the place", async () => /before=\d+/.test(p.url()));
  await p.getByRole("link", { name: "somebody-new" }).waitFor({ state: "detached" });
  const there = p.url();
  await p.reload();
  await settled(p);
  assert.equal(p.url(), there);
  assert.equal(await rows(p).count(), 100);
  await p.getByRole("button", { name: "Back to the newest" }).click();
  await p.getByRole("link", { name: "somebody-new" }).waitFor();
  // By text in any part; what is rare may not be in the part that was searched.
  mock.audit.at(-3).reason = "a needle";
  await p.keyboard.press("/");
  await p.keyboard.type("NEEDLE");
  await p.getByText(/None of the newest 500 entries fits; they go back to 2026-/).waitFor();
  await p.getByRole("button", { name: "Search older entries" }).click();
  await p.getByText("a needle").waitFor();
  await p.getByText(/Searched 20\d entries, back to .* That is where the log begins\./).waitFor();
  await p.getByRole("button", { name: "Clear the filter" }).click();
  // A name narrows to itself, and the address keeps it.
  await p.getByRole("link", { name: "dan" }).first().click();
  await until("only dan", async () => (await rows(p).locator("td:nth-child(2)").allTextContents()).every((name) => name === "dan"));
  await p.getByRole("link", { name: "production" }).first().click();
  assert.match(p.url(), /user=dan.*target=production/);
  await p.getByRole("cell", { name: "older than 60 days, ticket 4711" }).first().waitFor();
  // A time that is before all.
  await p.getByLabel("To").fill("2020-01-01T00:00");
  await p.getByText("No entry fits the filter.").waitFor();
  assert.match(p.url(), /to=20(19-12-31|20-01-01)T/);
  await finish(p);
  close();
});

test("what fits the filter is downloaded as NDJSON, all of it", async () => {
  const { url, close, mock } = await server();
  const p = await page(url);
  await logIn(p, url);
  const take = async (hash) => {
    await to(p, hash);
    await settled(p);
    const [download] = await Promise.all([p.waitForEvent("download"), p.getByRole("link", { name: "Download NDJSON" }).click()]);
    assert.equal(download.suggestedFilename(), "audit.ndjson");
    return readFileSync(await download.path(), "utf8").trim().split("\n").map((line) => JSON.parse(line));
  };
  assert.equal((await take("#/audit")).length, mock.audit.length);
  const dans = await take(`#/audit?user=dan&q=4711&from=${encodeURIComponent(new Date(mock.started - 40 * 86_400_000).toISOString())}`);
  const expected = mock.audit.filter((one) => one.user === "dan" && /4711/.test(one.reason ?? "") && one.at_ms >= mock.started - 40 * 86_400_000);
  assert.ok(expected.length > 10 && expected.length < 100);
  assert.deepEqual(dans.map((one) => one.id), expected.map((one) => one.id));
  await finish(p);
  close();
});
