import assert from "node:assert/strict";
import { test } from "node:test";
import { foldable, foldService } from "@codemirror/language";
import { EditorState, type Text } from "@codemirror/state";
import { folds } from "../../src/dev/language.ts";

function foldOf(text: string, line: number) {
  const state = EditorState.create({ doc: text, extensions: folds });
  const { from, to } = state.doc.line(line);
  const found = foldable(state, from, to);
  return found && state.sliceDoc(found.from, found.to);
}

test("a line folds to its closing bracket, as JSON is laid out", () => {
  const text = 'PUT /a\n{\n  "a": {\n    "b": [\n\n      1\n    ]\n  },\n  "c": {\n  }\n}\nGET /\n';
  assert.equal(foldOf(text, 1), null);
  assert.equal(foldOf(text, 2), text.slice(text.indexOf("{") + 1, text.lastIndexOf("}")));
  assert.equal(foldOf(text, 3), '\n    "b": [\n\n      1\n    ]\n  ');
  assert.equal(foldOf(text, 4), "\n\n      1\n    ");
  assert.equal(foldOf(text, 6), null);
  assert.equal(foldOf(text, 9), "\n  ");
});

test("without a closing bracket, a fold ends with the lines that are indented", () => {
  assert.equal(foldOf('{\n  "a": 1\n\nGET /\n', 1), '\n  "a": 1');
  assert.equal(foldOf("{\n  1", 1), "\n  1");
  assert.equal(foldOf("{\n1\n}", 1), null);
  assert.equal(foldOf("{", 1), null);
  assert.equal(foldOf("{\n\n\n", 1), null);
});

test("whether a line folds is known without reading the text up to the closing bracket", () => {
  const state = EditorState.create({ doc: `{\n${'  "n": 1,\n'.repeat(15_000)}  "last": 1\n}\n`, extensions: folds });
  const { from, to } = state.doc.line(1);
  let read = 0;
  const doc = new Proxy(state.doc, {
    get(target: Text, name: keyof Text) {
      const value = target[name];
      if (typeof value !== "function") return value;
      return (...given: unknown[]) => {
        if (/line|slice/i.test(name)) read++;
        return (value as (...all: unknown[]) => unknown).apply(target, given);
      };
    },
  });
  const counted = new Proxy(state, { get: (target, name) => (name === "doc" ? doc : Reflect.get(target, name, target)) });
  const [service] = state.facet(foldService);
  const found = service!(counted, from, to)!;
  assert.ok(read <= 3, `${read} reads`);
  assert.equal(state.sliceDoc(found.to, found.to + 1), "}");
});
