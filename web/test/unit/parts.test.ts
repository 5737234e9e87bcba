import assert from "node:assert/strict";
import { test } from "node:test";
import { jsonOf, PART } from "../../src/dev/parts.ts";

test("tabs of any length are the JSON that they are, and a long text is read in parts", async () => {
  const tab = (id: string, text: string) => ({ id, title: `"${id}"`, cluster_id: id ? "staging" : null, text });
  // Pairs of surrogates, one of which is cut in two, and characters that JSON escapes.
  const long = `${"x".repeat(PART - 1)}😀${'"\\\n\u0001é'.repeat(PART)}`;
  const all = { tabs: [tab("", ""), tab("a", 'GET /\n"it"'), tab("b", long), tab("c", "last")], active: "b" };
  let turns = 0;
  const blob = await jsonOf(all, async () => void turns++);
  assert.equal(turns, Math.ceil(long.length / PART));
  assert.deepEqual(JSON.parse(await blob.text()), all);
  assert.deepEqual(JSON.parse(await (await jsonOf({ tabs: [], active: null })).text()), { tabs: [], active: null });
});
