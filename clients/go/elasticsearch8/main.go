// esutil.BulkIndexer of go-elasticsearch 8; ../../README.md says what is asked of it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"

	"github.com/elastic/go-elasticsearch/v8"
	"github.com/elastic/go-elasticsearch/v8/esutil"
)

const name = "indexer"

func main() {
	url, index := os.Args[1], os.Args[2]
	client, err := elasticsearch.NewClient(elasticsearch.Config{Addresses: []string{url}})
	if err != nil {
		log.Fatal(err)
	}
	indexer, err := esutil.NewBulkIndexer(esutil.BulkIndexerConfig{
		Client: client, Index: index, NumWorkers: 3, FlushBytes: 20_000,
		OnError: func(_ context.Context, err error) { log.Fatal(err) },
	})
	if err != nil {
		log.Fatal(err)
	}
	var lock sync.Mutex
	failed := []string{}
	add := func(action, id, body string) {
		item := esutil.BulkIndexerItem{
			Action: action, DocumentID: id,
			OnFailure: func(_ context.Context, item esutil.BulkIndexerItem, resp esutil.BulkIndexerResponseItem, err error) {
				if err != nil || resp.Status != 400 {
					log.Fatalf("%s: %v %d", item.DocumentID, err, resp.Status)
				}
				lock.Lock()
				failed = append(failed, item.DocumentID)
				lock.Unlock()
			},
		}
		if body != "" {
			item.Body = strings.NewReader(body)
		}
		if err := indexer.Add(context.Background(), item); err != nil {
			log.Fatal(err)
		}
	}
	for n := range 1000 {
		if n == 500 {
			add("index", name+"-bad", `{"n": "not a number"}`)
		}
		add("index", fmt.Sprintf("%s-%d", name, n), fmt.Sprintf(`{"n": %d, "line": "line %d of %s: é 日本 🦀 \"quoted\""}`, n, n, name))
	}
	add("update", "old-"+name, `{"doc": {"n": -1}}`)
	add("delete", "gone-"+name, "")
	if err := indexer.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
	told := map[string]any{name: map[string]any{"ok": indexer.Stats().NumFlushed, "failed": failed}}
	_ = json.NewEncoder(os.Stdout).Encode(told)
}
