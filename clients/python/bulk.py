"""The bulk helpers of opensearch-py and elasticsearch-py; ../README.md says what is asked of them."""

import json
import sys

try:
    from opensearchpy import OpenSearch as Client, helpers
except ImportError:
    from elasticsearch import Elasticsearch as Client, helpers


def actions(name, index):
    for n in range(1000):
        if n == 500:
            yield {"_index": index, "_id": f"{name}-bad", "n": "not a number"}
        yield {"_index": index, "_id": f"{name}-{n}", "n": n, "line": f"line {n} of {name}: é 日本 🦀 \"quoted\""}
    yield {"_op_type": "update", "_index": index, "_id": f"old-{name}", "doc": {"n": -1}}
    yield {"_op_type": "delete", "_index": index, "_id": f"gone-{name}"}


def told(results):
    """Counts what a helper that yields (ok, item) says."""
    told = {"ok": 0, "failed": []}
    for ok, item in results:
        (result,) = item.values()
        if ok:
            told["ok"] += 1
        else:
            assert result["status"] == 400, item
            told["failed"].append(result["_id"])
    return told


def main(url, index):
    client = Client([url])
    ok, errors = helpers.bulk(client, actions("bulk", index), raise_on_error=False, chunk_size=300)
    answers = {
        "bulk": {"ok": ok, "failed": [next(iter(e.values()))["_id"] for e in errors]},
        "streaming": told(
            helpers.streaming_bulk(client, actions("streaming", index), raise_on_error=False, chunk_size=300)
        ),
        "parallel": told(
            helpers.parallel_bulk(
                client, actions("parallel", index), raise_on_error=False, chunk_size=100, thread_count=4
            )
        ),
    }
    print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
