import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, exact, latency, short, span, visible } from "../../src/format.ts";
import { sparkPath } from "../../src/ui/spark.tsx";

test("numbers as people say them", () => {
  const said = [0, 7, 0.5, 999, 999.4, 1000, 1234, 12_345, 123_456, 999_949, 999_950, 1_200_000, 3.4e9, -1500].map(short);
  assert.deepEqual(said, ["0", "7", "0.5", "999", "999", "1 k", "1.23 k", "12.3 k", "123 k", "1 M", "1 M", "1.2 M", "3.4 bn", "-1.5 k"]);
});

test("no rounding ever shows four digits before the unit", () => {
  for (let n = 1; n < 1e13; n = Math.ceil(n * 1.037)) assert.match(short(n), /^\d{1,3}(\.\d{1,2})?( (k|M|bn|tn))?$/, String(n));
});

test("bytes, spans and latencies", () => {
  assert.deepEqual([0, 999, 1000, 3.4e9, 2e12].map(bytes), ["0 B", "999 B", "1 kB", "3.4 GB", "2 TB"]);
  assert.deepEqual([400, 14_000, 89_000, 120_000, 7_200_000, 5 * 86_400_000, -5].map(span), ["0.4 s", "14 s", "89 s", "2 min", "2 h", "5 d", "0.0 s"]);
  assert.deepEqual([0.42, 12, 3400].map(latency), ["0.42 ms", "12 ms", "3.4 s"]);
  assert.equal(exact(1234567.89), "1,234,567.89");
});

test("names that turn or hide are shown by number, long ones are cut", () => {
  assert.equal(visible("\u202Eevil\u0007"), "⟨202E⟩evil⟨0007⟩");
  assert.equal(visible("<b>"), "<b>");
  assert.equal(visible("x".repeat(1e6)).length, 201);
});

test("a gap in the figures lifts the pen", () => {
  assert.equal(sparkPath([1, 2, null, 2, 1], 2).match(/M/g)?.length, 2);
  assert.equal(sparkPath([null, null], 0), "");
});
