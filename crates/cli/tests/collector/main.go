// Package main is the OTLP receiver of the OpenTelemetry collector. It prints what it receives as OTLP's
// JSON, one request a line, after a line that says that it listens. The tests of traces read that.
//
//	collector GRPC-ADDRESS HTTP-ADDRESS [CERTIFICATE KEY]
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(words []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	grpc, http := map[string]any{"endpoint": words[0]}, map[string]any{"endpoint": words[1]}
	if len(words) > 2 {
		tls := map[string]any{"cert_file": words[2], "key_file": words[3]}
		grpc["tls"], http["tls"] = tls, tls
	}
	settings := confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{"grpc": grpc, "http": http}})
	if err := settings.Unmarshal(config); err != nil {
		return err
	}
	var one sync.Mutex
	print := func(_ context.Context, traces ptrace.Traces) error {
		text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
		if err != nil {
			return err
		}
		one.Lock()
		defer one.Unlock()
		_, err = fmt.Println(string(text))
		return err
	}
	next, err := consumer.NewTraces(print)
	if err != nil {
		return err
	}
	receiver, err := factory.CreateTraces(ctx, receivertest.NewNopSettings(factory.Type()), config, next)
	if err != nil {
		return err
	}
	if err := receiver.Start(ctx, componenttest.NewNopHost()); err != nil {
		return err
	}
	fmt.Println("{}")
	<-ctx.Done()
	return receiver.Shutdown(context.Background())
}
