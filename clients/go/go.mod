module clients

go 1.26.0

require (
	github.com/elastic/go-elasticsearch/v8 v8.19.1
	github.com/elastic/go-elasticsearch/v9 v9.5.2
	github.com/olivere/elastic/v7 v7.0.32
	github.com/opensearch-project/opensearch-go/v4 v4.8.1
)

require (
	github.com/elastic/elastic-transport-go/v8 v8.9.0 // indirect
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/josharian/intern v1.0.0 // indirect
	github.com/mailru/easyjson v0.7.7 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	go.opentelemetry.io/auto/sdk v1.1.0 // indirect
	go.opentelemetry.io/otel v1.35.0 // indirect
	go.opentelemetry.io/otel/metric v1.35.0 // indirect
	go.opentelemetry.io/otel/trace v1.35.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
)
