package rpclimit

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// It is refused at once then, with the true time, and has taken nothing.
//
// Promise: No call waits to its deadline or beyond.
func TestWaitUpToTheDeadline(t *testing.T) {
	for _, kind := range []string{"one", "mixed", "queue"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := policy.Must(policy.Funnel(1, 1, time.Second))
				o := Options{WaitUpTo: 10 * time.Second}
				if kind == "queue" {
					p, o.WaitUpTo = policy.Must(policy.Queue(5, 1, time.Second)), 0
				}
				var limiter limits.Limiter[netip.Addr] = open[netip.Addr](t, p)
				var all []AnyLimit
				if kind == "mixed" {
					all = append(all, Limit[string]{Name: "other", Limiter: admissiontest.Hourly[string](t, 100), Key: ByProcedure})
					limiter = admissiontest.Remote[netip.Addr](limiter)
				}
				l := Must(New(o, append(all, Limit[netip.Addr]{Limiter: limiter, Key: ByAddr})...))
				assert.Equal(t, limits.Admitted, begin(l, from(alice)))

				for _, d := range []time.Duration{time.Nanosecond, 999 * time.Millisecond, time.Second} {
					began := time.Now()
					v, _ := l.Begin(within(t, from(alice), d))
					assert.Equal(t, limits.OverLimit, v.Reason, "a turn after a second with a deadline of %v", d)
					assert.Zero(t, time.Since(began), "refused at once")
					after, ok := v.Retry()
					assert.True(t, ok)
					if kind == "queue" {
						// A call with as much time waits for its turn by itself.
						assert.Equal(t, time.Second-max(1, d-1), after)
						continue
					}
					assert.Equal(t, time.Second, after)
				}
				began := time.Now()
				v, s := l.Begin(within(t, from(alice), time.Second+1))
				s.End(Served{})
				assert.Equal(t, limits.Admitted, v.Reason)
				assert.Equal(t, time.Second, time.Since(began))
				assert.Equal(t, time.Second, v.Waited)
			})
		})
	}
}

func TestSpreadTellsTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Must(New(Options{Spread: 2 * time.Second},
			Limit[netip.Addr]{Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(1, 2, time.Second))), Key: ByAddr}))
		require.Equal(t, limits.Admitted, begin(l, from(alice)))
		for _, want := range []int64{500, 1063, 1625} { // an eighth further apart than units
			v, _ := l.Begin(from(alice))
			ms, ok := v.Pushback()
			assert.True(t, ok)
			assert.InDelta(t, want, ms, 1)
		}
	})
}
