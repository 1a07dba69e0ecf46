package metrics_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/observetest"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/observe/metrics"
	"github.com/ral-limiter/ral/outgoing"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
	"github.com/ral-limiter/ral/single"
)

// Dashboards and alerts depend on these names. New metrics are added to the page and to a table.
// Module fleet has the same test.
//
// Promise: Metrics keep their names.
func TestMetricsAreThoseOfThePage(t *testing.T) {
	one := policy.Must(policy.Funnel(1, 1, time.Hour))
	live, candidate := newEngine(t, engine.Config{Policy: one}), newEngine(t, engine.Config{Policy: one})
	trial := must.Get(limits.NewTrial(limits.TrialConfig[string]{Live: live, Candidate: candidate}))
	web := must.Get(httplimit.NewAll(httplimit.Options{},
		httplimit.Limit[string]{Limiter: live, Key: httplimit.ByHeader("Key")},
		httplimit.Limit[string]{Limiter: candidate, Key: httplimit.ByHeader("Key"), Name: "tried", Shadow: true}))
	calls := must.Get(rpclimit.New(rpclimit.Options{},
		rpclimit.Limit[string]{Limiter: live, Key: rpclimit.ByMetadata("key")},
		rpclimit.Limit[string]{Limiter: candidate, Key: rpclimit.ByMetadata("key"), Name: "tried", Shadow: true}))
	line := must.Get(outgoing.New[string](outgoing.Config{}))
	defer line.Close()
	observetest.PageHolds(t, `^ral\.((save|http|rpc|outgoing|trial)\.)?[a-z_]+$`, metrics.Engine(live), metrics.Single("one", single.MustNew(one, nil)),
		web.Metrics("web"), calls.Metrics("rpc"), line.Metrics(), metrics.Trial("trial", trial))
}

// Promise: Names follow Prometheus and OpenTelemetry conventions.
func TestNamesFollowTheConventions(t *testing.T) {
	names := map[string]bool{}
	for _, m := range observetest.MetricRows(t) {
		prom := m.Prometheus()
		assert.Regexp(t, `^ral(\.[a-z]+(_[a-z]+)*)+$`, m.Name)
		assert.Regexp(t, `^ral(_[a-z]+)+$`, prom)
		assert.Equal(t, !m.Gauge, strings.HasSuffix(prom, "_total"), prom)
		assert.False(t, names[prom], "two metrics are %s", prom)
		names[prom] = true
		assert.Regexp(t, `^(s|By|1|\{[a-z]+\})?$`, m.Unit, "%s: base units only", prom)
		assert.NotEqual(t, !m.Gauge && m.Unit == "", true, "%s counts nothing", prom)
		assert.Regexp(t, `^[A-Z0-9].*[^.]\.$`, m.Help, prom)
		assert.Regexp(t, `^(result|reason|source|state|used|shadow)?$`, m.Label, "%s: a label is no key", prom)
		for _, v := range m.Values {
			if m.Label == "shadow" {
				continue
			}
			assert.Regexp(t, regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`), v, prom)
		}
		assert.LessOrEqual(t, len(m.Values), 9, "%s: each value is a series of each limiter", prom)
	}
	assert.Greater(t, len(names), 50)
}

func TestUnitsAreInTheNameOfPrometheus(t *testing.T) {
	for _, c := range []struct {
		m    metrics.Metric
		want string
	}{
		{metrics.Metric{Name: "ral.a.b_c", Unit: "s"}, "ral_a_b_c_seconds_total"},
		{metrics.Metric{Name: "ral.a", Unit: "s", Gauge: true}, "ral_a_seconds"},
		{metrics.Metric{Name: "ral.a", Unit: "By", Gauge: true}, "ral_a_bytes"},
		{metrics.Metric{Name: "ral.a", Unit: "1", Gauge: true}, "ral_a_ratio"},
		{metrics.Metric{Name: "ral.a", Unit: "{key}", Gauge: true}, "ral_a"},
		{metrics.Metric{Name: "ral.a", Unit: "", Gauge: true}, "ral_a"},
	} {
		assert.Equal(t, c.want, c.m.Prometheus())
	}
}
