// What the built page weighs, and whether `dist/` is what the sources give.
//
//   node tools/dist.mjs --size     the bars of the console's size, measured with gzip -9
//   node tools/dist.mjs --check    builds anew beside dist/ and demands identical bytes
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const root = new URL("..", import.meta.url).pathname;
const KB = 1000;
const BARS = { "first page": 90 * KB, "dev tools": 170 * KB, all: 350 * KB };

const files = (folder) => readdirSync(folder, { recursive: true, withFileTypes: true }).filter((f) => f.isFile()).map((f) => join(f.parentPath ?? f.path, f.name).slice(folder.length + 1)).sort();

function sizes() {
  const dist = join(root, "dist");
  const weight = new Map(files(dist).map((f) => [f, gzipSync(readFileSync(join(dist, f)), { level: 9 }).length]));
  const sum = (names) => names.reduce((all, name) => all + weight.get(name), 0);
  const code = [...weight.keys()].filter((f) => /\.(js|css)$/.test(f));
  const html = readFileSync(join(dist, "index.html"), "utf8");
  const first = code.filter((f) => html.includes(f));
  // Each flavour's specification comes alone; the larger one is counted.
  const dev = code.filter((f) => /\/(dev|vendor-editor|call|elasticsearch)-/.test(f));
  const found = { "first page": sum(first), "dev tools": sum(dev), all: sum(code) };
  let good = true;
  for (const [name, bar] of Object.entries(BARS)) {
    const fits = found[name] <= bar;
    good &&= fits;
    console.log(`${name}: ${(found[name] / KB).toFixed(1)} KB of ${bar / KB} KB gz${fits ? "" : "  TOO LARGE"}`);
  }
  return good;
}

function same() {
  const fresh = mkdtempSync(join(tmpdir(), "tidegate-web-"));
  try {
    execFileSync(process.execPath, [join(root, "node_modules/vite/bin/vite.js"), "build", "--outDir", fresh, "--logLevel", "error"], { cwd: root, stdio: "inherit" });
    const [made, kept] = [files(fresh), files(join(root, "dist"))];
    const differs = [...new Set([...made, ...kept])].filter(
      (f) => !made.includes(f) || !kept.includes(f) || !readFileSync(join(fresh, f)).equals(readFileSync(join(root, "dist", f))),
    );
    if (differs.length) console.log(`web/dist is not what web/src gives; run npm run build. These differ:\n  ${differs.join("\n  ")}`);
    else console.log(`web/dist: ${kept.length} files, byte for byte what a build gives`);
    return differs.length === 0;
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
}

const checks = { "--size": sizes, "--check": same };
const asked = process.argv.slice(2).map((word) => checks[word]);
if (!asked.length || asked.includes(undefined)) {
  console.error("usage: node tools/dist.mjs --size | --check");
  process.exit(2);
}
process.exit(asked.every((check) => check()) ? 0 : 1);
