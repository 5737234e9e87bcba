import assert from "node:assert/strict";
import { test } from "node:test";
import { rawItems, rawMembers } from "../../src/raw_json.ts";

test("values come as they are written: numbers that a browser would alter, keys that occur twice, spaces", () => {
  const text = ' { "a" : 1.0 , "b":1e400,"c":12345678901234567890, "d" : {"n": 12.50,"n":2 } ,"e\\"\\u0066":"x,}\\\\\\"]","g":[1.0,[ {}]],"h":null,"i":-0 }';
  assert.deepEqual([...rawMembers(text)], [["a", "1.0"], ["b", "1e400"], ["c", "12345678901234567890"], ["d", '{"n": 12.50,"n":2 }'], ['e"f', '"x,}\\\\\\"]"'], ["g", "[1.0,[ {}]]"], ["h", "null"], ["i", "-0"]]);
});

test("elements of an array come as they are written", () => {
  assert.deepEqual(rawItems(' [ 1.0, {"a":[1.10]} ,"]", [] ] '), ["1.0", '{"a":[1.10]}', '"]"', "[]"]);
  assert.deepEqual([rawItems("[]"), rawItems("{}"), [...rawMembers("[1]")], [...rawMembers("{ }")], [...rawMembers("")]], [[], [], [], [], []]);
});

test("each part means what a parser makes of it", () => {
  const values = [{}, [], { a: [] }, [1, [2, { b: "x" }]], { a: { b: { c: null } }, "k:,{}[]": 'q"\\"{', "": true }];
  for (const value of values) {
    for (const text of [JSON.stringify(value), JSON.stringify(value, null, 3)]) {
      const parsed = Array.isArray(value) ? rawItems(text).map((one) => JSON.parse(one)) : Object.fromEntries([...rawMembers(text)].map(([key, one]) => [key, JSON.parse(one)]));
      assert.deepEqual(parsed, value);
    }
  }
});
