// pino with pino-elasticsearch, which writes log lines; it makes no ids, updates nothing and deletes nothing,
// so that the lines are all that is asked of it: ../README.md.

import pino from "pino";
import pinoElasticsearch from "pino-elasticsearch";

const [url, index] = process.argv.slice(2);
const stream = pinoElasticsearch({ index, node: url, esVersion: 8, flushBytes: 20_000, flushInterval: 200 });
let dropped = 0;
const unexpected = (error) => {
  console.error(error);
  process.exit(1);
};
stream.on("error", unexpected);
stream.on("insertError", unexpected);
stream.on("unknown", unexpected);
stream.on("insert", (stats) => {
  dropped += stats.failed;
  console.log(JSON.stringify({ pino: { ok: stats.successful, failed: dropped ? ["dropped"] : [] } }));
  process.exit(0);
});
const logger = pino({ level: "info" }, stream);
for (let n = 0; n < 1000; n++) logger.info({ n }, `line ${n} of pino`);
stream.end();
