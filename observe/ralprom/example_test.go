package ralprom_test

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/observe/metrics"
	"github.com/ral-limiter/ral/observe/ralprom"
	"github.com/ral-limiter/ral/policy"
)

func ExampleRegister() {
	limiter, err := engine.New[string](engine.Config{Name: "api", Policy: policy.Must(policy.Funnel(1, 1, time.Hour))})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	if err := ralprom.Register(registry, metrics.Engine(limiter)); err != nil {
		panic(err)
	}

	limiter.Choke("alice")
	limiter.Choke("alice")

	families, err := registry.Gather() // as promhttp.HandlerFor(registry) does for each scrape
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		if family.GetName() == "ral_calls_total" {
			for _, m := range family.Metric {
				fmt.Println(m.Label[0].GetValue(), m.Label[1].GetValue(), m.Counter.GetValue())
			}
		}
	}
	// Output:
	// api admitted 1
	// api refused 1
}
