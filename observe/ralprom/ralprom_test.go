package ralprom_test

import (
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/observetest"
	"github.com/ral-limiter/ral/observe/metrics"
	"github.com/ral-limiter/ral/observe/ralprom"
	"github.com/ral-limiter/ral/policy"
)

func newEngine(t *testing.T, name string) *engine.Engine[string] {
	e := must.Get(engine.New[string](engine.Config{Name: name, Policy: policy.Must(policy.Funnel(1, 1, time.Hour))}))
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	return e
}

// Names, help, types, labels and values. Module observe/ralotel has the same file.
//
// Promise: Prometheus reads the contract's names.
func TestExpositionHasTheContractsNames(t *testing.T) {
	file := must.Get(os.Open("../metrics/testdata/exposition.txt"))
	defer file.Close()
	require.NoError(t, testutil.CollectAndCompare(ralprom.New(observetest.EveryMetric(t, "api")), file))
}

func TestMetricsPassThePrometheusLinter(t *testing.T) {
	assert.Empty(t, must.Get(testutil.CollectAndLint(ralprom.New(observetest.EveryMetric(t, "api")))))
}

func TestTwoLimitersOfOneNameAreAnError(t *testing.T) {
	registry := prometheus.NewRegistry()
	require.NoError(t, ralprom.Register(registry, metrics.Engine(newEngine(t, "api"))))
	before := testutil.CollectAndCount(registry)

	again := ralprom.Register(registry, metrics.Engine(newEngine(t, "web")), metrics.Engine(newEngine(t, "api")))
	require.ErrorIs(t, again, metrics.ErrDuplicate)
	assert.ErrorContains(t, again, `two limiters have the same name: "api"; give each a Name of its own`)
	var already prometheus.AlreadyRegisteredError
	assert.ErrorAs(t, again, &already)
	assert.Equal(t, before, testutil.CollectAndCount(registry), "all or none: web is not there either")

	// Another kind of limiter shares only some metrics.
	calls := []metrics.Reading[int]{{Metric: metrics.Metric{Name: "ral.calls"}, Value: "admitted", Of: func(*int) any { return 1 }}}
	other := metrics.New("api", func() int { return 0 }, calls)
	err := ralprom.Register(registry, other)
	require.ErrorIs(t, err, metrics.ErrDuplicate)
	assert.ErrorContains(t, err, `"api"`)

	// Other registries and other metrics may have the name.
	require.NoError(t, ralprom.Register(prometheus.NewRegistry(), other))
	m := httplimit.Must(httplimit.New(newEngine(t, "api"), httplimit.ByHeader("Key"), httplimit.Options{}))
	require.NoError(t, ralprom.Register(registry, m.Metrics("api")))
}

func TestUnregisterTakesAnyCollectorOfTheSource(t *testing.T) {
	registry := prometheus.NewRegistry()
	source := metrics.Engine(newEngine(t, "api"))
	require.NoError(t, ralprom.Register(registry, source))
	assert.True(t, registry.Unregister(ralprom.New(source)))
	assert.Zero(t, testutil.CollectAndCount(registry))
	require.NoError(t, ralprom.Register(registry, source))
}

// Promise: A faulty source is an error of registration.
func TestWrongSourceIsAnError(t *testing.T) {
	registry := prometheus.NewRegistry()
	bad := metrics.New("", func() int { return 0 }, []metrics.Reading[int]{})
	require.ErrorIs(t, ralprom.Register(registry, bad), bad.Err())
	require.ErrorContains(t, registry.Register(ralprom.New(bad)), "name is")
	require.ErrorContains(t, ralprom.Register(registry, nil), "the Source is nil")
	// Other errors of the registry stay as they are.
	wrong := errors.New("the registry is full")
	require.Equal(t, wrong, ralprom.Register(refusing{wrong}, metrics.Engine(newEngine(t, "api"))))
}

type refusing struct{ err error }

func (r refusing) Register(prometheus.Collector) error  { return r.err }
func (r refusing) MustRegister(...prometheus.Collector) {}
func (r refusing) Unregister(prometheus.Collector) bool { return false }

func TestAbsentValuesAreNotCollected(t *testing.T) {
	value := math.NaN()
	source := metrics.New("api", func() int { return 0 },
		[]metrics.Reading[int]{{Metric: metrics.Metric{Name: "ral.keys"}, Of: func(*int) any { return value }}})
	require.NoError(t, source.Err())
	assert.Zero(t, testutil.CollectAndCount(ralprom.New(source)))
	value = 3
	assert.Equal(t, 1, testutil.CollectAndCount(ralprom.New(source)))
}
