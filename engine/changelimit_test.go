package engine

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// A key that is not in the table, or can never be, is not translated or opened.
func TestChangeLimitOfAnUnknownKey(t *testing.T) {
	small, large := funnel(10, 10, time.Hour), funnel(1000, 1000, time.Hour)
	e := open[any](t, Config{Policy: small})
	for _, key := range []any{"new", math.NaN(), []int{1}, map[string]int{}, nil, [1]any{[]int{}}} {
		assert.NoError(t, e.ChangeLimit(key, small, large), "%v", key)
	}
	assert.Zero(t, e.Len())
}

type noFamily struct{ policy.Policy }

func TestChangeLimitErrors(t *testing.T) {
	small := funnel(10, 10, time.Hour)
	e := open[string](t, Config{Name: "api", Policy: small})
	require.True(t, e.Take("key", 10).Allowed)
	before := e.Peek("key", 0).Remaining
	window := policy.Must(policy.FixedWindow(10, time.Hour))
	for _, key := range []string{"key", "unknown"} {
		for _, c := range []struct {
			from, to policy.Policy
			field    string
		}{{window, small, "from"}, {small, window, "to"}, {noFamily{small}, nil, "from"}, {nil, noFamily{small}, "to"}} {
			err := e.ChangeLimit(key, c.from, c.to)
			var refused *policy.FieldError
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, []string{"ChangeLimit", c.field}, []string{refused.Of, refused.Field})
			assert.Contains(t, err.Error(), `engine "api"`)
			assert.Contains(t, err.Error(), small.String())
		}
	}
	require.EqualError(t, e.ChangeLimit("key", small, small, 7), "ral: ChangeLimit: keep is 7, want KeepUsed or KeepShare")
	assert.Equal(t, before, e.Peek("key", 0).Remaining)
	require.NoError(t, e.Close())
	assert.ErrorIs(t, e.ChangeLimit("key", small, small), ErrClosed)

	odd := open[string](t, Config{Policy: pacer{time.Second, time.Minute}})
	var refused *policy.FieldError
	assert.ErrorAs(t, odd.ChangeLimit("key", nil, nil), &refused, "the engine's own limit has no family")
}

// A take that has decided on the word before the change decides again.
func TestChangeLimitOvertakesATake(t *testing.T) {
	small := &hooked{Policy: funnel(10, 10, time.Hour)}
	own := &hooked{Policy: funnel(1000, 1000, time.Hour)}
	e := open[string](t, Config{Policy: own, Clock: newHandClock().Now})
	require.True(t, e.TakeWith(small, "k", 10).Allowed)
	settled(t, e)
	own.overtake(func() { require.NoError(t, e.ChangeLimit("k", small, own)) })
	require.False(t, e.Take("k", 1).Allowed, "a refusal is not decided again")
	assert.EqualValues(t, 990, e.Peek("k", 0).Remaining)
	own.overtake(func() { require.NoError(t, e.ChangeLimit("k", own, small)) })
	assert.False(t, e.Take("k", 990).Allowed, "which had room before the change")
	assert.Zero(t, e.TakeWith(small, "k", 0).Remaining)
}

// In a Tiered each limit of a key changes by itself. Calls that wait for the key get new turns, in
// order, sooner or later, and are charged by both limits once.
func TestChangeLimitOfOneTier(t *testing.T) {
	small, large := funnel(10, 10, time.Hour), funnel(1000, 1000, time.Hour)
	for _, up := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			tiers := openTiered[string](t, Config{Policy: funnel(10, 1, time.Second)}, small)
			second, hour := tiers.Engines()[0], tiers.Engines()[1]
			from, to, left := policy.Policy(nil), large, int64(1) // of 10 units that have drained
			ends := []time.Duration{10 * time.Second, 10 * time.Second}
			if up {
				require.True(t, tiers.Take("key", 10).Allowed)
			} else {
				// That is one unit of 10 an hour.
				require.True(t, hour.TakeWith(large, "key", 100).Allowed)
				require.True(t, hour.Take("key", 9).Allowed)
				from, to, left = large, nil, 7 // after the second, as the first has drained
				ends = []time.Duration{10*time.Second + 36*time.Minute, 10*time.Second + 54*time.Minute}
			}
			began := time.Now()
			var all sync.WaitGroup
			var got [2]time.Duration
			for i, n := range []int64{6, 3} {
				all.Go(func() {
					assert.NoError(t, tiers.Wait(t.Context(), "key", n))
					got[i] = time.Since(began)
				})
				synctest.Wait()
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			require.Zero(t, got, "they wait")
			require.NoError(t, hour.ChangeLimit("key", from, to))
			all.Wait()
			for i, end := range ends {
				assert.InDelta(t, end, got[i], float64(time.Millisecond), "up %v, call %d", up, i)
			}
			assert.Equal(t, left, second.Peek("key", 0).Remaining)
			noLines(t, second)
			noLines(t, hour)
		})
	}
}
