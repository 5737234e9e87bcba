// Logins at an OpenID provider, by the real console in a real browser. The provider is a small one of this
// test, under another host name, so that browsers treat it as another site.
//
//   PROGRAM=target/debug/tidegate node --test --test-force-exit test/real/oidc.test.mjs
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as plain } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, test } from "node:test";
import { assertFits, closeAll, finish, page, settled, shot, to, until, violations } from "../browser/kit.mjs";
import { NAME, PASSWORD } from "../mock/server.mjs";

assert.ok(process.env.PROGRAM, "PROGRAM is not given");
const program = resolve(process.env.PROGRAM);
const home = mkdtempSync(join(tmpdir(), "tidegate-oidc-"));
const [children, listeners] = [[], []];
after(async () => {
  await closeAll();
  children.forEach((child) => child.kill("SIGKILL"));
  listeners.forEach((listener) => (listener.closeAllConnections(), listener.close()));
  rmSync(home, { recursive: true, force: true });
});

const base64 = (value) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");

/** A provider whose users are who the test says. */
async function provider() {
  const [key, another] = [0, 1].map(() => generateKeyPairSync("rsa", { modulusLength: 2048 }));
  const told = { down: false, forged: false, groups: [], begun: new Map(), ended: null };
  const token = (nonce) => {
    const now = Math.floor(Date.now() / 1000);
    const claims = { iss: told.url, aud: "console", sub: "7", iat: now, exp: now + 300, nonce, preferred_username: "grace", groups: told.groups };
    const text = `${base64({ alg: "RS256", kid: "one" })}.${base64(claims)}`;
    return `${text}.${sign("sha256", Buffer.from(text), (told.forged ? another : key).privateKey).toString("base64url")}`;
  };
  const listener = createServer(async (request, response) => {
    const { pathname, searchParams: query } = new URL(request.url, told.url);
    const json = (status, value) => response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
    if (told.down) return json(503, {});
    switch (pathname) {
      case "/.well-known/openid-configuration":
        return json(200, { issuer: told.url, authorization_endpoint: `${told.url}/auth`, token_endpoint: `${told.url}/token`, jwks_uri: `${told.url}/keys`, end_session_endpoint: `${told.url}/end` });
      case "/keys":
        return json(200, { keys: [{ ...key.publicKey.export({ format: "jwk" }), kid: "one", use: "sig" }] });
      case "/auth": {
        const code = `code-${told.begun.size}`;
        told.begun.set(code, query);
        const back = (words) => `${query.get("redirect_uri")}?${new URLSearchParams({ ...words, state: query.get("state") })}`.replaceAll("&", "&amp;");
        const links = `<a href="${back({ code })}">Confirm</a> <a href="${back({ error: "access_denied" })}">Refuse</a>`;
        return response.writeHead(200, { "content-type": "text/html" }).end(`<!doctype html><title>Provider</title><h1>Provider</h1>${links}`);
      }
      case "/token": {
        const chunks = [];
        for await (const chunk of request) chunks.push(chunk);
        const form = new URLSearchParams(Buffer.concat(chunks).toString());
        const begun = told.begun.get(form.get("code"));
        told.begun.set(form.get("code"), undefined);
        const fits = createHash("sha256").update(form.get("code_verifier") ?? "").digest("base64url") === begun?.get("code_challenge");
        const known = request.headers.authorization === `Basic ${Buffer.from("console:s3cret").toString("base64")}`;
        return fits && known ? json(200, { id_token: token(begun.get("nonce")) }) : json(400, { error: "invalid_grant" });
      }
      case "/end":
        told.ended = query;
        return response.writeHead(302, { location: query.get("post_logout_redirect_uri") }).end();
    }
    return json(404, {});
  });
  listeners.push(listener.listen(0, "localhost"));
  await once(listener, "listening");
  told.url = `http://localhost:${listener.address().port}`;
  return told;
}

const freePort = () => new Promise((done) => {
  const taken = plain().listen(0, "127.0.0.1", () => {
    const { port } = taken.address();
    taken.close(() => done(port));
  });
});

/** Starts a console with this provider. Returns its address and the one-time link, if there is one. */
async function start(issuer, more) {
  const url = `http://127.0.0.1:${await freePort()}`;
  const file = join(home, "oidc.yml");
  const roles = [{ value: "ops", role: "operator" }, { value: "boss", role: "admin" }];
  writeFileSync(file, JSON.stringify({ issuer, client_id: "console", client_secret: "s3cret", url, label: "Log in with Ops", roles, ...more }));
  const child = spawn(program, ["console", "--listen", url.slice(7), "--data", mkdtempSync(join(home, "data-")), "--oidc", file], { stdio: ["ignore", "pipe", "inherit"] });
  children.push(child);
  let text = "";
  for (child.stdout.on("data", (data) => (text += data)); !(more?.password_login === false ? /^console: .*\s/ : /#setup=\S+\s/).test(text); ) await once(child.stdout, "data");
  return { url: `${url}/`, link: /#setup=(\S+)/.exec(text)?.[1] };
}

const button = (p) => p.getByRole("link", { name: "Log in with Ops" });
const overview = (p) => p.getByRole("heading", { level: 1, name: "Overview" });

/** Goes to the provider, and confirms or refuses there. */
async function answer(p, what = "Confirm") {
  await button(p).click();
  await p.getByRole("link", { name: what }).click();
}

test("the way to a provider and back, what can go wrong on it, and what the page Users says of who came by it", async () => {
  const there = await provider();
  there.down = true;
  const { url, link } = await start(there.url);
  const p = await page(url);
  p.origins.push(there.url);
  await p.goto(`${url}#setup=${link}`);
  await p.getByLabel("Your name").fill(NAME);
  for (const label of ["Password", "Password again"]) await p.getByLabel(label, { exact: true }).fill(PASSWORD);
  await p.getByRole("button", { name: "Create the account" }).click();
  await overview(p).waitFor();
  await p.getByRole("button", { name: "Log out" }).click();

  const failed = async (text) => {
    await p.getByRole("alert").filter({ hasText: text }).waitFor();
    await button(p).waitFor();
  };
  // The second time, the provider is not asked again.
  for (let tries = 0; tries < 2; tries++) {
    await button(p).click();
    await failed("The provider does not answer.");
    await p.goto("about:blank");
    await p.goto(url);
  }
  there.down = false;
  await until("the provider is asked again", async () => {
    await p.goto(url);
    await button(p).click();
    await p.waitForLoadState();
    return p.url().startsWith(there.url);
  });
  await p.getByRole("link", { name: "Refuse" }).click();
  await failed("The provider did not confirm the login.");
  for (const colorScheme of ["light", "dark"]) {
    await p.emulateMedia({ colorScheme });
    assert.deepEqual(await violations(p), [], colorScheme);
    await shot(p, `login-provider-${colorScheme}`);
  }
  await p.setViewportSize({ width: 320, height: 640 });
  await assertFits(p, "login");
  await shot(p, "login-provider-320");
  await p.setViewportSize({ width: 1360, height: 860 });
  there.groups = ["strangers"];
  await answer(p);
  await failed("none of your groups has a role");
  there.groups = ["boss"];
  there.forged = true;
  await answer(p);
  await failed("The login failed.");
  await p.goto(`${url}api/oidc/callback?code=code-9&state=x`);
  await failed("it began in another browser");
  // Who failed there may still have a password of the console's.
  await p.getByLabel("Name").fill(NAME);
  await p.getByLabel("Password").fill(PASSWORD);
  await p.getByRole("button", { name: "Log in" }).click();
  await overview(p).waitFor();
  await p.getByRole("button", { name: "Log out" }).click();

  // A login leads to the page that was asked for.
  there.forged = false;
  await p.goto("about:blank");
  await p.goto(`${url}#/users`);
  await answer(p);
  await p.getByRole("heading", { level: 1, name: "Users" }).waitFor();
  const grace = p.getByRole("row").filter({ hasText: "grace" });
  await grace.getByText("OpenID").waitFor();
  assert.equal(await p.getByRole("row").filter({ hasText: NAME }).getByText("OpenID").count(), 0);
  await p.getByRole("button", { name: "You: grace admin" }).click();
  await p.getByRole("dialog").getByText("changes users and registrations").waitFor();
  assert.equal(await p.getByRole("dialog").getByLabel("Old password").count(), 0);
  await p.keyboard.press("Escape");
  await grace.getByRole("link", { name: "grace" }).click();
  await p.getByText("This user logs in at the OpenID provider, which keeps the password.").waitFor();
  assert.equal(await p.getByRole("button", { name: "Save" }).count(), 0);
  await settled(p);
  for (const colorScheme of ["light", "dark"]) {
    await p.emulateMedia({ colorScheme });
    assert.deepEqual(await violations(p), [], `user, ${colorScheme}`);
    await shot(p, `user-provider-${colorScheme}`);
  }
  await p.setViewportSize({ width: 320, height: 640 });
  await assertFits(p, "user");
  await p.setViewportSize({ width: 1360, height: 860 });
  await p.getByRole("button", { name: "Log out" }).click();
  await button(p).waitFor();
  assert.equal(there.ended.get("client_id"), "console");
  assert.ok(there.ended.get("id_token_hint"));

  // Somebody at the same address guesses codes, and shuts nobody out by that.
  for (let tries = 0; tries < 12; tries++) {
    const begun = await fetch(`${url}api/oidc/login`, { redirect: "manual" });
    const state = new URL(begun.headers.get("location")).searchParams.get("state");
    const cookie = begun.headers.getSetCookie()[0].split(";")[0];
    await fetch(`${url}api/oidc/callback?code=guessed&state=${state}`, { redirect: "manual", headers: { cookie } });
  }
  await answer(p);
  await overview(p).waitFor();
  await finish(p);
});

test("without passwords, the page has the provider's button alone", async () => {
  const there = await provider();
  there.groups = ["ops"];
  const { url } = await start(there.url, { password_login: false });
  const p = await page(url);
  p.origins.push(there.url);
  await p.goto(url);
  await button(p).waitFor();
  assert.equal(await p.getByRole("textbox").count(), 0);
  assert.equal(await p.getByRole("button").count(), 0);
  assert.deepEqual(await violations(p), []);
  await shot(p, "login-provider-alone");
  await p.keyboard.press("Tab");
  await p.keyboard.press("Enter");
  await p.getByRole("link", { name: "Confirm" }).click();
  await overview(p).waitFor();
  await p.getByRole("button", { name: "You: grace operator" }).waitFor();
  await to(p, "#/users");
  await p.getByRole("heading", { name: "This needs the role admin" }).waitFor();
  await finish(p);
});
