import assert from "node:assert/strict";
import { test } from "node:test";
import { lineDiff } from "../../src/line_diff.ts";

const shown = (before: string, after: string) => lineDiff(before, after).map((line) => ({ same: " ", removed: "-", added: "+", gap: "…" })[line.kind] + (line.kind === "gap" ? line.before : line.text));

test("equal texts have no difference", () => {
  assert.deepEqual(shown("a\nb", "a\nb"), []);
});

test("differences have three lines around them, and the rest is counted", () => {
  const lines = Array.from({ length: 20 }, (_, n) => `l${n}`);
  const after = lines.toSpliced(10, 1, "new", "more").join("\n");
  assert.deepEqual(shown(lines.join("\n"), after), ["…7", " l7", " l8", " l9", "-l10", "+new", "+more", " l11", " l12", " l13", "…6"]);
});

test("what can be applied to the one text gives the other, for any texts", () => {
  let seed = 7;
  const next = (n: number) => (seed = (seed * 1103515245 + 12345) % 2 ** 31) % n;
  for (let round = 0; round < 300; round++) {
    const make = () => Array.from({ length: next(12) }, () => "abc"[next(3)]!).join("\n");
    const [before, after] = [make(), make()];
    const lines = lineDiff(before, after);
    const [left, right] = [before.split("\n"), after.split("\n")];
    for (const line of lines) {
      if (line.kind === "removed" || line.kind === "same") assert.equal(left[line.before - 1], line.text);
      if (line.kind === "added" || line.kind === "same") assert.equal(right[line.after - 1], line.text);
    }
    const count = (kind: string) => lines.filter((line) => line.kind === kind).length;
    assert.equal(left.length - count("removed"), right.length - count("added"));
    assert.equal(lines.length === 0, before === after);
  }
});
