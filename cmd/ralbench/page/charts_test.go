package page

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/reporttest"
)

func chartOf(t *testing.T, charts []chart, id string) chart {
	t.Helper()
	i := slices.IndexFunc(charts, func(c chart) bool { return c.ID == id })
	require.NotEqual(t, -1, i, "no chart %s", id)
	return charts[i]
}

// One chart of each kind is compared, figure by figure.
func TestChartsShowTheReport(t *testing.T) {
	d := reporttest.Run(t)
	data := newView(d).Data
	w := d.Workloads[7] // hot-pass with 2 CPUs, as many as the machine has
	require.Equal(t, "hot-pass (2 CPUs)", format.Task(w.Name, w.CPU))
	bars, curves := chartOf(t, data.Charts, "hot-pass-throughput"), chartOf(t, data.Charts, "hot-pass-latency")
	require.Len(t, bars.Points, len(w.Results)-1, "all but the yardstick")
	assert.Equal(t, w.Yardstick(bench.YardstickMap).OpsPerSecond.Median, bars.Lines[0].Value)
	for i, r := range w.Results[1:] {
		p := bars.Points[i]
		assert.Equal(t, r.Contender, p.Contender)
		assert.Equal(t, r.OpsPerSecond, bench.Spread{Median: p.Value, Min: *p.Min, Max: *p.Max})
	}
	require.Len(t, curves.Points, 5*len(w.Results))
	for i, r := range w.Results {
		for j, want := range []time.Duration{r.Latency.P50, r.Latency.P90, r.Latency.P99, r.Latency.P999, r.Latency.Worst} {
			assert.EqualValues(t, want, curves.Points[5*i+j].Value)
		}
	}
	assert.Len(t, chartOf(t, data.Charts, "hot-pass-scaling").Points, 3*len(w.Results), "with 1, 2 and 4 CPUs")
	memory := d.Workloads[len(d.Workloads)-1]
	key := chartOf(t, data.Charts, "memory-key")
	require.Len(t, key.Points, len(memory.Results)-1)
	assert.Equal(t, memory.Results[1].Memory.BytesPerKey, key.Points[0].Value)
	assert.Nil(t, key.Points[0].Min, "measured once")
	for _, id := range []string{"memory-gc", "memory-full", "memory-idle", "growth-known"} {
		chartOf(t, data.Charts, id)
	}
	assert.Len(t, chartOf(t, data.Charts, "overview").Points, 7*4, "all workloads but memory, all contenders but the yardstick")
}
