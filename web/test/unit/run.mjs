// Bundles the unit tests with the page's own compiler and hands them to Node's test runner.
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { build } from "vite";

const here = new URL(".", import.meta.url).pathname;
const root = new URL("../..", import.meta.url).pathname;
const outDir = join(root, "node_modules/.cache/unit");
const names = readdirSync(here).filter((f) => f.endsWith(".test.ts")).sort();

await build({
  root,
  configFile: false,
  logLevel: "error",
  build: { ssr: true, target: "node20", outDir, emptyOutDir: true, rolldownOptions: { input: names.map((n) => join(here, n)), output: { entryFileNames: "[name].mjs" } } },
});
const tests = names.map((n) => join(outDir, n.replace(/\.ts$/, ".mjs")));
process.exit(spawnSync(process.execPath, ["--test", ...tests], { stdio: "inherit" }).status ?? 1);
