// The bulk processor of olivere/elastic; ../../README.md says what is asked of it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sync"

	"github.com/olivere/elastic/v7"
)

const name = "olivere"

func main() {
	url, index := os.Args[1], os.Args[2]
	client, err := elastic.NewClient(elastic.SetURL(url), elastic.SetSniff(false), elastic.SetHealthcheck(false))
	if err != nil {
		log.Fatal(err)
	}
	var lock sync.Mutex
	ok, failed := 0, []string{}
	after := func(_ int64, _ []elastic.BulkableRequest, response *elastic.BulkResponse, err error) {
		if err != nil {
			log.Fatal(err)
		}
		lock.Lock()
		defer lock.Unlock()
		ok += len(response.Succeeded())
		for _, item := range response.Failed() {
			if item.Status != 400 {
				log.Fatalf("%s: %d", item.Id, item.Status)
			}
			failed = append(failed, item.Id)
		}
	}
	processor, err := client.BulkProcessor().Workers(3).BulkActions(300).After(after).Do(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for n := range 1000 {
		if n == 500 {
			processor.Add(elastic.NewBulkIndexRequest().Index(index).Id(name + "-bad").Doc(map[string]any{"n": "not a number"}))
		}
		line := fmt.Sprintf("line %d of %s: é 日本 🦀 \"quoted\"", n, name)
		processor.Add(elastic.NewBulkIndexRequest().Index(index).Id(fmt.Sprintf("%s-%d", name, n)).Doc(map[string]any{"n": n, "line": line}))
	}
	processor.Add(elastic.NewBulkUpdateRequest().Index(index).Id("old-" + name).Doc(map[string]any{"n": -1}))
	processor.Add(elastic.NewBulkDeleteRequest().Index(index).Id("gone-" + name))
	if err := processor.Close(); err != nil {
		log.Fatal(err)
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{name: map[string]any{"ok": ok, "failed": failed}})
}
