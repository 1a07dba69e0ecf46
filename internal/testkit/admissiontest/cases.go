package admissiontest

import (
	"context"
	"errors"
	"math"
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
)

var cases = []struct {
	name string
	run  func(t *testing.T, open Open)
}{
	{"each key has its limit", eachKeyHasItsLimit},
	{"a request without a key", withoutKey},
	{"a request takes its cost", takesItsCost},
	{"a request is charged by its use", chargedByUse},
	{"only requests that hold units are charged", chargedIfHeld},
	{"a charge goes to the window of its take", chargedWhereTaken},
	{"each limit has its own key, cost and charge", ownKeyCostAndCharge},
	{"several limits take all or nothing", allOrNothing},
	{"a limit in process spares a limit elsewhere", nearBeforeFar},
	{"racing requests are exact", exactWhenRacing},
	{"an ended context takes nothing", endedContext},
	{"a limiter that cannot decide", cannotDecide},
	{"an uncertain charge is counted", uncertainCharge},
	{"a key without a record", unrecorded},
	{"a blocked key", blocked},
	{"the program's errors are misconfigured", misconfigured},
	{"a limit of zero never admits", limitOfZero},
	{"a plan comes with the request", planOfRequest},
	{"a plan changes at any time", planChanges},
	{"a panic of a plan takes nothing", panicOfPlan},
	{"a request is told when to retry", retryIsExact},
	{"Spread tells turns", spreadTellsTurns},
	{"a request waits for its turn", waitsForItsTurn},
	{"a request waits for several limits", waitsForSeveral},
	{"a wait ends with the context", waitEndsWithContext},
	{"late arrivals do not overtake", arrivalOrder},
	{"a closed engine answers at once", closedEngine},
	{"a queue delays", queueDelays},
	{"a limit becomes a queue", becomesQueue},
	{"Shadow only reports", shadowReports},
	{"a limit with Shadow is tried beside others", limitOnTrial},
	{"a limit with Shadow that fails changes nothing", failingTrial},
	{"units in use end with the request", unitsInUse},
	{"units in use of every limiter", unitsInUseOfEveryLimiter},
	{"units in use tell a guess", unitsInUseTellGuess},
}

func cost(request *Request) int64   { return request.Cost }
func charge(request *Request) int64 { return request.Charge }

func eachKeyHasItsLimit(t *testing.T, open Open) {
	for _, way := range ways {
		synctest.Test(t, func(t *testing.T) {
			door := newDoor(t, open, Options{}, inWay(t, way, Limit{Limiter: NewEngine[string](t, policy.Must(policy.FixedWindow(2, time.Second)))})...)
			for i, want := range []limits.Reason{limits.Admitted, limits.Admitted, limits.OverLimit, limits.OverLimit} {
				verdict := door.ask("alice", 7)
				assert.Equal(t, want, verdict.Reason, "%s, request %d", way, i)
				assert.Equal(t, []any{"limit", int64(1)}, []any{verdict.Limit, verdict.Cost}, "%s, request %d", way, i)
				assert.Equal(t, want == limits.OverLimit, verdict.RetryAfter > 0, "%s, request %d", way, i)
				assert.True(t, verdict.Provenance.Exact(), "%s, request %d", way, i)
			}
			assert.Equal(t, limits.Admitted, door.ask("bob", 1).Reason, way)
			time.Sleep(time.Second)
			assert.Equal(t, limits.Admitted, door.ask("alice", 1).Reason, way)
			assert.Zero(t, door.stats().Delayed)
		})
	}
}

func withoutKey(t *testing.T, open Open) {
	plan := policy.Must(policy.FixedWindow(2, time.Hour))
	for when, want := range map[limits.WhenNoKey][]limits.Reason{
		limits.Refuse: {limits.NoKey, limits.NoKey, limits.NoKey},
		limits.Skip:   {limits.Exempt, limits.Exempt, limits.Exempt},
		limits.Share:  {limits.Admitted, limits.Admitted, limits.OverLimit},
	} {
		for _, way := range ways {
			synctest.Test(t, func(t *testing.T) {
				limiter := NewEngine(t, plan, engine.PolicyFor(func(key string) policy.Policy {
					assert.False(t, key == "" && when != limits.Share, "a plan was chosen for no key")
					return plan
				}))
				all := inWay(t, way, Limit{Limiter: limiter, WhenNoKey: when})
				door := newDoor(t, open, Options{}, all...)
				for i, reason := range want {
					if reason == limits.Exempt && way != "alone" {
						// The other limit admits the request.
						reason = limits.Admitted
					}
					verdict := door.ask("", 1)
					assert.Equal(t, reason, verdict.Reason, "%v, %s, request %d", when, way, i)
					assert.Equal(t, reason == limits.NoKey, when == limits.Refuse && verdict.Limit == "limit")
				}
				if way != "alone" && when == limits.Refuse {
					other := all[0].Limiter.(*engine.Engine[string])
					assert.Equal(t, int64(1_000_000), left(other, "all"), "%s: a refused request takes nothing", way)
				}
				assert.Equal(t, limits.Admitted, door.ask("key", 1).Reason, "%v: a key is apart from the shared one", when)
				door.stats()
			})
		}
	}
}

func takesItsCost(t *testing.T, open Open) {
	for _, way := range ways {
		synctest.Test(t, func(t *testing.T) {
			limiter := Hourly[string](t, 10)
			door := newDoor(t, open, Options{Cost: cost}, inWay(t, way, Limit{Limiter: limiter})...)
			for _, c := range []struct {
				cost   int64
				reason limits.Reason
				left   int64
			}{
				{7, limits.Admitted, 3},
				{4, limits.OverLimit, 3},
				{11, limits.NeverAdmitted, 3},
				{-1, limits.Misconfigured, 3},
				{math.MinInt64, limits.Misconfigured, 3},
				{0, limits.Admitted, 3},
				{3, limits.Admitted, 0},
				{0, limits.Admitted, 0},
			} {
				verdict := door.ask("key", c.cost)
				assert.Equal(t, c.reason, verdict.Reason, "%s: %d units", way, c.cost)
				assert.Equal(t, c.cost, verdict.Cost, "%s: %d units", way, c.cost)
				assert.Equal(t, c.left, left(limiter, "key"), "%s: after %d units", way, c.cost)
				assert.Equal(t, c.reason == limits.NeverAdmitted, verdict.RetryAfter == policy.Never, "%s: %d units", way, c.cost)
			}
			door.stats()
		})
	}
}

func chargedByUse(t *testing.T, open Open) {
	for used, want := range map[int64]int64{math.MinInt64: 10, -1: 10, 0: 10, 5: 5, math.MaxInt64: 0} {
		for _, n := range []int64{0, 3} {
			for _, way := range ways {
				if way != "alone" && used == math.MaxInt64 {
					// That charge would lock the other limit.
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					limiter := NewEngine[string](t, policy.Must(policy.Funnel(15, 1, time.Hour)))
					limiter.Take("key", 5)
					door := newDoor(t, open, Options{Cost: cost, Charge: charge}, inWay(t, way, Limit{Limiter: limiter})...)
					verdict := door.serve(t.Context(), Request{Key: "key", Cost: n, Charge: used, Serve: func() {
						assert.Equal(t, 10-n, left(limiter, "key"), "the cost counts while the request is under way")
					}})
					assert.Equal(t, limits.Admitted, verdict.Reason)
					assert.Equal(t, want, left(limiter, "key"), "%s: cost %d, charge %d", way, n, used)
					assert.Zero(t, door.stats().Unsettled)
				})
			}
		}
	}
}

// The common Charge and a limit's own run once for each request of which that limit, or any, holds
// units. A cost of 0 holds 0 units.
func chargedIfHeld(t *testing.T, open Open) {
	for _, way := range ways {
		for _, shadow := range []string{"none", "all", "one"} {
			synctest.Test(t, func(t *testing.T) {
				var common, own int
				count := func(n *int) func(*Request) int64 {
					return func(request *Request) int64 { *n++; return request.Cost }
				}
				limiter := Hourly[string](t, 10)
				door := newDoor(t, open, Options{Cost: cost, Charge: count(&common), Shadow: shadow == "all"},
					inWay(t, way, Limit{Limiter: limiter, WhenNoKey: limits.Skip, Charge: count(&own), Shadow: shadow == "one"})...)
				both, above := 0, 0
				if way != "alone" {
					both = 1
				}
				if shadow == "one" {
					// The other limit admits the request.
					above = both
				}
				for i, c := range []struct {
					key         string
					cost        int64
					common, own int
				}{
					{"key", 7, 1, 1}, {"key", 0, 1, 1}, {"", 7, both, 0}, {"key", 4, above, 0}, {"key", -1, 0, 0}, {"key", 3, 1, 1},
				} {
					common, own = 0, 0
					door.ask(c.key, c.cost)
					assert.Equal(t, [2]int{c.common, c.own}, [2]int{common, own}, "%s, shadow %s, request %d", way, shadow, i)
				}
				assert.Zero(t, left(limiter, "key"))
				door.stats()
			})
		}
	}
}

// A limiter in process is asked for the units in each way: all or some kept, alone or beside another,
// with a limit chosen for the key, and after a wait.
func chargedWhereTaken(t *testing.T, open Open) {
	for name, limit := range map[string]policy.Policy{
		"funnel":         policy.Must(policy.Funnel(10, 10, 6*time.Second)),
		"fixed window":   policy.Must(policy.FixedWindow(10, 6*time.Second)),
		"sliding window": policy.Must(policy.SlidingWindow(10, 6*time.Second)),
		"at most":        policy.Must(policy.AtMost(10, 6*time.Second)),
	} {
		for _, kept := range []int64{0, 3} {
			for _, way := range append([]string{"chosen"}, ways...) {
				for _, waits := range []bool{false, true} {
					synctest.Test(t, func(t *testing.T) {
						limiter := NewEngine[string](t, limit)
						if way == "chosen" {
							limiter = NewEngine(t, limit, engine.PolicyFor(func(string) policy.Policy { return limit }))
						}
						all := []Limit{{Limiter: limiter}}
						if way != "chosen" {
							all = inWay(t, way, all[0])
						}
						options := Options{Cost: cost, Charge: charge}
						if waits {
							options.WaitUpTo = time.Hour
							require.True(t, limiter.Take("key", 10).Allowed)
						}
						door := newDoor(t, open, options, all...)
						verdict := door.serve(t.Context(), Request{Key: "key", Cost: 8, Charge: kept, Serve: func() {
							assert.Less(t, left(limiter, "key"), int64(3), "the cost counts while the request is under way")
							time.Sleep(10 * 6 * time.Second)
							require.True(t, limiter.Take("key", 9).Allowed, "by others, in another window")
						}})
						assert.Equal(t, limits.Admitted, verdict.Reason)
						assert.Equal(t, waits, verdict.Waited > 0)
						assert.Equal(t, int64(1), left(limiter, "key"), "%s, %d kept, %s, waits: %v", name, kept, way, waits)
					})
				}
			}
		}
	}
}

// A gateway of a language model limits requests, estimated tokens, and bytes, which cost nothing at
// first.
func ownKeyCostAndCharge(t *testing.T, open Open) {
	type use struct{ estimate, tokens, bytes int64 }
	for _, mixed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			requests, tokens, bytes := Hourly[string](t, 5), Hourly[string](t, 10_000), Hourly[string](t, 1000)
			var far limits.Limiter[string] = bytes
			if mixed {
				far = Remote[string](bytes)
			}
			var now use
			door := newDoor(t, open, Options{Cost: func(*Request) int64 { return 2 }, Charge: func(*Request) int64 { return 1 }},
				Limit{Name: "requests", Limiter: requests},
				Limit{
					Name: "tokens", Limiter: tokens, Key: func(*Request) string { return "tenant" },
					Cost: func(*Request) int64 { return now.estimate }, Charge: func(*Request) int64 { return now.tokens },
				},
				Limit{
					Name: "bytes", Limiter: far,
					Cost: func(*Request) int64 { return 0 }, Charge: func(*Request) int64 { return now.bytes },
				})
			for i, c := range []struct {
				use
				reason limits.Reason
				limit  string
				cost   int64
				left   [3]int64
			}{
				{use{5000, 3000, 100}, limits.Admitted, "tokens", 5000, [3]int64{4, 7000, 900}},
				{use{5000, 6500, 200}, limits.Admitted, "tokens", 5000, [3]int64{3, 500, 700}},
				{use{501, 1, 1}, limits.OverLimit, "tokens", 501, [3]int64{3, 500, 700}},
				{use{10_001, 1, 1}, limits.NeverAdmitted, "tokens", 10_001, [3]int64{3, 500, 700}},
				// The request owes 200 bytes.
				{use{100, 100, 900}, limits.Admitted, "tokens", 100, [3]int64{2, 400, 0}},
				{use{-1, 1, 1}, limits.Misconfigured, "", -1, [3]int64{2, 400, 0}},
				{use{1, 1, 0}, limits.Admitted, "requests", 2, [3]int64{1, 399, 0}},
				{use{1, 1, 0}, limits.OverLimit, "requests", 2, [3]int64{1, 399, 0}},
			} {
				now = c.use
				verdict := door.ask("key", 0)
				got := [3]int64{left(requests, "key"), left(tokens, "tenant"), left(bytes, "key")}
				assert.Equal(t, c.reason, verdict.Reason, "mixed: %v, request %d", mixed, i)
				assert.Equal(t, c.cost, verdict.Cost, "mixed: %v, request %d", mixed, i)
				// The least share of several limits has a test of its own.
				if c.reason != limits.Admitted {
					assert.Equal(t, c.limit, verdict.Limit, "mixed: %v, request %d", mixed, i)
				}
				assert.Equal(t, c.left, got, "mixed: %v, request %d", mixed, i)
			}
			assert.Zero(t, door.stats().Unsettled)

			// One limit may have a cost only, and the other a charge.
			door = newDoor(t, open, Options{},
				Limit{Name: "requests", Limiter: Remote[string](requests), Key: func(*Request) string { return "b" }, Cost: func(*Request) int64 { return 3 }},
				Limit{Name: "bytes", Limiter: far, Key: func(*Request) string { return "b" }, Charge: func(*Request) int64 { return 0 }})
			assert.Equal(t, limits.Admitted, door.ask("", 0).Reason)
			assert.Equal(t, [2]int64{2, 1000}, [2]int64{left(requests, "b"), left(bytes, "b")}, "mixed: %v", mixed)
		})
	}
}

func allOrNothing(t *testing.T, open Open) {
	for _, mixed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fast := NewEngine[string](t, policy.Must(policy.Funnel(10, 1, time.Second)))
			slow := NewEngine[string](t, policy.Must(policy.Funnel(3, 1, time.Minute)))
			var second limits.Limiter[string] = slow
			if mixed {
				second = Remote[string](slow)
			}
			door := newDoor(t, open, Options{},
				Limit{Name: "fast", Limiter: fast, Key: func(*Request) string { return "all" }}, Limit{Name: "slow", Limiter: second})
			for i, c := range []struct {
				key    string
				reason limits.Reason
				limit  string
				retry  time.Duration
			}{
				{"a", limits.Admitted, "slow", 0},
				{"a", limits.Admitted, "slow", 0},
				{"a", limits.Admitted, "slow", 0},
				{"a", limits.OverLimit, "slow", time.Minute},
				{"a", limits.OverLimit, "slow", time.Minute},
				// 6 of 10 units are left of the slow limit, and 2 of 3 of the fast limit.
				{"b", limits.Admitted, "fast", 0},
			} {
				verdict := door.ask(c.key, 0)
				assert.Equal(t, c.reason, verdict.Reason, "mixed: %v, request %d", mixed, i)
				assert.Equal(t, c.limit, verdict.Limit, "mixed: %v, request %d", mixed, i)
				assert.Equal(t, c.retry, verdict.RetryAfter.Round(time.Second), "mixed: %v, request %d", mixed, i)
			}
			assert.Equal(t, int64(6), left(fast, "all"), "refused requests took nothing")
			fast.Take("all", 6)
			verdict := door.ask("c", 0)
			assert.Equal(t, []any{limits.OverLimit, "fast", time.Second}, []any{verdict.Reason, verdict.Limit, verdict.RetryAfter.Round(time.Second)})
			verdict = door.ask("a", 0)
			want := []any{"slow", time.Minute}
			// The slow limit was not asked.
			if mixed {
				want = []any{"fast", time.Second}
			}
			assert.Equal(t, want, []any{verdict.Limit, verdict.RetryAfter.Round(time.Second)}, "both refuse, the later tells")
			door.stats()

			// Two limits of one limiter and one key take twice.
			twice := Hourly[string](t, 10)
			second = twice
			if mixed {
				second = Remote[string](twice)
			}
			door = newDoor(t, open, Options{Cost: cost}, Limit{Name: "a", Limiter: second}, Limit{Name: "b", Limiter: second})
			assert.Equal(t, limits.Admitted, door.ask("key", 2).Reason)
			assert.Equal(t, int64(6), left(twice, "key"))
			if !mixed {
				assert.Equal(t, limits.NeverAdmitted, door.ask("key", 6).Reason)
			}
		})
	}
}

// A refusal in process does not ask the other limiter. Each refusal names its limit.
func nearBeforeFar(t *testing.T, open Open) {
	synctest.Test(t, func(t *testing.T) {
		far := NewFake[string](t, 10, policy.Decision{Limit: 10, RetryAfter: 90 * time.Second}, limits.SourceRedis, true)
		near := Hourly[string](t, 2)
		door := newDoor(t, open, Options{}, Limit{Name: "far", Limiter: far}, Limit{Name: "near", Limiter: near})
		verdict := door.ask("key", 0)
		assert.Equal(t, []any{limits.OverLimit, "far", 90 * time.Second}, []any{verdict.Reason, verdict.Limit, verdict.RetryAfter.Round(time.Second)})
		assert.Equal(t, int64(2), left(near, "key"), "it is given back")
		near.Take("key", 2)
		verdict = door.ask("key", 0)
		assert.Equal(t, []any{limits.OverLimit, "near", time.Hour}, []any{verdict.Reason, verdict.Limit, verdict.RetryAfter.Round(time.Second)})
	})
}

// Half of the requests return their unit. Those may have caused a refusal.
func exactWhenRacing(t *testing.T, open Open) {
	const most = 2000
	for _, way := range ways {
		limiter := Hourly[string](t, most)
		door := newDoor(t, open, Options{Charge: charge}, inWay(t, way, Limit{Limiter: limiter})...)
		var kept atomic.Int64
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for n := int64(0); ; n++ {
					verdict := door.serve(context.Background(), Request{Key: "key", Charge: n % 2})
					if verdict.Refused() {
						return
					}
					kept.Add(n % 2)
				}
			})
		}
		all.Wait()
		assert.LessOrEqual(t, kept.Load(), int64(most), way)
		assert.Equal(t, most-kept.Load(), left(limiter, "key"), "%s: all returned units are there", way)
		door.stats()
	}
}

func endedContext(t *testing.T, open Open) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, way := range ways {
		for _, shadow := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				limiter := Hourly[string](t, 5)
				door := newDoor(t, open, Options{Shadow: shadow, WaitUpTo: time.Second, Charge: charge}, inWay(t, way, Limit{Limiter: limiter})...)
				verdict := door.serve(ctx, Request{Key: "key", Charge: 3})
				assert.Equal(t, limits.Cancelled, verdict.Reason, way)
				assert.Equal(t, int64(5), left(limiter, "key"), way)
				door.stats()
			})
		}
	}
}

func cannotDecide(t *testing.T, open Open) {
	down := errors.New("connection refused")
	closed := func(retry time.Duration) *Fake[string] {
		fake := NewFake[string](t, 10, policy.Decision{Limit: 10, RetryAfter: retry}, limits.SourceClosed, false)
		fake.Answer.Provenance = limits.NewProvenance(limits.SourceClosed, false, down)
		return fake
	}
	fails := closed(0)
	fails.Answer, fails.Err = limits.Answer{}, down
	for name, c := range map[string]struct {
		far    *Fake[string]
		reason limits.Reason
	}{
		"closed by configuration":   {closed(time.Second), limits.Unavailable},
		"closed, and never admits":  {closed(policy.Never), limits.NeverAdmitted},
		"no answer":                 {fails, limits.Unavailable},
		"a refusal without a cause": {&Fake[string]{Limiter: fails.Limiter}, limits.OverLimit},
	} {
		for _, several := range []bool{false, true} {
			for _, options := range []Options{{}, {Charge: charge}} {
				near := Hourly[string](t, 10)
				all := []Limit{{Name: "far", Limiter: c.far}}
				if several {
					all = append(all, Limit{Name: "near", Limiter: near})
				}
				door := newDoor(t, open, options, all...)
				verdict := door.ask("key", 0)
				if c.far.Answer.Provenance != nil || c.far.Err != nil {
					assert.Equal(t, c.reason, verdict.Reason, "%s, several: %v", name, several)
					assert.ErrorIs(t, verdict.Provenance.Err(), down, "%s, several: %v", name, several)
				}
				assert.True(t, verdict.Refused(), "%s, several: %v", name, several)
				assert.False(t, verdict.Provenance.Exact(), "%s, several: %v", name, several)
				assert.Equal(t, int64(10), left(near, "key"), "%s: units in process are given back", name)
				door.stats()
			}
		}
	}
	// The limiter notices first that the context has ended.
	ctx, cancel := context.WithCancel(context.Background())
	ends := &Fake[string]{Limiter: fails.Limiter, Err: context.Canceled}
	door := newDoor(t, open, Options{}, Limit{Limiter: ends, Key: func(*Request) string { cancel(); return "key" }})
	assert.Equal(t, limits.Cancelled, door.serve(ctx, Request{}).Reason)
}

func uncertainCharge(t *testing.T, open Open) {
	far := NewFake[string](t, 10, policy.Decision{Allowed: true, Limit: 10}, limits.SourceRedis, true)
	far.Settled = errors.New("lost")
	for _, all := range [][]Limit{{{Limiter: far}}, {{Limiter: far}, {Name: "near", Limiter: Hourly[string](t, 10)}}} {
		door := newDoor(t, open, Options{Charge: charge}, all...)
		assert.Equal(t, limits.Admitted, door.ask("key", 0).Reason)
		assert.Equal(t, uint64(1), door.stats().Unsettled)
	}
}

// Decisions about an unrecorded key are guesses, under one limit or several of any kind.
func unrecorded(t *testing.T, open Open) {
	for _, when := range []engine.WhenFull{engine.RefuseNew, engine.AdmitNew} {
		for _, upTo := range []time.Duration{0, time.Millisecond} {
			for _, way := range ways {
				synctest.Test(t, func(t *testing.T) {
					full, err := engine.New[string](engine.Config{
						Policy: policy.Must(policy.FixedWindow(10, time.Hour)), MaxKeys: 1, WhenFull: when, Idle: 24 * time.Hour,
					})
					require.NoError(t, err)
					defer func() { assert.NoError(t, full.Close()) }()
					full.Choke("known")
					synctest.Wait()
					door := newDoor(t, open, Options{WaitUpTo: upTo}, inWay(t, way, Limit{Limiter: full})...)
					verdict := door.ask("new", 0)
					assert.Equal(t, when == engine.RefuseNew, verdict.Reason == limits.OverLimit, way)
					if verdict.Limit == "limit" {
						assert.False(t, verdict.Provenance.Exact(), way)
						assert.Equal(t, limits.SourceUnrecorded, verdict.Provenance.Source(), way)
					}
					verdict = door.ask("known", 0)
					assert.Equal(t, limits.Admitted, verdict.Reason, way)
					assert.True(t, verdict.Provenance.Exact(), way)
					if when == engine.AdmitNew {
						return
					}
					// Engines are looked at before any is asked to record, so that they tell the truth.
					// Beside a limiter that cannot be looked at it is a guess.
					for _, hidden := range []bool{false, true} {
						narrow := Hourly[string](t, 1)
						narrow.Take("new", 1)
						var other limits.Limiter[string] = narrow
						if hidden {
							other = struct{ limits.Limiter[string] }{narrow}
						}
						door := newDoor(t, open, Options{WaitUpTo: upTo}, Limit{Name: "full", Limiter: full}, Limit{Name: "narrow", Limiter: other})
						verdict := door.ask("new", 0)
						assert.Equal(t, limits.OverLimit, verdict.Reason)
						assert.Equal(t, !hidden, verdict.Provenance.Exact(), "hidden: %v", hidden)
					}
				})
			}
		}
	}
}

func blocked(t *testing.T, open Open) {
	for _, way := range ways {
		synctest.Test(t, func(t *testing.T) {
			limiter := Hourly[string](t, 10)
			door := newDoor(t, open, Options{}, inWay(t, way, Limit{Limiter: limiter})...)
			limiter.Block("key", 5*time.Second)
			for range 2 {
				verdict := door.ask("key", 0)
				assert.Equal(t, []any{limits.OverLimit, "limit", 5 * time.Second}, []any{verdict.Reason, verdict.Limit, verdict.RetryAfter.Round(time.Second)}, way)
			}
			assert.Equal(t, limits.Admitted, door.ask("other", 0).Reason, way)
			time.Sleep(5 * time.Second)
			assert.Equal(t, limits.Admitted, door.ask("key", 0).Reason, way)
		})
	}
}
