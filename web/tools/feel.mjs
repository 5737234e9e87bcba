// What people feel of the page: how soon it is there on a slow machine, how fast it answers to keys and
// clicks, and how the editor takes keys in a long text. Each figure beside its bar.
import { busyTime, LONG_TEXTS, openBrowser, paste, to } from "../test/browser/kit.mjs";

const percentile = (list, share) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * share))];

/** The page, loaded by a browser that has nothing of it yet, on a processor that is a quarter as fast. */
async function coldLoad(bar, url, cookie) {
  const context = await (await openBrowser()).newContext({ viewport: { width: 1360, height: 860 } });
  await context.addCookies([cookie]);
  const made = await context.newPage();
  const cdp = await context.newCDPSession(made);
  await cdp.send("Emulation.setCPUThrottlingRate", { rate: 4 });
  await made.addInitScript(() => {
    const seen = (globalThis.seen = { lcp: 0, cls: 0, tasks: [] });
    const on = (type, take) => new PerformanceObserver((list) => list.getEntries().forEach(take)).observe({ type, buffered: true });
    on("largest-contentful-paint", (entry) => (seen.lcp = entry.startTime));
    on("layout-shift", (entry) => (seen.cls += entry.hadRecentInput ? 0 : entry.value));
    on("longtask", (entry) => seen.tasks.push([entry.startTime, entry.duration]));
  });
  await made.goto(url);
  await made.locator("table.gateway tbody tr").first().waitFor();
  await made.waitForTimeout(5000);
  const told = await made.evaluate(() => ({ ...globalThis.seen, fcp: performance.getEntriesByName("first-contentful-paint")[0].startTime }));
  // What blocks between the first paint and the content; afterwards, the page is live.
  const blocked = told.tasks.filter(([began]) => began >= told.fcp && began < told.lcp + 1000).reduce((sum, [, took]) => sum + Math.max(0, took - 50), 0);
  bar("cold load, CPU / 4: first paint", told.fcp, 1000, "ms");
  bar("cold load, CPU / 4: largest paint", told.lcp, 1500, "ms");
  bar("cold load, CPU / 4: blocked", blocked, 150, "ms");
  bar("cold load, CPU / 4: layout shift", told.cls, 0.02, "");
  await context.close();
}

/** Keys on the overview, from the event to the next paint. */
async function interactions(bar, made) {
  await to(made, "#/");
  await made.locator("table.gateway tbody tr").first().waitFor();
  await made.evaluate(() => {
    globalThis.took = new Map();
    globalThis.pressed = new Map();
    addEventListener("keydown", (event) => globalThis.pressed.set(event.timeStamp, event.key), true);
    const take = (one) => {
      const [ms, began] = globalThis.took.get(one.interactionId) ?? [0, one.startTime];
      globalThis.took.set(one.interactionId, [Math.max(one.duration, ms), Math.min(one.startTime, began)]);
    };
    // Shorter ones are not told; they count as 16 ms.
    new PerformanceObserver((list) => list.getEntries().forEach((one) => one.interactionId && take(one))).observe({ type: "event", durationThreshold: 16 });
  });
  let count = 0;
  const press = async (key) => {
    await made.keyboard.press(key);
    await made.waitForTimeout(60);
    count++;
  };
  for (let n = 0; n < 20; n++) await press("j");
  for (let n = 0; n < 3; n++) for (const key of ["Control+k", "a", "u", "d", "Escape"]) await press(key);
  await press("/");
  for (const key of "cluster-1") await press(key);
  for (let n = 0; n < 9; n++) await press("Backspace");
  const told = await made.evaluate(() => [...globalThis.took.values()].map(([ms, began]) => [ms, globalThis.pressed.get(began) ?? "another"]));
  const all = [...told.map(([ms]) => ms), ...Array(Math.max(0, count - told.length)).fill(16)];
  const slowest = told.sort((a, b) => b[0] - a[0]).slice(0, 6).map(([ms, key]) => `${key} ${ms}`);
  bar("keys on the overview, event to paint, p95", percentile(all, 0.95), 100, "ms", `${all.length} keys, of which ${slowest.join(", ")}`);
}

/** Keys in the editor of requests: the page's work for each, with texts of 10 MB. */
async function keystrokes(bar, made, cluster) {
  await to(made, `#/dev?cluster=${cluster}`);
  const content = made.locator(".editor").first().locator(".cm-content");
  await content.click();
  await made.keyboard.press("Control+a");
  await made.keyboard.press("Delete");
  await made.keyboard.type("GET in");
  const waits = [];
  for (let n = 0; n < 5; n++) {
    const began = Date.now();
    await made.keyboard.press("Control+Space");
    await made.locator(".cm-tooltip-autocomplete li").first().waitFor();
    waits.push(Date.now() - began);
    await made.keyboard.press("Escape");
    await made.waitForTimeout(200);
  }
  bar("suggestions, median of 5", percentile(waits, 0.5), 100, "ms", `with the test's own way to the browser; ${waits.join(", ")} ms`);
  const busy = await busyTime(made);
  for (const [what, text] of Object.entries(LONG_TEXTS)) {
    await paste(content, text());
    await made.waitForTimeout(3000);
    // In a document, brackets are in sight that close at its end.
    if (what === "document") for (const key of ["Control+Home", "ArrowDown", "ArrowDown", "End"]) await made.keyboard.press(key);
    const took = [];
    for (let n = 0; n < 100; n++) {
      const before = await busy();
      await made.keyboard.press("x");
      // Until the key is drawn.
      await made.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done))));
      took.push((await busy()) - before);
      await made.waitForTimeout(50);
    }
    const more = `median ${percentile(took, 0.5).toFixed(1)} ms, at most ${Math.max(...took).toFixed(0)} ms`;
    bar(`key in a ${what} of 10 MB, time of the page's thread, p95`, percentile(took, 0.95), 16, "ms", more);
    await made.keyboard.press("Control+a");
    await made.keyboard.press("Delete");
  }
}

export async function feel(bar, made, url, cookie, cluster) {
  await coldLoad(bar, url, cookie);
  await interactions(bar, made);
  await keystrokes(bar, made, cluster);
}
