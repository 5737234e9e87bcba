// Dead letters: what an action means, a letter whose numbers a browser would alter, and one that is gone.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeAll, finish, logIn, page, server, to, until, violations } from "./kit.mjs";

after(closeAll);

async function open() {
  const { url, close, mock } = await server();
  const p = await page(url);
  await logIn(p, url);
  await to(p, "#/g/gateway-1/q/logs/letters");
  await p.getByRole("button", { name: "Letter 1000", exact: true }).waitFor();
  const gateway = mock.gateways.find((one) => one.name === "gateway-1");
  const asked = [];
  p.on("request", (request) => {
    const { path, method, body } = request.method() === "POST" ? (request.postDataJSON() ?? {}) : {};
    if (path && method !== "GET") asked.push({ path, body });
  });
  /** A letter that comes now. */
  const comes = () => gateway.letters.push({ ...gateway.letters.at(-1), id: Math.max(...gateway.letters.map(({ id }) => id)) + 1 });
  return { p, close, gateway, asked, comes, dialog: p.getByRole("dialog") };
}

test("an action means the letters that were counted, and none that came since", async () => {
  const { p, close, gateway, asked, comes, dialog } = await open();
  await p.getByText(/^120 counted at \d\d:\d\d:\d\d$/).waitFor();
  await p.getByRole("button", { name: "Change all" }).click();
  comes();
  await dialog.getByLabel("Field", { exact: true }).fill("price");
  await dialog.getByRole("button", { name: "Preview" }).click();
  await dialog.getByRole("button", { name: "Change 117" }).click();
  await p.getByText("117 letters were changed.", { exact: true }).waitFor();
  await p.getByText(/^121 counted at/).waitFor();
  comes();
  await p.getByRole("button", { name: "Replay", exact: true }).click();
  await dialog.getByRole("heading", { name: "Replay 121 dead letters" }).waitFor();
  await dialog.getByRole("button", { name: "Replay" }).click();
  await dialog.getByText("121 are back in the queue, 0 were refused and stay.").waitFor();
  await dialog.getByRole("button", { name: "Close" }).last().click();
  await p.getByText(/^1 counted at/).waitFor();
  comes();
  comes();
  await p.getByRole("button", { name: "Throw away" }).click();
  await dialog.getByRole("heading", { name: "Throw 1 dead letters away?" }).waitFor();
  await dialog.getByRole("button", { name: "Throw away" }).click();
  await p.getByText("1 letters were thrown away.").waitFor();
  await p.getByText(/^2 counted at/).waitFor();
  assert.equal(gateway.letters.length, 2);
  assert.deepEqual(asked.map(({ path }) => /before=(\d+)/.exec(path)?.[1]), [...Array(6).fill("1120"), "1121", "1122"]);
  await finish(p);
  close();
});

test("a source with numbers that a browser would alter is shown and saved as it is written", async () => {
  const { p, close, gateway, asked, dialog } = await open();
  gateway.letters[1].source = "raw 1001";
  gateway.raw[1001] = '{"a":1.0,"b":12.50,"c":1e400,"d":12345678901234567890,"e":1,"e":2}';
  await p.getByRole("button", { name: "Letter 1001", exact: true }).click();
  const source = dialog.getByLabel("Source");
  assert.equal(await source.inputValue(), '{\n  "a": 1.0,\n  "b": 12.50,\n  "c": 1e400,\n  "d": 12345678901234567890,\n  "e": 1,\n  "e": 2\n}');
  await source.fill((await source.inputValue()).replace("12.50", "13.50"));
  // What is replayed is the stored letter, so a change has to be saved first.
  assert.ok(await dialog.getByRole("button", { name: "Replay this one" }).isDisabled());
  await dialog.getByText("Save the change first").waitFor();
  assert.deepEqual(await violations(p), []);
  await dialog.getByRole("button", { name: "Save" }).click();
  await p.getByText("Letter 1001 is changed.").waitFor();
  assert.equal(gateway.raw[1001].replace(/\s/g, ""), '{"a":1.0,"b":13.50,"c":1e400,"d":12345678901234567890,"e":1,"e":2}');
  assert.equal(asked.length, 1);
  // A preview shows them as they are, too.
  await p.getByRole("button", { name: "Change all" }).click();
  await dialog.getByLabel("Field", { exact: true }).fill("price");
  await dialog.getByRole("button", { name: "Preview" }).click();
  assert.match(await dialog.locator("pre[aria-label='Before 1001']").textContent(), /"a": 1\.0,\s+"b": 13\.50,\s+"c": 1e400,/);
  await finish(p);
  close();
});

test("one letter is replayed once, and a letter that is gone meanwhile is not said to be replayed", async () => {
  const { p, close, gateway, asked, dialog } = await open();
  await p.getByRole("button", { name: "Letter 1003", exact: true }).click();
  await dialog.getByLabel("Source").waitFor();
  gateway.letters = gateway.letters.filter(({ id }) => id !== 1003);
  await dialog.getByRole("button", { name: "Replay this one" }).click();
  await dialog.getByRole("alert").filter({ hasText: "Letter 1003 is not there any more" }).waitFor();
  assert.equal(await p.getByText("is back in the queue").count(), 0);
  await dialog.getByRole("button", { name: "Close" }).click();
  await p.getByRole("button", { name: "Letter 1004", exact: true }).click();
  asked.length = 0;
  // Two clicks in one turn of the page.
  await dialog.getByRole("button", { name: "Replay this one" }).evaluate((button) => (button.click(), button.click()));
  await p.getByText("Letter 1004 is back in the queue.").waitFor();
  await until("the letter is gone", () => !gateway.letters.some(({ id }) => id === 1004));
  assert.equal(asked.length, 1);
  await finish(p);
  close();
});
