// The page "Where is my document?".
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeAll, finish, logIn, page, server, settled, shot, to } from "./kit.mjs";

after(closeAll);

for (const colorScheme of ["light", "dark"]) {
  test(`a document is told for each group and cluster, by a link and by the form, ${colorScheme}`, async () => {
    const { url, close } = await server();
    const p = await page(url, { colorScheme });
    await logIn(p, url);
    await p.keyboard.press("g");
    await p.keyboard.press("w");
    await p.getByRole("heading", { name: "Where is my document?" }).waitFor();
    await shot(p, `trace-nothing-${colorScheme}`);
    await p.getByLabel("Index, alias").fill("logs");
    await p.getByLabel("Document’s id").fill("a/b?c=d&é");
    await p.getByLabel("Gateway").last().selectOption("gateway-1");
    const asked = p.waitForRequest((request) => request.url().endsWith("/api/gateways/gateway-1/call"));
    await p.getByRole("button", { name: "Look", exact: true }).click();
    assert.equal(JSON.parse((await asked).postData()).path, "/trace?index=logs&id=a%2Fb%3Fc%3Dd%26%C3%A9");
    await p.getByRole("region", { name: "Clusters" }).waitFor();
    const fates = await p.locator(".fate h3").allTextContents();
    assert.deepEqual(fates.map((one) => one.trim()), ["production indexed", "archive pending", "spare parked", "old dead letter"]);
    await p.getByText("behind 4,032 documents. About 40 s at the lane’s present rate (an estimate).").waitFor();
    await p.getByText("node-7 has no time: 429").first().waitFor();
    await p.getByText(/has it, in logs-2026.11.23 version 3, sequence number 1,204/).waitFor();
    await p.getByRole("alert").filter({ hasText: "no answer within 2 s" }).waitFor();
    await p.getByText(/from position 1,200 to 99,000; the queue has 0 to 99,000/).waitFor();
    assert.equal(new URL(await p.getByRole("link", { name: "position 77,700" }).evaluate((a) => a.href)).hash, "#/g/gateway-1/q/logs/records?from=77700");
    await shot(p, `trace-${colorScheme}`);
    // The address alone is enough to come back.
    const there = p.url();
    assert.match(there, /#\/trace\?g=gateway-1&index=logs&id=a%2Fb%3Fc%3Dd%26%C3%A9$/);
    await to(p, "#/");
    await p.goto(there);
    await p.reload();
    await settled(p);
    assert.equal(await p.locator(".fate").count(), 4);
    // A dead letter links to itself, with a permanent address.
    await p.getByRole("link", { name: "Letter 1000" }).click();
    const letter = p.getByRole("dialog", { name: "Letter 1000" });
    await letter.getByText("400 mapper_parsing_exception", { exact: false }).waitFor();
    assert.match(p.url(), /#\/g\/gateway-1\/q\/logs\/letters\?letter=1000$/);
    await p.reload();
    await letter.getByText("400 mapper_parsing_exception", { exact: false }).waitFor();
    await letter.getByRole("button", { name: "Close" }).click();
    await letter.waitFor({ state: "detached" });
    assert.match(p.url(), /letters$/);
    await to(p, "#/g/gateway-1/q/logs/letters?letter=7");
    await p.getByRole("dialog").getByText("there is no dead letter 7").waitFor();
    await finish(p);
    close();
  });
}

test("not seen is never said without how far was looked; what failed, was cut off or has no queue is said", async () => {
  const { url, close } = await server();
  const p = await page(url);
  await logIn(p, url);
  const look = async (index) => {
    await to(p, "#/");
    await to(p, `#/trace?g=gateway-1&index=${index}&id=1`);
    await settled(p);
  };
  await look("none");
  await p.getByText("not seen", { exact: true }).waitFor();
  await p.getByText(/Found 0 writes of it in 978 records/).waitFor();
  await look("cut");
  await p.getByText(/Time ran out before the end/).waitFor();
  await p.getByText(/2 parts could not be read/).waitFor();
  await p.getByText(/Not all parked documents/).waitFor();
  const asked = p.waitForRequest((request) => /call$/.test(request.url()));
  await p.getByRole("button", { name: "Go on" }).click();
  assert.match(JSON.parse((await asked).postData()).path, /queue=logs&from=40000$/);
  // The page can be reached from a letter and from a record.
  for (const [from, row] of [["letters", "1000"], ["records", null]]) {
    await to(p, `#/g/gateway-1/q/logs/${from}`);
    await settled(p);
    if (row) await p.locator("tbody tr").first().getByRole("button").first().click();
    else await p.locator("tbody summary").first().click();
    const link = p.getByRole("link", { name: "Where is it now?" }).first();
    const hash = new URL(await link.evaluate((a) => a.href)).hash;
    assert.match(hash, /^#\/trace\?g=gateway-1&index=(orders-2026\.11|logs)&id=\d+$/);
    await link.click();
    await p.locator(".fate").first().waitFor();
  }
  await look("broken");
  await p.getByRole("alert").filter({ hasText: "the disk cannot be read" }).waitFor();
  await look("direct");
  await p.getByText(/This gateway has no queue/).waitFor();
  await finish(p);
  close();
});
