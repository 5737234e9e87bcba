import assert from "node:assert/strict";
import { test } from "node:test";
import { differences } from "../../src/differences.ts";

test("only what differs is told, by its place", () => {
  const before = { name: "prod", colour: null, clusters: { a: "viewer", b: "admin" }, endpoints: ["x", "y"] };
  const after = { name: "prod", colour: "#ff0000", clusters: { a: "operator" }, endpoints: ["x"] };
  assert.deepEqual(differences(before, after), [
    { key: "colour", before: null, after: "#ff0000" },
    { key: "clusters.a", before: "viewer", after: "operator" },
    { key: "clusters.b", before: "admin", after: undefined },
    { key: "endpoints", before: ["x", "y"], after: ["x"] },
  ]);
  assert.deepEqual(differences(before, structuredClone(before)), []);
});

test("what is new or gone has one side", () => {
  assert.deepEqual(differences(null, { a: 1, b: {} }), [
    { key: "a", before: undefined, after: 1 },
    { key: "b", before: undefined, after: {} },
  ]);
  assert.deepEqual(differences({ a: { b: 1 } }, undefined), [{ key: "a.b", before: 1, after: undefined }]);
  assert.deepEqual(differences({ a: { b: 1 } }, { a: 2 }), [{ key: "a", before: { b: 1 }, after: 2 }]);
  assert.deepEqual(differences("x", "y"), [{ key: "", before: "x", after: "y" }]);
  assert.deepEqual(differences({ a: {} }, { a: {} }), []);
  assert.deepEqual(differences({ constructor: 1 }, {}), [{ key: "constructor", before: 1, after: undefined }]);
});
