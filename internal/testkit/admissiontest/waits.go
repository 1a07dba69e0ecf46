package admissiontest

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func everyPolicy() map[string]policy.Policy {
	return map[string]policy.Policy{
		"funnel":  policy.Must(policy.Funnel(5, 7, time.Second)),
		"bursty":  policy.Must(policy.Bursty(1, 700*time.Millisecond, 5)),
		"warming": policy.Must(policy.WarmingUp(1, 900*time.Millisecond, 10*time.Second, 3)),
		"at most": policy.Must(policy.AtMost(4, 11*time.Second)),
		"fixed":   policy.Must(policy.FixedWindow(4, 11*time.Second)),
		"aligned": policy.Must(policy.AlignedWindow(4, time.Minute)),
		"sliding": policy.Must(policy.SlidingWindow(4, 11*time.Second)),
	}
}

// A request passes after its RetryAfter, not a nanosecond sooner.
func retryIsExact(t *testing.T, open Open) {
	for name, p := range everyPolicy() {
		for _, way := range ways {
			synctest.Test(t, func(t *testing.T) {
				var first limits.Limiter[string] = NewEngine[string](t, p)
				all := []Limit{{Limiter: first}}
				if way == "mixed" {
					all[0].Limiter = Remote[string](first)
				}
				if way != "alone" {
					all = append(all, Limit{Name: "other", Limiter: NewEngine[string](t, policy.Must(policy.Funnel(4, 3, 1100*time.Millisecond)))})
				}
				door := newDoor(t, open, Options{Cost: cost}, all...)
				refusals := 0
				for i := range 60 {
					n := int64(1 + i%3/2)
					verdict := door.ask("key", n)
					if !verdict.Refused() {
						continue
					}
					refusals++
					after, limit := verdict.RetryAfter, verdict.Limit
					require.Equal(t, limits.OverLimit, verdict.Reason)
					require.Positive(t, after)
					if after > 1 {
						time.Sleep(after - 1)
						verdict = door.ask("key", n)
						assert.True(t, verdict.Refused(), "%s, %s: a nanosecond before %v", name, way, after)
						assert.Equal(t, time.Duration(1), verdict.RetryAfter, "%s, %s", name, way)
					}
					time.Sleep(1)
					verdict = door.ask("key", n)
					if way == "mixed" && verdict.Refused() {
						// A limiter elsewhere was not asked, and has its own RetryAfter.
						assert.NotEqual(t, limit, verdict.Limit, "%s after %v", name, after)
						continue
					}
					assert.False(t, verdict.Refused(), "%s, %s: after %v: %+v", name, way, after, verdict.Decision)
				}
				assert.Greater(t, refusals, 3, "%s, %s: too few refusals to say anything", name, way)
				door.stats()
			})
		}
	}
}

// Turns are a 25th further apart than units, up to Spread after the first. Adapters round them.
func spreadTellsTurns(t *testing.T, open Open) {
	synctest.Test(t, func(t *testing.T) {
		limiter := NewEngine[string](t, policy.Must(policy.Funnel(4, 2, time.Second)))
		limiter.Take("key", 4)
		limit, planned := Limit{Limiter: limiter}, Limit{Limiter: limiter, PolicyFor: func(*Request) policy.Policy { return limiter.Limit() }}
		at := func(ms ...float64) []float64 { return ms }
		same := at(500, 500, 500, 500, 500, 500)
		turns := at(500, 1020, 1540, 2060, 2500, 2500)
		for _, c := range []struct {
			name string
			o    Options
			all  []Limit
			want []float64
		}{
			{"no Spread", Options{}, []Limit{limit}, same},
			{"alone", Options{Spread: 2 * time.Second}, []Limit{limit}, turns},
			{"waiting", Options{Spread: 2 * time.Second, WaitUpTo: time.Millisecond}, []Limit{limit}, turns},
			{"a plan", Options{Spread: 2 * time.Second}, []Limit{planned}, turns},
			{"two engines", Options{Spread: 2 * time.Second}, inWay(t, "two engines", limit), turns},
			{"mixed", Options{Spread: 2 * time.Second}, inWay(t, "mixed", limit), turns},
			{"a plan, mixed", Options{Spread: 2 * time.Second}, inWay(t, "mixed", planned), turns},
			{"Shadow", Options{Spread: 2 * time.Second, Shadow: true}, []Limit{limit}, same},
		} {
			door := newDoor(t, open, c.o, c.all...)
			for i, want := range c.want {
				verdict := door.ask("key", 0)
				assert.Equal(t, limits.OverLimit, verdict.Reason, c.name)
				assert.InDelta(t, want, verdict.RetryAfter.Seconds()*1000, 1, "%s, request %d", c.name, i)
				assert.Equal(t, verdict.RetryAfter, verdict.Decision.RetryAfter, "%s, request %d", c.name, i)
			}
		}
	})
}

func waitsForItsTurn(t *testing.T, open Open) {
	for _, way := range ways {
		synctest.Test(t, func(t *testing.T) {
			limiter := NewEngine[string](t, policy.Must(policy.Funnel(2, 1, time.Second)))
			door := newDoor(t, open, Options{WaitUpTo: 2500 * time.Millisecond}, inWay(t, way, Limit{Limiter: limiter})...)
			got := door.atOnce(6, Request{Key: "key"})
			want := []timed{
				{limits.Admitted, 0}, {limits.Admitted, 0}, {limits.Admitted, time.Second}, {limits.Admitted, 2 * time.Second},
				{limits.OverLimit, 0}, {limits.OverLimit, 0},
			}
			// Limiters of several kinds have no line.
			if way == "mixed" {
				assert.Equal(t, want[:3], got[:3])
				return
			}
			assert.Equal(t, want, got, way)
			stats := door.stats()
			assert.Equal(t, uint64(2), stats.Delayed)
			assert.Equal(t, 3*time.Second, stats.DelayTime)
		})
	}
	// MaxWaiting bounds the line of a key, alone and beside another limit.
	for _, way := range []string{"alone", "two engines"} {
		synctest.Test(t, func(t *testing.T) {
			limiter, err := engine.New[string](engine.Config{Policy: policy.Must(policy.Funnel(1, 1, time.Second)), MaxWaiting: 3})
			require.NoError(t, err)
			defer func() { assert.NoError(t, limiter.Close()) }()
			door := newDoor(t, open, Options{WaitUpTo: time.Hour}, inWay(t, way, Limit{Limiter: limiter})...)
			for i, got := range door.atOnce(50, Request{Key: "key"}) {
				want := timed{limits.OverLimit, 0}
				if i < 4 {
					want = timed{limits.Admitted, time.Duration(i) * time.Second}
				}
				assert.Equal(t, want, got, "%s, request %d", way, i)
			}
		})
	}
}

func waitsForSeveral(t *testing.T, open Open) {
	synctest.Test(t, func(t *testing.T) {
		door := newDoor(t, open, Options{WaitUpTo: 5 * time.Second},
			Limit{Name: "a", Limiter: NewEngine[string](t, policy.Must(policy.Funnel(1, 1, time.Second)))},
			Limit{Name: "b", Limiter: NewEngine[string](t, policy.Must(policy.Funnel(3, 1, 4*time.Second)))})
		for i, at := range []time.Duration{0, time.Second, time.Second, 2 * time.Second, 4 * time.Second} {
			assert.Equal(t, []timed{{limits.Admitted, at}}, door.atOnce(1, Request{Key: "key"}), "request %d", i)
		}
		got := door.atOnce(2, Request{Key: "key"})
		assert.Equal(t, []timed{{limits.Admitted, 4 * time.Second}, {limits.OverLimit, 0}}, got, "the second would wait too long")
		assert.Equal(t, uint64(5), door.stats().Delayed)
	})
}

// A turn at or after the deadline is refused at once. A request that is cancelled in line takes nothing.
func waitEndsWithContext(t *testing.T, open Open) {
	for _, way := range append([]string{"charged"}, ways...) {
		synctest.Test(t, func(t *testing.T) {
			options := Options{WaitUpTo: time.Hour}
			all := []Limit{{Limiter: NewEngine[string](t, policy.Must(policy.Funnel(1, 1, time.Minute)))}}
			if way == "charged" {
				options.Charge = func(*Request) int64 { return 1 }
			} else {
				all = inWay(t, way, all[0])
			}
			door := newDoor(t, open, options, all...)
			assert.Equal(t, limits.Admitted, door.ask("key", 0).Reason)

			late, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			began := time.Now()
			verdict := door.serve(late, Request{Key: "key"})
			assert.Equal(t, []any{limits.OverLimit, time.Minute}, []any{verdict.Reason, verdict.RetryAfter}, way)
			assert.Zero(t, time.Since(began), "%s: it was not refused at once", way)

			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(10*time.Second, cancel)
			assert.Equal(t, limits.Cancelled, door.serve(ctx, Request{Key: "key"}).Reason, way)
			assert.Equal(t, 10*time.Second, time.Since(began), way)
			time.Sleep(50 * time.Second)
			verdict = door.ask("key", 0)
			assert.Equal(t, limits.Admitted, verdict.Reason, "%s: the cancelled request has taken nothing", way)
			assert.Zero(t, verdict.Waited, way)
			door.stats()
		})
	}
}

func arrivalOrder(t *testing.T, open Open) {
	for _, way := range []string{"alone", "two engines"} {
		synctest.Test(t, func(t *testing.T) {
			limiter := NewEngine[string](t, policy.Must(policy.Funnel(10, 1, time.Second)))
			door := newDoor(t, open, Options{WaitUpTo: time.Hour, Cost: cost}, inWay(t, way, Limit{Limiter: limiter})...)
			require.True(t, limiter.Take("key", 10).Allowed)
			time.AfterFunc(time.Second, func() { limiter.Refund("key", 9) })
			var ends [3]time.Duration
			began := time.Now()
			var wg sync.WaitGroup
			for i, n := range []int64{5, 10, 1} {
				if i == 2 {
					time.Sleep(2 * time.Second)
					require.Positive(t, left(limiter, "key"), "there is room for the last request")
				}
				wg.Go(func() {
					assert.Equal(t, limits.Admitted, door.ask("key", n).Reason)
					ends[i] = time.Since(began)
				})
				synctest.Wait()
			}
			wg.Wait()
			assert.Equal(t, [3]time.Duration{5 * time.Second, 6 * time.Second, 7 * time.Second}, ends, way)
		})
	}
}

// A request that waits while the engine is closed is answered then, by Config.WhenUnavailable.
func closedEngine(t *testing.T, open Open) {
	for when, want := range map[engine.WhenUnavailable]limits.Reason{engine.Admit: limits.Admitted, engine.Refuse: limits.OverLimit} {
		for _, way := range []string{"alone", "two engines"} {
			synctest.Test(t, func(t *testing.T) {
				limiter, err := engine.New[string](engine.Config{Policy: policy.Must(policy.Funnel(1, 1, time.Second)), WhenUnavailable: when})
				require.NoError(t, err)
				door := newDoor(t, open, Options{WaitUpTo: time.Hour}, inWay(t, way, Limit{Limiter: limiter})...)
				require.True(t, limiter.Choke("key"))
				time.AfterFunc(100*time.Millisecond, func() { assert.NoError(t, limiter.Close()) })
				verdict := door.ask("key", 0)
				assert.Contains(t, []limits.Reason{want, limits.OverLimit}, verdict.Reason, "the engine may still know the key")
				assert.Equal(t, 100*time.Millisecond, verdict.Waited, way)
				// Close has returned now.
				synctest.Wait()
				assert.Equal(t, []timed{{want, 0}, {want, 0}}, door.atOnce(2, Request{Key: "key"}), "%v, %s", when, way)
			})
		}
	}
}

// admittedAt is requests admitted at these times.
func admittedAt(times ...time.Duration) (all []timed) {
	for _, at := range times {
		all = append(all, timed{limits.Admitted, at})
	}
	return all
}

func queueDelays(t *testing.T, open Open) {
	queue := policy.Must(policy.Queue(2, 1, time.Second))
	refused := timed{limits.OverLimit, 0}
	for upTo, want := range map[time.Duration][]timed{
		0:                       append(admittedAt(0, time.Second, 2*time.Second), refused),
		1500 * time.Millisecond: append(admittedAt(0, time.Second), refused, refused),
	} {
		synctest.Test(t, func(t *testing.T) {
			door := newDoor(t, open, Options{WaitUpTo: upTo}, Limit{Limiter: NewEngine[string](t, queue)})
			assert.Equal(t, want, door.atOnce(4, Request{Key: "key"}), "up to %v", upTo)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		door := newDoor(t, open, Options{}, Limit{Limiter: NewEngine[string](t, queue)})
		assert.Equal(t, admittedAt(0), door.atOnce(1, Request{Key: "key"}))
		var wg sync.WaitGroup
		wg.Go(func() { assert.Equal(t, time.Second, door.ask("key", 0).Waited) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		time.AfterFunc(100*time.Millisecond, cancel)
		assert.Equal(t, limits.Cancelled, door.serve(ctx, Request{Key: "key"}).Reason)
		wg.Wait()
		assert.Equal(t, admittedAt(time.Second), door.atOnce(1, Request{Key: "key"}), "the cancelled request gives its place back")
	})
}

// A limit may become a queue for all keys or one, or cease to be, after the first request.
func becomesQueue(t *testing.T, open Open) {
	const interval = 50 * time.Millisecond
	spaced := func(capacity int64) policy.Policy {
		return policy.Must(policy.Queue(capacity, int64(time.Second/interval), time.Second))
	}
	each := admittedAt(0, interval, 2*interval, 3*interval)
	for _, upTo := range []time.Duration{0, time.Minute} {
		for _, way := range []string{"alone", "two engines"} {
			if way != "alone" && upTo == 0 {
				// Several limits never wait for a queue.
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				limiter := NewEngine[string](t, spaced(0))
				door := newDoor(t, open, Options{WaitUpTo: upTo}, inWay(t, way, Limit{Limiter: limiter})...)
				require.Equal(t, limits.Admitted, door.ask("key", 0).Reason)
				require.NoError(t, limiter.SetPolicy(spaced(20)))
				time.Sleep(time.Second)
				assert.Equal(t, each, door.atOnce(4, Request{Key: "key"}), "%s, up to %v", way, upTo)
				require.NoError(t, limiter.SetPolicy(spaced(0)))
				time.Sleep(time.Second)
				assert.Equal(t, []timed{{limits.Admitted, 0}, {limits.OverLimit, 0}}, door.atOnce(2, Request{Key: "key"}), "%s, up to %v", way, upTo)
			})
		}
		synctest.Test(t, func(t *testing.T) {
			// The engine's goroutines also look into plans.
			var plans sync.Map
			plans.Store("plain", spaced(0))
			plans.Store("queue", spaced(20))
			limiter := NewEngine(t, spaced(5), engine.PolicyFor(func(key string) policy.Policy {
				plan, _ := plans.Load(key)
				limit, _ := plan.(policy.Policy)
				return limit
			}))
			door := newDoor(t, open, Options{WaitUpTo: upTo}, Limit{Limiter: limiter})
			require.Equal(t, limits.Admitted, door.ask("plain", 0).Reason)
			assert.Equal(t, each, door.atOnce(4, Request{Key: "queue"}), "up to %v", upTo)
			assert.Equal(t, each, door.atOnce(4, Request{Key: "of no plan"}), "up to %v", upTo)
			plans.Store("plain", spaced(20))
			time.Sleep(time.Second)
			assert.Equal(t, each, door.atOnce(4, Request{Key: "plain"}), "up to %v", upTo)
		})
	}
	// The limit after the wait is told, unless it is of another family, which refuses later requests.
	for _, way := range []string{"alone", "two engines"} {
		synctest.Test(t, func(t *testing.T) {
			fits := policy.Must(policy.Funnel(1, 1, time.Second))
			began := time.Now()
			limiter := NewEngine(t, fits, engine.PolicyFor(func(string) policy.Policy {
				if time.Since(began) >= time.Second {
					return policy.Must(policy.AtMost(5, time.Second))
				}
				return fits
			}))
			door := newDoor(t, open, Options{WaitUpTo: time.Minute}, inWay(t, way, Limit{Limiter: limiter})...)
			assert.Equal(t, limits.Admitted, door.ask("key", 0).Reason)
			verdict := door.ask("key", 0)
			assert.Equal(t, []any{limits.Admitted, time.Second}, []any{verdict.Reason, verdict.Waited}, way)
			assert.Equal(t, int64(1), verdict.Decision.Limit, way)
		})
	}
}
