package rpclimit

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func policies() map[string]policy.Policy {
	return map[string]policy.Policy{
		"funnel":  policy.Must(policy.Funnel(5, 7, time.Second)),
		"queue":   policy.Must(policy.Queue(3, 7, time.Second)),
		"bursty":  policy.Must(policy.Bursty(1, 700*time.Millisecond, 5)),
		"warming": policy.Must(policy.WarmingUp(1, 900*time.Millisecond, 10*time.Second, 3)),
		"at most": policy.Must(policy.AtMost(4, 11*time.Second)),
		"fixed":   policy.Must(policy.FixedWindow(4, 11*time.Second)),
		"aligned": policy.Must(policy.AlignedWindow(4, time.Minute)),
		"sliding": policy.Must(policy.SlidingWindow(4, 11*time.Second)),
	}
}

// Each policy is tried alone and beside another limit, of one kind of limiter and of two.
//
// Promise: Calls pass after their delay, not a nanosecond sooner.
func TestRetryIsExact(t *testing.T) {
	for name, p := range policies() {
		for _, with := range []string{"alone", "two engines", "mixed"} {
			t.Run(name+"/"+with, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var first limits.Limiter[netip.Addr] = open[netip.Addr](t, p)
					all := []AnyLimit{}
					if with == "mixed" {
						first = remote[netip.Addr]{first}
					}
					if with != "alone" {
						all = append(all, Limit[string]{Name: "other", Limiter: open[string](t, policy.Must(policy.Funnel(4, 3, 1100*time.Millisecond))), Key: ByProcedure})
					}
					l := Must(New(Options{}, append(all, Limit[netip.Addr]{Limiter: first, Key: ByAddr})...))
					refusals := 0
					for range 60 {
						// A queue would delay a call that is alone, but calls have a nanosecond at
						// the most.
						v, _ := l.Begin(within(t, from(alice), 2))
						if !v.Refused() {
							continue
						}
						refusals++
						limit := v.Limit
						after, ok := v.Retry()
						if !assert.True(t, ok) || !assert.Positive(t, after, "%+v", v.Decision) {
							return
						}
						if after > 1 {
							time.Sleep(after - 1)
							v, _ = l.Begin(within(t, from(alice), 2))
							assert.True(t, v.Refused(), "a nanosecond before %v", after)
							last, _ := v.Retry()
							assert.Equal(t, time.Duration(1), last)
						}
						time.Sleep(1)
						v, _ = l.Begin(within(t, from(alice), 2))
						if with == "mixed" && v.Refused() {
							// A limiter elsewhere was not asked, and has its own RetryAfter.
							assert.NotEqual(t, limit, v.Limit, "after %v: %+v", after, v.Decision)
							continue
						}
						assert.False(t, v.Refused(), "after %v: %+v", after, v.Decision)
					}
					assert.Greater(t, refusals, 3)
				})
			})
		}
	}
}

// It is refused at once then, with the true time, and has taken nothing.
//
// Promise: No call waits to its deadline or beyond.
func TestWaitUpToTheDeadline(t *testing.T) {
	for _, kind := range []string{"one", "charged", "two", "mixed", "queue"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := policy.Must(policy.Funnel(1, 1, time.Second))
				o := Options{WaitUpTo: 10 * time.Second}
				if kind == "queue" {
					p, o.WaitUpTo = policy.Must(policy.Queue(5, 1, time.Second)), 0
				}
				var limiter limits.Limiter[netip.Addr] = open[netip.Addr](t, p)
				if kind == "charged" {
					o.Charge = func(*Call, Served) int64 { return 1 }
				}
				var all []AnyLimit
				if kind == "two" || kind == "mixed" {
					all = append(all, Limit[string]{Name: "other", Limiter: hourly[string](t, 100), Key: ByProcedure})
				}
				if kind == "mixed" {
					limiter = remote[netip.Addr]{limiter}
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

				// A call cancelled in line takes nothing.
				ctx, cancel := context.WithCancel(context.Background())
				c := from(alice)
				c.Context = ctx
				time.AfterFunc(time.Second/2, cancel)
				v, s = l.Begin(c)
				assert.Equal(t, limits.Cancelled, v.Reason)
				assert.Equal(t, CodeCanceled, v.Code())
				assert.Nil(t, s)
				time.Sleep(time.Second / 2)
				v, _ = l.Begin(within(t, from(alice), 1))
				assert.Equal(t, limits.Admitted, v.Reason)
			})
		})
	}
}

// Calls that would wait for too long are refused with a true RetryAfter.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Must(New(Options{WaitUpTo: 3 * time.Second}, Limit[netip.Addr]{Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, time.Second))), Key: ByAddr}))
		began := time.Now()
		var mu sync.Mutex
		got := map[string]int{}
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				v, _ := l.Begin(from(alice))
				mu.Lock()
				defer mu.Unlock()
				got[fmt.Sprint(v.Reason, " after ", time.Since(began))]++
			})
		}
		all.Wait()
		assert.Equal(t, map[string]int{"admitted after 0s": 1, "admitted after 1s": 1, "admitted after 2s": 1, "admitted after 3s": 1, "over limit after 0s": 6}, got)
		assert.Equal(t, uint64(3), l.Stats().Delayed)
		assert.Equal(t, 6*time.Second, l.Stats().DelayTime)
	})
}

func TestSpreadTellsTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Must(New(Options{Spread: 2 * time.Second},
			Limit[netip.Addr]{Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(1, 2, time.Second))), Key: ByAddr}))
		require.Equal(t, limits.Admitted, begin(l, from(alice)))
		for _, want := range []int64{500, 1063, 1625, 2188, 2500, 2500} { // an eighth further apart than units
			v, _ := l.Begin(from(alice))
			ms, ok := v.Pushback()
			assert.True(t, ok)
			assert.InDelta(t, want, ms, 1)
		}
	})
}
