// A hundred clusters and fifty gateways: what `tools/scale.mjs` measures on real programs, small.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { busyTime, closeAll, finish, logIn, page, server, settled, to, until } from "./kit.mjs";

after(closeAll);

const ELEMENTS_MAX = 5000;
/** A task of the page that takes longer is felt by who types or scrolls. */
const TASK_MS_MAX = 50;

function grow(mock) {
  for (let n = 0; n < 100; n++) {
    const ill = n % 9 === 4;
    mock.addCluster({ name: `cluster-${n}`, endpoints: [`http://10.1.0.${n}:9200`], base: 1000 * n, state: ill ? "warn" : "ok", why: ill ? ["Disk of node-2 is 87 % full, its watermark is 90 %"] : [] });
  }
  for (let n = 0; n < 50; n++) mock.addGateway({ name: `gate-${n}`, url: `http://10.2.0.${n}:2900`, clusters: [`cluster-${2 * n}`], base: 500 * n });
}

test("with many clusters and gateways, pages have few elements and the overview does little at a time", async () => {
  const { url, close, mock } = await server();
  grow(mock);
  const p = await page(url);
  await logIn(p, url);
  for (const hash of ["#/registry", "#/users/new", "#/"]) {
    await to(p, hash);
    await settled(p);
    // The overview's rows come a few at a time.
    if (hash === "#/") await until("nothing is left out", async () => (await p.locator("main tbody tr").count()) === 156);
    const elements = await p.evaluate(() => document.querySelectorAll("*").length);
    assert.ok(elements <= ELEMENTS_MAX, `${hash}: ${elements} elements`);
  }
  // All that an update of the overview needs. The least of a few seconds is taken, since collecting garbage
  // is not part of an update.
  const busy = await busyTime(p);
  let least = Infinity;
  for (let second = 0; second < 5 && least > 3 * TASK_MS_MAX; second++) {
    const before = await busy();
    await p.waitForTimeout(1000);
    least = Math.min(least, (await busy()) - before);
  }
  // A second has three: one for the news, and two for ages that grow.
  assert.ok(least <= 3 * TASK_MS_MAX, `${least} ms a second`);
  await finish(p);
  close();
});
