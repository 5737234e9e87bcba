// A gateway's traffic: by entry, why requests went on whole, memory and nodes; equal to what the API says.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertFits, closeAll, finish, logIn, page, server, settled, shot, to, until, violations } from "./kit.mjs";

after(closeAll);

for (const colorScheme of ["light", "dark"]) {
  test(`entries, reasons, memory and nodes are shown, ${colorScheme}`, async () => {
    const { url, close } = await server();
    const p = await page(url, { colorScheme });
    await logIn(p, url);
    await p.getByRole("link", { name: "Gateway", exact: true }).click();
    await p.getByRole("heading", { level: 1, name: "gateway-1" }).waitFor();
    await settled(p);
    const first = p.getByRole("row").filter({ hasText: "0.0.0.0:8000" });
    assert.match(await first.textContent(), /^bulk0\.0\.0\.0:8000128\d+120\D?0\D?0$/);
    assert.deepEqual(await p.locator("table.flows tbody tr").allTextContents(), ["queued9609.6 k11.5 Murl_parameter 3 k unknown_index 1.5 k rights 750 and 2 other reasons", "split7136 k00.43 Munknown_index 3 k url_parameter 1.5 k ", "search2000750 k"], "the busiest first");
    const gain = p.getByRole("region", { name: "What the gateway saves its clusters (estimate)" });
    assert.match(await gain.locator("dl").textContent(), /^Hops between nodes\/s\d+\.?\d* kRequests to nodes\/s180CPU of the nodes, in cores0\.16$/);
    await gain.getByText("Documents that queues deliver are not part of it").waitFor();
    await gain.getByText("How this is estimated").click();
    await gain.getByText(/× \(1 − 1 ÷ 3 nodes\)/).waitFor();
    await gain.getByText(/requests saved × 0\.88 ms/).waitFor();
    const reasons = await p.locator("table.passed tbody tr").allTextContents();
    assert.equal(reasons.length, 3);
    assert.match(reasons[0], /^unknown_index The index does not exist \(it may be created by this very request\)\.bulk0\.44 k$/);
    assert.match(reasons[1], /^url_parameter A parameter of the URL is not known.*single write/);
    await p.getByText("nearly full").waitFor();
    const node = p.locator("table.at-nodes").first().getByRole("row").filter({ hasText: "node-3" });
    assert.match(await node.textContent(), /node-3 http:\/\/10\.0\.1\.12:9200in use526\.01 ms6\.2641$/);
    assert.equal(new URL(await p.getByRole("region", { name: "production" }).getByRole("link", { name: "production" }).evaluate((a) => a.href)).hash, "#/c/production");
    // Its queues are below, as before.
    await p.getByRole("link", { name: "logs", exact: true }).waitFor();
    assert.deepEqual(await violations(p), []);
    await shot(p, `gateway-${colorScheme}`, { fullPage: true });
    await to(p, "#/g/gateway-2?minutes=5");
    await settled(p);
    const cluster = p.getByRole("region", { name: "production" });
    await cluster.getByText("does not answer").waitFor();
    await cluster.getByText("node-3 is out: connection refused").waitFor();
    await cluster.getByRole("row").filter({ hasText: "node-3" }).getByText("out", { exact: true }).waitFor();
    assert.equal(await p.getByRole("button", { name: "5 min", exact: true }).getAttribute("aria-pressed"), "true");
    await assertFits(p, "gateway-2");
    await finish(p);
    close();
  });
}

test("the charts move, nothing passed is said as good, and a gateway that told nothing yet is said so", async () => {
  const { url, close, mock } = await server();
  mock.gateways[0].quiet = true;
  mock.gateways[1].silent = true;
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/g/gateway-1");
  await settled(p);
  await p.getByText("No bulk was passed on whole since the gateway started.").waitFor();
  const pixels = () => p.locator(".traffic .plot canvas").first().evaluate((c) => c.toDataURL());
  const before = await pixels();
  await until("the chart is another", async () => (await pixels()) !== before);
  await to(p, "#/g/gateway-2");
  await p.getByText("The gateway has not answered yet.").waitFor();
  await finish(p);
  close();
});

test("figures of a gateway that is not heard of are kept, with their age", async () => {
  const { url, close, mock } = await server();
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/g/gateway-1");
  await settled(p);
  mock.mode = "down";
  await p.locator(".traffic.stale").waitFor();
  await p.locator(".traffic").getByText(/This traffic is \d+ s old/).waitFor();
  assert.ok((await p.locator(".traffic data.num").count()) > 20);
  mock.mode = "";
  await p.locator(".traffic:not(.stale)").waitFor();
  await finish(p);
  close();
});
