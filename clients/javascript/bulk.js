// client.helpers.bulk of the JavaScript clients; ../README.md says what is asked of it.
// PACKAGE (environment) is the package to take the client from.

const { Client } = await import(process.env.PACKAGE);
const [url, index] = process.argv.slice(2);
const name = "helper";

// The helper takes documents, and asks for each one's action.
const actions = new Map();
function as(action, document) {
  actions.set(document, action);
  return document;
}

async function* documents() {
  for (let n = 0; n < 1000; n++) {
    if (n === 500) yield as({ index: { _index: index, _id: `${name}-bad` } }, { n: "not a number" });
    const line = `line ${n} of ${name}: é 日本 🦀 "quoted"`;
    yield as({ index: { _index: index, _id: `${name}-${n}` } }, { n, line });
  }
  yield as([{ update: { _index: index, _id: `old-${name}` } }, {}], { n: -1 });
  yield as({ delete: { _index: index, _id: `gone-${name}` } }, {});
}

const client = new Client({ node: url });
const failed = [];
const stats = await client.helpers.bulk({
  datasource: documents(),
  flushBytes: 20_000,
  concurrency: 3,
  onDocument: (document) => actions.get(document),
  onDrop({ status, operation }) {
    if (status !== 400) throw new Error(`${JSON.stringify(operation)}: ${status}`);
    failed.push(operation.index._id);
  },
});
if (stats.failed !== failed.length) throw new Error(JSON.stringify(stats));
console.log(JSON.stringify({ [name]: { ok: stats.successful, failed } }));
