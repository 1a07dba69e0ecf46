package ralotel_test

import (
	"context"
	"fmt"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/observe/metrics"
	"github.com/ral-limiter/ral/observe/ralotel"
	"github.com/ral-limiter/ral/policy"
)

func ExampleRegister() {
	limiter, err := engine.New[string](engine.Config{Name: "api", Policy: policy.Must(policy.Funnel(1, 1, time.Hour))})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	reader := sdk.NewManualReader() // or sdk.NewPeriodicReader of an exporter
	meter := sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("example")
	registration, err := ralotel.Register(meter, metrics.Engine(limiter))
	if err != nil {
		panic(err)
	}
	defer registration.Unregister()

	limiter.Choke("alice")
	limiter.Choke("alice")

	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		panic(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[float64]); ok && m.Name == "ral.calls" {
			for _, p := range sum.DataPoints {
				result, _ := p.Attributes.Value("result")
				fmt.Println(result.AsString(), p.Value)
			}
		}
	}
	// Unordered output:
	// admitted 1
	// refused 1
}
