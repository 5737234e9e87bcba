// Makes the pictures of docs/console.md from the mock's figures: `npm run pictures`.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { figures } from "../mock/trial.mjs";
import { closeAll, logIn, page, server, settled, to, write } from "./kit.mjs";

const OUT = new URL("../../../docs/pictures/", import.meta.url).pathname;
mkdirSync(OUT, { recursive: true });
/** The browser itself compresses a picture better than PNG does. */
async function webp(context, png) {
  const blank = await context.newPage();
  return blank.evaluate(async (data) => {
    const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${data}`)).blob());
    const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
    canvas.getContext("2d").drawImage(image, 0, 0);
    return canvas.toDataURL("image/webp", 0.75).split(",")[1];
  }, png);
}

const { url, mock } = await server();
mock.clusters.find((one) => one.name === "production").hot = "orders[3]";
mock.ways.oidc = { label: "Log in with Keycloak" };
mock.users.push({ name: "eli", role: "viewer", clusters: { production: "operator" }, oidc: true, made_ms: mock.started - 86_400_000, seen_ms: mock.started });
for (const [name, colorScheme, hash] of [
  ["console-overview", "light", "#/"],
  ["console-cluster", "dark", "#/c/production"],
  ["console-dev", "light", "#/dev?cluster=staging"],
  ["console-gateway", "light", "#/g/gateway-1"],
  ["console-queue", "light", "#/g/gateway-1/q/logs"],
  ["console-letters", "dark", "#/g/gateway-1/q/logs/letters"],
  ["console-config", "light", "#/g/gateway-1/config"],
  ["console-heat", "light", "#/c/production/heat"],
  ["console-alerts", "light", "#/alerts"],
  ["console-audit", "light", "#/audit?user=ann"],
  ["console-login", "light", "#/"],
  ["console-users", "light", "#/users"],
  ["console-index", "light", "#/c/staging/indices/logs-2026.11.23"],
  ["console-who", "dark", "#/c/staging/templates/who?index=logs-2026.11.23"],
  ["console-trial", "light", "#/g/gateway-3"],
]) {
  const tried = name === "console-trial" && mock.addGateway({ name: "gateway-3", url: "http://10.0.1.10:2900", clusters: ["staging"], base: 900 });
  const p = await page(url, { colorScheme, viewport: { width: 1280, height: 700 } });
  if (name === "console-login") {
    await p.setViewportSize({ width: 640, height: 480 });
    await p.goto(url);
    await p.getByRole("link", { name: "Log in with Keycloak" }).waitFor();
  } else {
    await logIn(p, url);
    await to(p, hash);
    await settled(p);
  }
  if (name === "console-dev") {
    await write(p, 'PUT _template/test\n{\n  "index_patterns": ["test*"],\n  "settings": {\n    "index.translog.durability": "async",\n    "refresh_interval": "-1",\n    "number_of_shards": 3,\n    "number_of_replicas": 0\n  }\n}\n\nGET _cluster/health\n');
    await p.keyboard.press("Control+Home");
    await p.keyboard.press("Control+Enter");
    await p.locator(".outcome .status").waitFor();
  }
  if (name === "console-config") {
    const content = p.locator(".config .cm-content");
    await content.click();
    await p.keyboard.press("Control+Home");
    for (let n = 1; n < 10; n++) await p.keyboard.press("ArrowDown");
    await p.keyboard.press("End");
    await p.keyboard.insertText("0");
    await p.getByRole("button", { name: "Compare and apply" }).click();
    await p.getByRole("button", { name: "Apply", exact: true }).click();
    await p.getByRole("button", { name: "Keep it" }).waitFor();
  }
  if (name === "console-trial") {
    const load = { documents: 20_000, batch: 1000, rounds: 4, clients: 4, shards: 3, replicas: 0, ids: true };
    tried.trial.last = { id: 1, gateway: tried.id, cluster: "staging", user: "ann", indices: "tidegate-trial-1", load, began_ms: Date.now() - 190_000, ended_ms: Date.now() - 120_000, state: "compared", figures: figures() };
    await p.getByText("Compared. Begun by ann.").waitFor();
    await p.getByRole("heading", { name: "What the gateway saves its clusters (estimate)" }).evaluate((at) => at.scrollIntoView());
  }
  if (name === "console-audit") {
    await p.getByRole("button", { name: /^Show: change roles cleo/ }).first().click();
    await p.getByRole("dialog").waitFor();
  }
  await p.waitForTimeout(1200);
  const png = (await p.screenshot()).toString("base64");
  writeFileSync(join(OUT, `${name}.webp`), Buffer.from(await webp(p.context(), png), "base64"));
  await p.context().close();
}
await closeAll();
process.exit(0);
