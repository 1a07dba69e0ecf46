package fleet

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/metricspage"
	"github.com/ral-limiter/ral/observe/metrics"
)

// Each counter of Stats changes a single series or, of the breakers, as many as it is in.
func TestEachCounterOfALimiterHasASeries(t *testing.T) {
	breakers := map[string]int{"Breakers": 1, "OpenBreakers": 2, "HalfOpenBreakers": 2}
	of := reflect.TypeFor[Stats]()
	for i := range of.NumField() {
		var s snapshot
		field := reflect.ValueOf(&s.Stats).Elem().Field(i)
		want := 7.0
		switch {
		case field.CanInt():
			field.SetInt(7)
			if of.Field(i).Type == reflect.TypeFor[time.Duration]() {
				field.SetInt(int64(7 * time.Second))
			}
		case field.CanUint():
			field.SetUint(7)
		default:
			field.SetBool(true)
			want = 1
		}
		var zero snapshot
		changed := 0
		before := metrics.New("a", func() snapshot { return zero }, table).Read(nil)
		for j, got := range metrics.New("a", func() snapshot { return s }, table).Read(nil) {
			if got != before[j] {
				changed++
				assert.InDelta(t, want, max(got, -got), 0, "table[%d] of Stats.%s", j, of.Field(i).Name)
			}
		}
		assert.Equal(t, max(1, breakers[of.Field(i).Name]), changed, "series of Stats.%s", of.Field(i).Name)
	}
}

func TestMetricsAreThoseOfThePage(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		config := on(redis, funnel(1, 1, time.Hour))
		l := open(t, config)
		source := l.Metrics()
		metricspage.Holds(t, `^ral\.fleet\.`, source)
		for _, healthy := range []float64{1, 0} {
			if healthy == 0 {
				require.NoError(t, l.Close())
			}
			for i, s := range source.Series() {
				assert.Equal(t, config.Name, s.Limit)
				if s.Metric.Name == "ral.healthy" {
					assert.Equal(t, healthy, source.Read(nil)[i])
				}
			}
		}
	})
}
