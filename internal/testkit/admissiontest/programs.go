package admissiontest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

// misconfigured tests the errors of a program, which are logged once for each limit: a limiter that
// refuses the plan, a plan of another family, from the engine or the request, and a cost below 0.
// Other keys are served.
func misconfigured(t *testing.T, open Open) {
	funnel, window := policy.Must(policy.Funnel(10, 10, time.Hour)), policy.Must(policy.FixedWindow(10, time.Hour))
	byEngine := func(t *testing.T) Limit {
		return Limit{Limiter: NewEngine(t, funnel, engine.PolicyFor(func(key string) policy.Policy {
			if strings.HasPrefix(key, "wrong") {
				return window
			}
			return funnel
		}))}
	}
	byRequest := func(t *testing.T) Limit {
		return Limit{Limiter: NewEngine[string](t, funnel), PolicyFor: func(request *Request) policy.Policy {
			if strings.HasPrefix(request.Key, "wrong") {
				return window
			}
			return nil
		}}
	}
	// Another limit never admits a cost of 20 either, but that is the client's error.
	narrow := func(t *testing.T) Limit {
		return Limit{Name: "narrow", Limiter: NewEngine[string](t, policy.Must(policy.Funnel(15, 15, time.Hour)))}
	}
	for name, limit := range map[string]func(t *testing.T) Limit{"engine.PolicyFor": byEngine, "Limit.PolicyFor": byRequest} {
		for _, several := range []bool{false, true} {
			for _, upTo := range []time.Duration{0, time.Minute} {
				for _, n := range []int64{0, 1, 20} {
					synctest.Test(t, func(t *testing.T) {
						var log bytes.Buffer
						all := []Limit{limit(t)}
						if several {
							all = []Limit{narrow(t), all[0]}
						}
						door := newDoor(t, open, Options{Cost: cost, WaitUpTo: upTo, Logger: slog.New(slog.NewTextHandler(&log, nil))}, all...)
						for _, key := range []string{"wrong", "wrong", "wrong too"} {
							verdict := door.ask(key, n)
							assert.Equal(t, []any{limits.Misconfigured, "limit"}, []any{verdict.Reason, verdict.Limit}, "%s, several: %v, cost %d", name, several, n)
						}
						assert.Equal(t, limits.Admitted, door.ask("right", 1).Reason, name)
						door.stats()
						assert.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
						assert.Contains(t, log.String(), "another family", name)
						assert.Contains(t, log.String(), `policy="`+window.String()+`"`, name)
						assert.Equal(t, 3, strings.Count(log.String(), `"rate limit: misconfigured"`), name)
					})
				}
			}
		}
	}
	for _, several := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			limiter := NewEngine[string](t, funnel)
			all := []Limit{{Limiter: limiter}}
			if several {
				all = append(all, narrow(t))
			}
			door := newDoor(t, open, Options{Cost: cost, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))}, all...)
			for range 3 {
				assert.Equal(t, limits.Misconfigured, door.ask("key", -1).Reason)
			}
			assert.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
			assert.Zero(t, limiter.Len())
			door.stats()
		})
	}
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		none := limits.ForAnyKey[string](single.MustNew(policy.Funnel(10, 1, time.Hour)))
		door := newDoor(t, open, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))},
			Limit{Limiter: none, PolicyFor: func(*Request) policy.Policy { return funnel }})
		verdict := door.ask("key", 0)
		assert.Equal(t, limits.Misconfigured, verdict.Reason)
		assert.Contains(t, log.String(), "the limiter takes no policy")
		assert.NotContains(t, log.String(), "another family")
	})
}

// barred is a policy of the program that admits only requests for nothing.
type barred struct{ policy.Policy }

func (barred) Limit() int64 { return 0 }

func (barred) Take(word uint64, _ policy.Instant, n int64, _ time.Duration) (uint64, policy.Decision) {
	if n == 0 {
		return word, policy.Decision{Allowed: true}
	}
	return word, policy.Decision{RetryAfter: policy.Never}
}

// A policy whose limit is 0 is none of another family, which also has limit 0.
func limitOfZero(t *testing.T, open Open) {
	for _, way := range ways {
		for _, upTo := range []time.Duration{0, time.Minute} {
			synctest.Test(t, func(t *testing.T) {
				none := NewEngine[string](t, barred{policy.Must(policy.Funnel(10, 10, time.Hour))})
				door := newDoor(t, open, Options{WaitUpTo: upTo}, inWay(t, way, Limit{Limiter: none})...)
				assert.Equal(t, limits.NeverAdmitted, door.ask("key", 0).Reason, way)
			})
		}
	}
}

func planOf(request *Request) policy.Policy { return request.Plan }

// All plans count the key's use.
func planOfRequest(t *testing.T, open Open) {
	small, large := policy.Must(policy.FixedWindow(5, time.Hour)), policy.Must(policy.FixedWindow(50, time.Hour))
	for _, way := range ways {
		for _, options := range []Options{{}, {WaitUpTo: time.Millisecond}, {Charge: func(*Request) int64 { return 1 }}} {
			synctest.Test(t, func(t *testing.T) {
				door := newDoor(t, open, options, inWay(t, way, Limit{Limiter: Hourly[string](t, 10), PolicyFor: planOf})...)
				for i, c := range []struct {
					plan  policy.Policy
					pass  int
					limit int64
				}{{small, 5, 5}, {nil, 5, 10}, {large, 40, 50}, {small, 0, 5}} {
					for range c.pass {
						assert.Equal(t, limits.Admitted, door.serve(t.Context(), Request{Key: "key", Plan: c.plan}).Reason, "%s, step %d", way, i)
					}
					verdict := door.serve(t.Context(), Request{Key: "key", Plan: c.plan})
					assert.Equal(t, limits.OverLimit, verdict.Reason, "%s, step %d", way, i)
					assert.Equal(t, c.limit, verdict.Decision.Limit, "%s, step %d", way, i)
				}
				door.stats()
			})
		}
	}
}

// Used units count under each plan.
func planChanges(t *testing.T, open Open) {
	small, large := policy.Must(policy.FixedWindow(100, time.Hour)), policy.Must(policy.FixedWindow(300, time.Hour))
	var plan atomic.Pointer[policy.Policy]
	plan.Store(&small)
	door := newDoor(t, open, Options{}, Limit{Limiter: Hourly[string](t, 10), PolicyFor: func(*Request) policy.Policy { return *plan.Load() }})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				door.ask("key", 0)
			}
		})
	}
	wg.Go(func() {
		for range 100 {
			plan.Store(&large)
			plan.Store(&small)
		}
		plan.Store(&large)
	})
	wg.Wait()
	for range 300 {
		door.ask("key", 0)
	}
	assert.Equal(t, uint64(300), door.stats().By[limits.Admitted])
	plan.Store(&small)
	assert.Equal(t, limits.OverLimit, door.ask("key", 0).Reason, "what was used is not forgotten")
}

// panicOfPlan lets engine.PolicyFor panic in each call that a request makes of it, one after another.
func panicOfPlan(t *testing.T, open Open) {
	// The engine counts its keys after a second.
	funnel := policy.Must(policy.Funnel(1, 1, time.Second/2))
	for name, c := range map[string]struct {
		o     Options
		waits bool
	}{
		"at once":         {Options{}, false},
		"charged":         {Options{Charge: func(*Request) int64 { return 1 }}, false},
		"need not wait":   {Options{WaitUpTo: time.Hour}, false},
		"after a wait":    {Options{WaitUpTo: time.Hour}, true},
		"wait and charge": {Options{WaitUpTo: time.Hour, Charge: func(*Request) int64 { return 1 }}, true},
	} {
		for _, several := range []bool{false, true} {
			panics := 0
			for passed := false; !passed; {
				synctest.Test(t, func(t *testing.T) {
					// left is the number of calls until a panic.
					left := math.MaxInt
					limiter := NewEngine(t, funnel, engine.PolicyFor(func(string) policy.Policy {
						if left--; left < 0 {
							panic("plans are not loaded yet")
						}
						return funnel
					}))
					all := []Limit{{Limiter: limiter}}
					if several {
						all = append(all, Limit{Name: "roomy", Limiter: NewEngine[string](t, policy.Must(policy.Funnel(100, 100, time.Second)))})
					}
					door := newDoor(t, open, c.o, all...)
					if c.waits {
						require.True(t, limiter.Choke("key"))
					}
					left = panics
					began := time.Now()
					func() {
						defer func() { passed = recover() == nil }()
						door.ask("key", 0)
					}()
					left = math.MaxInt
					if passed {
						assert.Zero(t, limiter.Peek("key", 0).Remaining)
						return
					}
					panics++
					if c.waits {
						time.Sleep(time.Second/2 - time.Since(began))
					}
					assert.EqualValues(t, 1, limiter.Peek("key", 0).Remaining, "%s, several: %v, call %d", name, several, panics)
				})
			}
			assert.Greater(t, panics, 1, "%s, several: %v", name, several)
		}
	}
	first, second := Hourly[string](t, 5), Hourly[string](t, 5)
	door := newDoor(t, open, Options{}, Limit{Name: "first", Limiter: first},
		Limit{Name: "second", Limiter: second, PolicyFor: func(*Request) policy.Policy { panic("plans are not loaded") }})
	assert.Panics(t, func() { door.ask("key", 0) })
	assert.Equal(t, [2]int64{5, 5}, [2]int64{left(first, "key"), left(second, "key")})
}

func shadowReports(t *testing.T, open Open) {
	for _, way := range ways {
		synctest.Test(t, func(t *testing.T) {
			door := newDoor(t, open, Options{Shadow: true, Cost: cost, Charge: charge}, inWay(t, way, Limit{Limiter: Hourly[string](t, 1)})...)
			for i, c := range []struct {
				cost   int64
				reason limits.Reason
			}{{1, limits.Admitted}, {1, limits.OverLimit}, {2, limits.NeverAdmitted}} {
				verdict := door.serve(t.Context(), Request{Key: "key", Cost: c.cost, Charge: 1})
				assert.Equal(t, c.reason, verdict.Reason, "%s, request %d", way, i)
				assert.True(t, verdict.Shadow)
				assert.False(t, verdict.Refused())
			}
			stats := door.stats()
			assert.True(t, stats.Shadow)
			assert.Nil(t, stats.Shadowed, "none is tried beside others")
		})
	}
	// If all limits have Shadow, so have the options.
	synctest.Test(t, func(t *testing.T) {
		door := newDoor(t, open, Options{}, Limit{Limiter: Hourly[string](t, 1), Shadow: true})
		for _, want := range []limits.Reason{limits.Admitted, limits.OverLimit} {
			assert.Equal(t, want, door.ask("key", 0).Reason)
		}
		assert.True(t, door.stats().Shadow)
	})
	// Delays are reported, but not made.
	funnel, queue := policy.Must(policy.Funnel(1, 1, time.Second)), policy.Must(policy.Queue(5, 1, time.Second))
	for _, limit := range []policy.Policy{funnel, queue} {
		for _, becomes := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				limiter := NewEngine[string](t, limit)
				door := newDoor(t, open, Options{Shadow: true, WaitUpTo: 2500 * time.Millisecond}, Limit{Limiter: limiter})
				// The limit becomes a queue after the first request.
				if becomes {
					limiter = NewEngine[string](t, policy.Must(policy.Queue(0, 1, time.Second)))
					door = newDoor(t, open, Options{Shadow: true, WaitUpTo: 2500 * time.Millisecond}, Limit{Limiter: limiter})
					door.ask("key", 0)
					require.NoError(t, limiter.SetPolicy(queue))
					time.Sleep(time.Second)
				}
				began := time.Now()
				for i, waited := range []time.Duration{0, time.Second, 2 * time.Second, 0, 0} {
					verdict := door.ask("key", 0)
					assert.Equal(t, waited, verdict.Waited, "%v, request %d", limit, i)
					assert.Equal(t, i > 2, verdict.Reason == limits.OverLimit, "%v, request %d", limit, i)
				}
				assert.Zero(t, time.Since(began), "a request was delayed")
				stats := door.stats()
				assert.Equal(t, uint64(2), stats.Delayed)
				assert.Equal(t, 3*time.Second, stats.DelayTime)
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		door := newDoor(t, open, Options{Shadow: true, WaitUpTo: time.Hour}, inWay(t, "two engines", Limit{Limiter: NewEngine[string](t, funnel)})...)
		assert.Equal(t, []timed{{limits.Admitted, 0}, {limits.OverLimit, 0}}, door.atOnce(2, Request{Key: "key"}))
	})
}

func limitOnTrial(t *testing.T, open Open) {
	for _, mixed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			live, tried := Hourly[string](t, 4), Hourly[string](t, 2)
			var enforced limits.Limiter[string] = live
			if mixed {
				enforced = Remote[string](live)
			}
			door := newDoor(t, open, Options{},
				Limit{Name: "tried", Limiter: tried, Shadow: true},
				Limit{Name: "live", Limiter: enforced},
				Limit{Name: "keyless", Limiter: Hourly[string](t, 9), Shadow: true, Key: func(request *Request) string {
					if request.Key == "bob" {
						return ""
					}
					return request.Key
				}})
			for i, c := range []struct {
				key      string
				reason   limits.Reason
				shadowed []string
			}{
				{"alice", limits.Admitted, nil},
				{"alice", limits.Admitted, nil},
				{"alice", limits.Admitted, []string{"tried"}},
				{"alice", limits.Admitted, []string{"tried"}},
				{"alice", limits.OverLimit, nil},
				{"bob", limits.Admitted, []string{"keyless"}},
			} {
				verdict := door.ask(c.key, 0)
				assert.Equal(t, c.reason, verdict.Reason, "mixed: %v, request %d", mixed, i)
				assert.Equal(t, c.shadowed, verdict.Shadowed, "mixed: %v, request %d", mixed, i)
				assert.False(t, verdict.Shadow)
				assert.Equal(t, "live", verdict.Limit)
			}
			stats := door.stats()
			assert.Equal(t, map[string]uint64{"tried": 2, "keyless": 1}, stats.Shadowed)
			assert.False(t, stats.Shadow)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		live, tried := Hourly[string](t, 100), Hourly[string](t, 100)
		door := newDoor(t, open, Options{Cost: func(*Request) int64 { return 3 }},
			Limit{Name: "live", Limiter: live}, Limit{Name: "tried", Limiter: tried, Shadow: true, Charge: func(*Request) int64 { return 7 }})
		assert.Equal(t, limits.Admitted, door.ask("key", 0).Reason)
		assert.Equal(t, [2]int64{97, 93}, [2]int64{left(live, "key"), left(tried, "key")}, "a limit with Shadow is charged")
	})
}

// breaks is a limiter that panics or fails in a method.
type breaks struct {
	limits.Limiter[string]
	hold, settle func() error
}

func (b breaks) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	if b.hold != nil {
		return limits.Grant{}, b.hold()
	}
	grant, err := b.Limiter.Hold(ctx, call)
	grant.State.Settler = b
	return grant, err
}

func (b breaks) Settle(context.Context, limits.GrantState, int64) error { return b.settle() }

// The other limits decide and charge as without it. Failures are counted, and logged once.
func failingTrial(t *testing.T, open Open) {
	boom := func() error { panic("boom") }
	fails := func() error { return errors.New("boom") }
	for name, breakIt := range map[string]func(limit *Limit){
		"Key":               func(limit *Limit) { limit.Key = func(*Request) string { panic("boom") } },
		"Cost":              func(limit *Limit) { limit.Cost = func(*Request) int64 { panic("boom") } },
		"Cost below 0":      func(limit *Limit) { limit.Cost = func(*Request) int64 { return -1 } },
		"Charge":            func(limit *Limit) { limit.Charge = func(*Request) int64 { panic("boom") } },
		"PolicyFor":         func(limit *Limit) { limit.PolicyFor = func(*Request) policy.Policy { panic("boom") } },
		"the limiter":       func(limit *Limit) { limit.Limiter = breaks{limit.Limiter, boom, nil} },
		"an error":          func(limit *Limit) { limit.Limiter = breaks{limit.Limiter, fails, nil} },
		"settling":          func(limit *Limit) { limit.Limiter = breaks{limit.Limiter, nil, boom} },
		"an error settling": func(limit *Limit) { limit.Limiter = breaks{limit.Limiter, nil, fails} },
	} {
		for _, mixed := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				live := Hourly[string](t, 40)
				tried := Limit{Name: "tried", Limiter: Hourly[string](t, 1000), Shadow: true}
				breakIt(&tried)
				var enforced limits.Limiter[string] = live
				if mixed {
					enforced = Remote[string](live)
				}
				door := newDoor(t, open, Options{
					Cost: func(*Request) int64 { return 20 }, Charge: func(*Request) int64 { return 10 },
					Logger: slog.New(slog.NewTextHandler(&log, nil)),
				}, tried, Limit{Name: "live", Limiter: enforced})
				for i := range 5 {
					verdict := door.ask("key", 0)
					assert.Equal(t, i > 2, verdict.Reason == limits.OverLimit, "%s, request %d", name, i)
					assert.Equal(t, "live", verdict.Limit, name)
				}
				assert.Equal(t, int64(10), left(live, "key"), "%s: 3 requests are charged 10 each", name)
				stats := door.stats()
				assert.Zero(t, stats.Unsettled, name)
				assert.Equal(t, map[string]uint64{"tried": 0}, stats.Shadowed, name)
				assert.Equal(t, map[string]uint64{"tried": 3}, stats.ShadowFailed, name)
				assert.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
				assert.Contains(t, log.String(), "limit=tried", name)
			})
		}
	}
}
