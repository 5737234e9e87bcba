// From the first start to a template, as a new user would go, against the mock. The tests in test/real use
// the real server.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeAll, finish, logIn, page, quickest, server, settled, shot, to, until, write } from "./kit.mjs";
import { LINK, NAME, PASSWORD } from "../mock/server.mjs";

after(closeAll);

test("first start: the one-time link makes the account, a wrong one is refused in words", async () => {
  const { url, close, mock } = await server(false);
  const p = await page(url);
  await p.goto(`${url}#setup=wrong`);
  await p.getByRole("heading", { name: "Welcome" }).waitFor();
  await p.getByLabel("Your name").fill(NAME);
  await p.getByLabel("Password", { exact: true }).fill("short");
  await p.getByLabel("Password again").fill("other");
  await p.getByRole("button", { name: "Create the account" }).click();
  await p.getByText("10 characters or more.", { exact: false }).first().waitFor();
  await p.getByText("The two passwords differ.").waitFor();
  for (const label of ["Password", "Password again"]) await p.getByLabel(label, { exact: true }).fill(PASSWORD);
  await p.getByRole("button", { name: "Create the account" }).click();
  await p.getByText("This link is not the one").waitFor();
  // If the link is not in the address, it can be pasted as a whole.
  await p.goto(url);
  await p.reload();
  await p.getByLabel("One-time link").fill(`http://127.0.0.1:9000/#setup=${LINK}`);
  await p.getByLabel("Your name").fill(NAME);
  for (const label of ["Password", "Password again"]) await p.getByLabel(label, { exact: true }).fill(PASSWORD);
  await shot(p, "setup-light");
  await p.getByRole("button", { name: "Create the account" }).click();
  await p.getByRole("heading", { name: "Nothing is registered yet" }).waitFor();
  assert.equal(mock.user.name, NAME);
  await shot(p, "empty-light");

  // A gateway is registered; the test shows its steps, and the cluster comes along.
  await p.getByRole("link", { name: "Register a gateway" }).click();
  await p.getByLabel("Name").fill("gateway-1");
  await p.getByLabel("Admin address").fill("http://dns.bad:2900");
  await p.getByRole("button", { name: "Test connection" }).click();
  await p.getByText("The connection fails at: Name lookup.").waitFor();
  await p.getByRole("button", { name: "Save without a successful test" }).waitFor();
  await p.getByLabel("Admin address").fill("https://gateway-1:2900");
  await p.getByRole("button", { name: "Test connection" }).click();
  await p.getByText("The connection works.").waitFor();
  await p.getByText("Adds its clusters: demo, second").waitFor();
  await shot(p, "test-steps-light");
  await p.getByRole("button", { name: "Save", exact: true }).click();
  await p.getByRole("link", { name: "gateway-1" }).waitFor();
  await p.getByRole("link", { name: "demo" }).waitFor();

  // Log out and in again: after five wrong passwords, the page says that logins are throttled.
  await p.getByRole("button", { name: "Log out" }).click();
  // The previous page has a field for names too.
  await p.getByRole("heading", { name: "Log in" }).waitFor();
  for (let i = 0; i < 6; i++) {
    await p.getByLabel("Name").fill(NAME);
    await p.getByLabel("Password").fill("wrong");
    // The message of the previous try may still be there.
    const answered = p.waitForResponse((response) => response.url().endsWith("/api/login"));
    await p.getByRole("button", { name: "Log in" }).click();
    await answered;
    // The form is emptied when the answer arrives, so nothing typed before that is kept.
    await p.waitForFunction(() => document.querySelector("input[name=password]")?.value === "");
    await p.getByRole("alert").filter({ hasText: i < 5 ? "is wrong" : "Try again in 30 seconds" }).waitFor();
  }
  mock.wrong = 0;
  await logIn(p, url);
  await finish(p);
  close();
});

test("each failing step of a connection is named", async () => {
  const { url, close } = await server();
  const p = await page(url);
  await logIn(p, url);
  const words = { dns: "Name lookup", tcp: "Connect", tls: "TLS", auth: "Log in", version: "Version" };
  for (const [step, word] of Object.entries(words)) {
    await to(p, "#/registry");
    await to(p, "#/registry/cluster/new");
    await p.getByLabel("Name", { exact: true }).fill("x");
    await p.getByLabel("Addresses").fill(`https://${step}.bad:9200`);
    await p.getByRole("button", { name: "Test connection" }).click();
    await p.getByText(`The connection fails at: ${word}.`).waitFor();
  }
  await finish(p);
  close();
});

test("a password that is kept is not sent, one removed is", async () => {
  const { url, close, mock } = await server();
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/registry/cluster/production");
  const sent = () => p.waitForRequest((r) => r.method() === "PUT" && /api\/clusters/.test(r.url())).then((r) => r.postDataJSON());
  let [body] = await Promise.all([sent(), p.getByRole("button", { name: "Save", exact: true }).click()]);
  assert.ok(!("password" in body));
  assert.equal(body.protected, true);
  await p.getByRole("heading", { level: 1, name: "Registry" }).waitFor();
  await to(p, "#/registry/cluster/production");
  await p.getByRole("button", { name: "Remove it" }).click();
  [body] = await Promise.all([sent(), p.getByRole("button", { name: "Save", exact: true }).click()]);
  assert.equal(body.password, null);
  assert.equal(mock.clusters[0].has_password, false);
  await p.getByRole("heading", { level: 1, name: "Registry" }).waitFor();
  // A gateway's client certificate is such a secret, of several lines.
  const pem = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
  const gateway = () => p.waitForRequest((r) => r.method() === "PUT" && /api\/gateways/.test(r.url())).then((r) => r.postDataJSON());
  const change = async (how) => {
    await to(p, "#/registry/gateway/gateway-2");
    await how();
    [body] = await Promise.all([gateway(), p.getByRole("button", { name: "Save", exact: true }).click()]);
    await p.getByRole("heading", { level: 1, name: "Registry" }).waitFor();
    return body;
  };
  const field = p.getByLabel("Client certificate and its key (PEM)");
  assert.equal((await change(() => field.fill(pem))).client_pem, pem);
  assert.equal(mock.gateways.find((one) => one.name === "gateway-2").has_client_pem, true);
  assert.ok(!("client_pem" in (await change(async () => assert.equal(await field.inputValue(), "")))));
  assert.equal((await change(() => p.getByRole("button", { name: "Remove it" }).click())).client_pem, null);
  await finish(p);
  close();
});

test("YAML: what is wrong is told by line and column, what is good is added", async () => {
  const { url, close } = await server();
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/registry/import");
  await p.getByLabel("YAML").fill("clusters:\n\t- name: x");
  await p.getByRole("button", { name: "Import" }).click();
  await p.getByText("line 2, column 1").waitFor();
  await p.getByLabel("YAML").fill("clusters:\n  - name: fresh\n    endpoints: [http://h:9200]\n");
  await p.getByRole("button", { name: "Import" }).click();
  await p.getByText("Added: fresh").waitFor();
  await finish(p);
  close();
});

test("the overview lives: worst first, figures move within two seconds, and equal the API's", async () => {
  const { url, close } = await server();
  const p = await page(url);
  await logIn(p, url);
  const names = await p.locator("table.cluster tbody th a:not(.alerts-link)").allTextContents();
  assert.deepEqual(names, ["branch-office", "archive", "production", "staging"]);
  const cell = p.getByRole("row").filter({ has: p.getByRole("link", { name: "production", exact: true }) }).locator("td.big data");
  const took = await quickest(2500, async () => {
    const first = await cell.getAttribute("value");
    await p.waitForFunction(([old]) => [...document.querySelectorAll("td.big data")].every((d) => d.value !== old), [first], { timeout: 60_000 });
  });
  assert.ok(took < 2500, `${took} ms`);
  // The page shows what the server says for this second or the previous one.
  await until("it shows what the server says", async () => {
    const seen = Number(await cell.getAttribute("value"));
    const spark = await p.evaluate(() => fetch("api/overview").then((r) => r.json())).then((o) => o.rows.find((r) => r.id === "production").spark);
    return spark.slice(-4).includes(seen);
  });
  await p.keyboard.press("/");
  await p.keyboard.type("arch");
  assert.deepEqual(await p.locator("table.cluster tbody th a:not(.alerts-link)").allTextContents(), ["archive"]);
  assert.match(p.url(), /q=arch/);
  await finish(p);
  close();
});

test("the cluster's chart moves, and as a table it has the same figures", async () => {
  const { url, close } = await server();
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/c/production");
  await settled(p);
  const pixels = () => p.locator(".plot canvas").first().evaluate((c) => c.toDataURL());
  const before = await pixels();
  await until("the chart is another", async () => (await pixels()) !== before);
  const series = await p.evaluate(() => fetch("api/clusters/production/series?minutes=15").then((r) => r.json()));
  await p.getByRole("button", { name: "As table: Documents per second" }).click();
  const exact = new Intl.NumberFormat("en-US", { maximumFractionDigits: 3 });
  const rows = await p.locator(".chart").first().locator("tbody tr").allTextContents();
  const known = series.series.cluster_docs_per_s.slice(-5).map((v) => exact.format(v));
  assert.ok(known.some((v) => rows.some((row) => row.includes(v))), `${rows[0]} has one of ${known}`);
  await p.getByRole("button", { name: "As chart: Documents per second" }).click();
  // The keyboard's cursor shows a figure.
  // Until the table is gone, the first plot belongs to another chart. A plot is there once its canvas is.
  const chart = p.locator(".chart").first();
  await chart.locator(".plot canvas").waitFor();
  await chart.locator(".plot").focus();
  await p.keyboard.press("End");
  await p.keyboard.press("ArrowLeft");
  await chart.locator(".plot-told", { hasText: "whole cluster" }).waitFor();
  await finish(p);
  close();
});

test("a template is made in the dev tools, found in the list, edited in the form and simulated", async () => {
  const { url, close, mock } = await server();
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/dev?cluster=staging");
  await write(p, 'PUT _template/walk\n{\n  "index_patterns": ["walk*"],\n  "settings": { "number_of_shards": 3, "number_of_replicas": 0 }\n}\n\nGET _cluster/health\n');
  await p.keyboard.press("Control+Home");
  await p.keyboard.press("Control+Enter");
  await p.locator(".outcome .status", { hasText: "200" }).waitFor();
  assert.match(await p.locator(".editor").nth(1).locator(".cm-content").textContent(), /"acknowledged": true/);
  // Numbers beyond 2^53 are shown digit by digit.
  await p.keyboard.press("Control+End");
  await p.keyboard.press("Control+Enter");
  await p.locator(".editor").nth(1).getByText("12345678901234567890").waitFor();
  await to(p, "#/c/staging/templates");
  await p.getByRole("link", { name: "walk" }).click();
  assert.equal(await p.getByLabel("Primary shards").inputValue(), "3");
  await p.getByLabel("Primary shards").fill("5");
  await p.getByLabel("Strings become keywords").check();
  await p.getByRole("button", { name: "Simulate" }).click();
  await p.getByRole("cell", { name: "legacy template walk" }).first().waitFor();
  await p.getByRole("button", { name: "Save" }).click();
  await p.getByText("is saved. It applies to indices created from now on.").waitFor();
  const saved = mock.live.get("cluster staging").cluster.legacy.get("walk");
  assert.equal(saved.settings["index.number_of_shards"], 5);
  assert.equal(saved.mappings.dynamic_templates[0].strings.mapping.ignore_above, 256);
  await to(p, "#/c/staging/templates/who?index=logs-2026.11.23");
  await p.getByRole("row", { name: /index\.number_of_replicas 0 index template logs 1 \(component template fast-writes\)/ }).waitFor();
  await finish(p);
  close();
});

test("dev tools: tabs live on the server, suggestions by flavour, curl, cancel, a large answer", async () => {
  const { url, close, mock } = await server();
  const p = await page(url, { permissions: ["clipboard-read", "clipboard-write"] });
  await logIn(p, url);
  await to(p, "#/dev?cluster=staging");
  const editor = p.locator(".editor").first().locator(".cm-content");
  await write(p, "GET lo");
  await p.keyboard.press("Control+Space");
  await p.locator(".cm-tooltip-autocomplete").getByText("logs-2026.11.22").waitFor();
  await p.keyboard.press("Escape");
  await write(p, "GET _plug");
  await p.keyboard.press("Control+Space");
  await p.locator(".cm-tooltip-autocomplete li").first().waitFor();
  await shot(p, "suggest-light");
  await p.keyboard.press("Escape");
  await write(p, "PUT /it\n{\"a\": \"it's\"}");
  await p.getByRole("button", { name: "Copy as curl" }).click();
  assert.equal(await p.evaluate(() => navigator.clipboard.readText()), `curl -X PUT http://127.0.0.1:9201/it -H 'Content-Type: application/json' --data-binary '{"a": "it'\\''s"}'`);
  await p.getByRole("button", { name: "Paste curl" }).click();
  await p.getByRole("textbox", { name: "curl command" }).fill("curl -XPOST h:9200/pasted/_doc -d '{\"n\":1}'");
  await p.getByRole("button", { name: "Insert" }).click();
  await editor.getByText("/pasted/_doc").waitFor();
  await p.locator(".saved.saved", { hasText: "Saved" }).waitFor();
  await p.waitForFunction(() => document.querySelector(".tabs .saved").textContent === "Saved");
  assert.match(mock.tabs.tabs[0].text, /pasted/);

  await p.getByRole("button", { name: "New tab" }).click();
  await write(p, "GET _slow");
  await p.keyboard.press("Control+Enter");
  await p.getByRole("button", { name: "Cancel" }).click();
  await p.getByText("Cancelled. The cluster was told to stop").waitFor();
  await until("the call was given up at the server too", () => mock.cancelled === true);

  await write(p, "GET _big?rows=120000");
  const stalls = await p.evaluate(() => {
    globalThis.stalls = [];
    new PerformanceObserver((list) => list.getEntries().forEach((e) => globalThis.stalls.push(e.duration))).observe({ type: "longtask" });
    return 0;
  });
  assert.equal(stalls, 0);
  await p.keyboard.press("Control+Enter");
  await p.locator(".outcome .status", { hasText: "200" }).waitFor({ timeout: 60_000 });
  const nodes = await p.evaluate(() => document.querySelectorAll(".editor")[1].shadowRoot.querySelectorAll("*").length);
  assert.ok(nodes < 3000, `${nodes} nodes drawn of 9 MB`);
  const longest = await p.evaluate(() => Math.max(0, ...globalThis.stalls));
  assert.ok(longest < 1500, `no stall of ${longest} ms`);
  await p.reload();
  await p.getByRole("button", { name: "Tab 2", exact: true }).waitFor();
  assert.match(await editor.textContent(), /_big/);
  await finish(p);
  close();
});

test("read-only refuses, protected asks for a name and a reason, and the audit list has it", async () => {
  const { url, close } = await server();
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/dev?cluster=archive");
  const run = async (text) => {
    await write(p, text);
    await p.keyboard.press("Control+Enter");
  };
  await run("DELETE orders");
  await p.getByRole("alert").filter({ hasText: "read-only in this console" }).waitFor();
  await to(p, "#/dev?cluster=production");
  await p.waitForFunction(() => document.querySelector(".bar select").value === "production");
  await run("DELETE orders");
  await p.getByRole("heading", { name: "This needs your confirmation" }).waitFor();
  assert.ok(await p.getByRole("button", { name: "Do it" }).isDisabled());
  await p.locator("dialog").getByLabel("Name").fill("orders");
  await p.locator("dialog").getByLabel("Reason").fill("moved to archive");
  await p.getByRole("button", { name: "Do it" }).click();
  await p.locator(".outcome .status").waitFor();
  await to(p, "#/audit");
  await p.getByRole("row", { name: /DELETE \/orders production moved to archive/ }).waitFor();
  await finish(p);
  close();
});
