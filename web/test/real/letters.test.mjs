// Dead letters on the real console and a real gateway, as `crates/cli/tests/real_console.rs` starts them:
// LETTERS of them, refused for one field, in the queue `q` of the gateway at GATEWAY_URL.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeAll, finish, page, settled, shot, to, violations } from "../browser/kit.mjs";
import { NAME, PASSWORD } from "../mock/server.mjs";

const { CONSOLE_URL: url, CONSOLE_LINK: link, GATEWAY_URL: gateway } = process.env;
const letters = Number(process.env.LETTERS);
const said = letters.toLocaleString("en-US");
after(closeAll);

test("letters of one fault are found together, changed with a preview, and replayed", async () => {
  const p = await page(url);
  p.setDefaultTimeout(60_000);
  await p.goto(`${url}#setup=${link}`);
  await p.getByLabel("Your name").fill(NAME);
  for (const label of ["Password", "Password again"]) await p.getByLabel(label, { exact: true }).fill(PASSWORD);
  await p.getByRole("button", { name: "Create the account" }).click();
  await p.getByRole("heading", { name: "Nothing is registered yet" }).waitFor();
  const id = await p.evaluate(async (address) => {
    const answer = await fetch("api/gateways", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ name: "gw", url: address, verify: true }) });
    return (await answer.json()).id;
  }, gateway);
  await p.reload();
  await p.getByRole("link", { name: "gw", exact: true }).click();
  await p.getByRole("link", { name: "q", exact: true }).click();
  const accounts = () => p.locator(".accounts .item").allTextContents();
  await settled(p);
  assert.equal(await p.locator(".accounts .adds").count(), 1);
  assert.equal(await p.locator(".accounts .item.bad data").first().getAttribute("value"), String(letters));
  // The records are there as they were accepted, five thousand documents each. Texts are searched only at
  // their beginning, where any of a record's documents may be.
  await p.getByRole("link", { name: "Records", exact: true }).click();
  await p.locator(".searched").filter({ hasText: `${letters / 5000} records. ${letters / 5000} found.` }).waitFor();
  await p.getByLabel("Contains text").fill(`"b":${letters / 5000 - 1}}`);
  await p.getByRole("button", { name: "Look", exact: true }).click();
  await p.locator(".searched").filter({ hasText: `${letters / 5000} records. 1 found.` }).waitFor();
  await p.getByRole("link", { name: "Dead letters", exact: true }).click();
  const group = (name) => p.getByRole("group", { name, exact: true }).getByRole("button");
  await group("Field").filter({ hasText: "n" }).click();
  assert.match(p.url(), /letters\?field=n$/);
  for (const name of ["Field", "Index", "Status"]) assert.equal(await group(name).first().locator("data").getAttribute("value"), String(letters), name);
  assert.deepEqual(await violations(p), []);
  await shot(p, "letters-real");

  // First a single letter, as a user would do. Its source has 1.10, which a browser would write as 1.1.
  await p.getByRole("button", { name: /^Letter \d+$/ }).first().click();
  await p.getByText("400 mapper_parsing_exception", { exact: false }).waitFor();
  await p.getByRole("dialog").getByRole("button", { name: "Close" }).click();

  await p.getByRole("button", { name: "Change all" }).click();
  const dialog = p.getByRole("dialog");
  assert.equal(await dialog.getByLabel("Field", { exact: true }).inputValue(), "n");
  await dialog.getByRole("button", { name: "Preview" }).click();
  await dialog.getByText(`${said} would change, 0 would not, 0 cannot be changed this way.`).waitFor();
  assert.equal(await dialog.locator("pre[aria-label^=Before]").count(), 20);
  assert.match(await dialog.locator("pre[aria-label^=Before]").first().textContent(), /"n": "\d+"/);
  assert.match(await dialog.locator("pre[aria-label^=After]").first().textContent(), /"n": \d+,/);
  assert.deepEqual(await violations(p), []);
  await shot(p, "letters-preview");
  await dialog.getByRole("button", { name: `Change ${said}` }).click();
  await p.getByText(`${said} letters were changed.`).waitFor();

  await p.getByRole("button", { name: "Replay", exact: true }).click();
  await dialog.getByText("They go back into the queue").waitFor();
  await dialog.getByRole("button", { name: "Replay" }).click();
  await dialog.getByText(`${said} are back in the queue, 0 were refused and stay.`, { exact: true }).waitFor();
  await shot(p, "letters-replayed");
  await dialog.getByRole("button", { name: "Close" }).last().click();
  await p.getByText("No letter fits the filter.").waitFor();
  await to(p, `#/g/${id}/q/q`);
  // Each document was accepted twice, and is accounted for twice.
  await p.waitForFunction((n) => [...document.querySelectorAll(".accounts .item")].some((one) => one.textContent.includes("indexed") && one.querySelector("data").value === n), String(letters), { timeout: 120_000 });
  assert.equal(await p.locator(".accounts .adds").count(), 1, String(await accounts()));
  assert.ok((await accounts()).some((words) => /replayed/.test(words)));
  await finish(p);
});
