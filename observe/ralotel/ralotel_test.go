package ralotel_test

import (
	"context"
	"math"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/observetest"
	"github.com/ral-limiter/ral/observe/metrics"
	"github.com/ral-limiter/ral/observe/ralotel"
	"github.com/ral-limiter/ral/policy"
)

func newEngine(t *testing.T, name string) *engine.Engine[string] {
	e := must.Get(engine.New[string](engine.Config{Name: name, Policy: policy.Must(policy.Funnel(1, 1, time.Hour))}))
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	return e
}

func collect(t *testing.T, reader sdk.Reader) map[string]metricdata.Metrics {
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &all))
	byName := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// OpenTelemetry's own exporter to Prometheus exports the same as module observe/ralprom.
//
// Promise: Names match Prometheus names.
func TestNamesAreThoseOfPrometheus(t *testing.T) {
	registry := prometheus.NewRegistry()
	reader := must.Get(exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo()))
	must.Get(ralotel.Register(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("ral"), observetest.EveryMetric(t, "api")))
	file := must.Get(os.Open("../metrics/testdata/exposition.txt"))
	defer file.Close()
	require.NoError(t, testutil.GatherAndCompare(registry, file))
}

func TestAbsentValuesAreNotObserved(t *testing.T) {
	reader := sdk.NewManualReader()
	value := math.NaN()
	source := metrics.New("api", func() int { return 0 }, []metrics.Reading[int]{{Metric: metrics.Metric{Name: "ral.keys"}, Of: func(*int) any { return value }}})
	must.Get(ralotel.Register(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test"), source))
	assert.NotContains(t, collect(t, reader), "ral.keys")
	value = 3
	assert.Contains(t, collect(t, reader), "ral.keys")
}

// Promise: Two limiters sharing a name are an error.
func TestTwoLimitersOfOneNameAreAnError(t *testing.T) {
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	meter := provider.Meter("test")
	first := metrics.Engine(newEngine(t, "api"))
	registration := must.Get(ralotel.Register(meter, first))
	web := must.Get(ralotel.Register(meter, metrics.Engine(newEngine(t, "web"))))
	before := series(t, reader)

	second := metrics.Engine(newEngine(t, "api"))
	_, err := ralotel.Register(meter, metrics.Engine(newEngine(t, "other")), second)
	require.ErrorIs(t, err, metrics.ErrDuplicate)
	assert.ErrorContains(t, err, `two limiters have the same name: "api"; give each a Name of its own`)
	_, err = ralotel.Register(provider.Meter("test"), second)
	require.ErrorIs(t, err, metrics.ErrDuplicate, "it is the same meter")
	_, err = ralotel.Register(sdk.NewMeterProvider().Meter("test"), second, metrics.Engine(newEngine(t, "api")))
	require.ErrorIs(t, err, metrics.ErrDuplicate, "a limit twice in one call is accepted")
	assert.Equal(t, before, series(t, reader), "all or none: other is not there either")

	// Unregister frees the name, however often it is called.
	require.NoError(t, registration.Unregister())
	again := must.Get(ralotel.Register(meter, second))
	require.NoError(t, registration.Unregister())
	_, err = ralotel.Register(meter, first)
	require.ErrorIs(t, err, metrics.ErrDuplicate)
	require.NoError(t, again.Unregister())
	require.NoError(t, web.Unregister())
	assert.Zero(t, series(t, reader))
	// Other meters are no error.
	must.Get(ralotel.Register(sdk.NewMeterProvider().Meter("test"), first))
}

func series(t *testing.T, reader sdk.Reader) (n int) {
	for _, m := range collect(t, reader) {
		switch data := m.Data.(type) {
		case metricdata.Sum[float64]:
			n += len(data.DataPoints)
		case metricdata.Gauge[float64]:
			n += len(data.DataPoints)
		}
	}
	return n
}

func TestWrongSourceIsAnError(t *testing.T) {
	meter := sdk.NewMeterProvider().Meter("test")
	_, err := ralotel.Register(nil, observetest.EveryMetric(t, "api"))
	require.ErrorContains(t, err, "the meter is nil")
	_, err = ralotel.Register(meter, observetest.EveryMetric(t, "api"), nil)
	require.ErrorContains(t, err, "the Source is nil")
	_, err = ralotel.Register(meter, observetest.EveryMetric(t, "api"))
	require.NoError(t, err, "nothing was registered before")
}

// wrapped is a comparable type with values that may not be.
type wrapped struct {
	metric.Meter
	with any
}

func TestMeterThatCannotBeCompared(t *testing.T) {
	meter := wrapped{sdk.NewMeterProvider().Meter("ral"), []int{1}}
	for range 2 { // no duplicate is noticed
		require.NoError(t, must.Get(ralotel.Register(meter, metrics.Engine(newEngine(t, "api")))).Unregister())
	}
}
