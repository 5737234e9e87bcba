import assert from "node:assert/strict";
import { test } from "node:test";
import { layOut } from "../../src/dev/layout.ts";

test("JSON is laid out as JSON.stringify would", async () => {
  for (const value of [{}, [], { a: [] }, [1, [2, { b: "x" }]], { a: { b: { c: null } }, "k:,{}[]": 'q"\\"{' }]) {
    assert.equal(await layOut(JSON.stringify(value)), JSON.stringify(value, null, 2));
    assert.equal(await layOut(JSON.stringify(value, null, 7)), JSON.stringify(value, null, 2));
  }
});

test("numbers are left as they came", async () => {
  assert.equal(await layOut('{"n":12345678901234567890,"f":1.0}'), '{\n  "n": 12345678901234567890,\n  "f": 1.0\n}');
});

test("what is no JSON is left alone", async () => {
  for (const text of ["", "health status\ngreen open", "}{", '{"a":1', "[[]"]) assert.equal(await layOut(text), text);
});

test("ten megabytes take turns with the page", async () => {
  const text = `[${Array.from({ length: 120_000 }, (_, i) => `{"id":${i},"message":"line ${i} of a long answer, laid out"}`).join(",")}]`;
  let turns = 0;
  const timer = setInterval(() => turns++, 0);
  const out = await layOut(text);
  clearInterval(timer);
  assert.ok(turns > 10, `${turns} turns`);
  assert.deepEqual(JSON.parse(out), JSON.parse(text));
});
