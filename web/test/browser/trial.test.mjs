// A trial on a scratch index: what is asked first, progress, the outcome beside the estimate, and who may
// begin it.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertFits, closeAll, finish, logIn, page, server, settled, shot, to, violations } from "./kit.mjs";

after(closeAll);

/** A gateway that delivers to one cluster, on which trials may be run. */
async function open(options) {
  const { url, close, mock } = await server();
  const gateway = mock.addGateway({ name: "gateway-3", url: "http://10.0.1.10:2900", clusters: ["staging"], base: 900 });
  const p = await page(url, options);
  await logIn(p, url);
  await to(p, "#/g/gateway-3");
  await settled(p);
  const trial = p.getByRole("region", { name: "Measured on a scratch index" });
  await trial.waitFor();
  return { p, close, mock, gateway, trial };
}

test("the button names what it does, shows progress, and the outcome beside the estimate", async () => {
  const { p, close, mock, gateway, trial } = await open();
  await trial.getByRole("button", { name: "Measure…" }).click();
  const dialog = p.getByRole("dialog");
  await dialog.getByText("On staging, indices named tidegate-trial-3f09a2c418d7e6b5-… are created one after the other, 164 k documents are written").waitFor();
  for (const colorScheme of ["dark", "light"]) {
    await p.emulateMedia({ colorScheme });
    await shot(p, `trial-dialog-${colorScheme}`);
  }
  assert.deepEqual(await violations(p), []);
  await dialog.getByLabel("Rounds").fill("11");
  await dialog.getByText("1 to 10", { exact: true }).waitFor();
  assert.ok(await dialog.getByRole("button", { name: "Begin" }).isDisabled());
  await dialog.getByLabel("Rounds").fill("2");
  await dialog.getByLabel("Entry of the gateway").selectOption("search");
  await dialog.getByRole("button", { name: "Begin" }).click();
  await trial.getByText("0 of 4 runs are over").waitFor();
  assert.deepEqual(mock.audit[0].after.load, { documents: 20_000, batch: 1000, rounds: 2, clients: 4, shards: 3, replicas: 0, ids: true });
  gateway.trial.step();
  await trial.getByText("1 of 4 runs are over").waitFor();
  await trial.getByText("round 1, new direct acknowledged in 0.58 s").waitFor();
  for (let n = 0; n < 3; n++) gateway.trial.step();
  await trial.getByText("Compared. Begun by ann.").waitFor();
  assert.deepEqual(await trial.locator("tbody tr").allTextContents(), [
    "Documents/s until counted31.3 k38.5 k+23.2 % (+14.8 to +32.3 %)",
    "Documents/s until acknowledged34.4 k42.4 kno difference beyond the noise: +1.4 % (−3.1 to +6.2 %)",
    "CPU of the nodes, s per million documents6253−14.5 % (−18.2 to −10.6 %)",
  ]);
  for (const colorScheme of ["dark", "light"]) {
    await p.emulateMedia({ colorScheme });
    await shot(p, `trial-${colorScheme}`, { fullPage: true });
  }
  assert.deepEqual(await violations(p), []);
  await p.setViewportSize({ width: 320, height: 800 });
  await assertFits(p, "trial");
  await finish(p);
  close();
});

test("of several clusters, those can be chosen to which an entry delivers alone", async () => {
  const { p, close, mock } = await open();
  const several = mock.addGateway({ name: "gateway-4", url: "http://10.0.1.10:2900", clusters: ["staging", "branch-office", "archive"], base: 900 });
  several.reach = { logs: ["staging"], both: ["staging", "archive"], branch: ["branch-office"], old: ["archive"] };
  await to(p, `#/g/${several.id}`);
  await p.reload();
  const trial = p.getByRole("region", { name: "Measured on a scratch index" });
  await trial.getByRole("button", { name: "Measure…" }).click();
  const dialog = p.getByRole("dialog");
  const offered = (label) => dialog.getByLabel(label).locator("option").allTextContents();
  assert.deepEqual(await offered("Cluster"), ["staging", "branch-office"], "archive is read-only");
  assert.deepEqual(await offered("Entry of the gateway"), ["logs (http://10.0.1.10:8000)"]);
  await dialog.getByLabel("Cluster").selectOption("branch-office");
  await dialog.getByText("On branch-office, indices named").waitFor();
  assert.deepEqual(await offered("Entry of the gateway"), ["branch (http://10.0.1.10:8001)"]);
  await dialog.getByRole("button", { name: "Begin" }).click();
  await trial.getByText("0 of 8 runs are over").waitFor();
  assert.equal(mock.audit[0].after.cluster, mock.clusters.find((one) => one.name === "branch-office").id);
  await finish(p);
  close();
});

test("a trial is cancelled, what it left is named, and a viewer only looks", async () => {
  const { p, close, mock, gateway, trial } = await open();
  await trial.getByRole("button", { name: "Measure…" }).click();
  await p.getByRole("button", { name: "Begin" }).click();
  await trial.getByRole("button", { name: "Cancel the trial" }).click();
  await trial.getByText("Cancelled. Begun by ann.").waitFor();
  Object.assign(gateway.trial, { leftovers: ["tidegate-trial-3f09a2c418d7e6b5-1-1-direct"], why: null });
  gateway.trial.last.state = "interrupted";
  await trial.getByText("DELETE /tidegate-trial-3f09a2c418d7e6b5-1-1-direct").waitFor();
  gateway.trial.leftovers = null;
  await trial.getByText("The cluster cannot be asked whether indices of the trial are still there: tidegate-trial-3f09a2c418d7e6b5-*").waitFor();
  mock.you = { role: "viewer", clusters: {} };
  await trial.getByRole("button", { name: "Measure…" }).waitFor({ state: "detached" });
  mock.you = { role: "admin", clusters: {} };
  await trial.getByRole("button", { name: "Measure…" }).waitFor();
  mock.clusters.find((one) => one.name === "staging").protected = true;
  await trial.getByText("No trial can be run: staging is registered as protected.").waitFor();
  assert.equal(await trial.getByRole("button", { name: "Measure…" }).count(), 0);
  await to(p, "#/g/gateway-1");
  await p.getByText("the gateway delivers to several clusters (production, archive)").waitFor();
  await finish(p);
  close();
});
