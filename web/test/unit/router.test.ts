import assert from "node:assert/strict";
import { test } from "node:test";

// The router looks at the browser's address when it is started, never when it is read in.
const { link, parse } = await import("../../src/router.ts");

test("any name survives the way into the address and back", () => {
  for (const name of ["prod", "a/b", "ü ?#&=%", "<img>", "..", "\u202Ex"]) {
    const route = parse(link(["c", name, "templates"], { q: name, none: "" }));
    assert.deepEqual(route.parts, ["c", name, "templates"]);
    assert.deepEqual([...route.query], [["q", name]]);
  }
});

test("what is no address of ours is read all the same", () => {
  assert.deepEqual(parse("").parts, []);
  assert.deepEqual(parse("#/").parts, []);
  assert.deepEqual(parse("#/c/%E0%A4%A").parts, ["c", "%E0%A4%A"]);
  assert.equal(parse("#setup=abc").parts[0], "setup=abc");
});
