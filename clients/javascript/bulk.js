// client.helpers.bulk of the JavaScript clients; ../README.md says what is asked of it.
// PACKAGE (environment) is the package to take the client from.

const { Client } = await import(process.env.PACKAGE);
const [url, index] = process.argv.slice(2);
const name = "helper";

async function* operations() {
  for (let n = 0; n < 1000; n++) {
    if (n === 500) yield { action: { index: { _index: index, _id: `${name}-bad` } }, doc: { n: "not a number" } };
    yield {
      action: { index: { _index: index, _id: `${name}-${n}` } },
      doc: { n, line: `line ${n} of ${name}: é 日本 🦀 "quoted"` },
    };
  }
  yield { action: { update: { _index: index, _id: `old-${name}` } }, doc: { n: -1 } };
  yield { action: { delete: { _index: index, _id: `gone-${name}` } } };
}

const client = new Client({ node: url });
const failed = [];
const stats = await client.helpers.bulk({
  datasource: operations(),
  flushBytes: 20_000,
  concurrency: 3,
  onDocument({ action, doc }) {
    if (action.update) return [action, { doc }];
    return action;
  },
  onDrop({ status, operation }) {
    if (status !== 400) throw new Error(`${JSON.stringify(operation)}: ${status}`);
    failed.push(operation.index._id);
  },
});
if (stats.failed !== failed.length) throw new Error(JSON.stringify(stats));
console.log(JSON.stringify({ [name]: { ok: stats.successful, failed } }));
