package admission

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/core/whole"
	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// herd is n clients of a key that come at once and retry twice, when they are told.
type herd struct {
	limit string
	n     int
	cost  int64
	// unit is the unit of the times told.
	unit   time.Duration
	spread time.Duration
	// late is the most that a client is late, as a part of the turns' distance.
	late float64
	// others is the rate of clients that never retry, as a part of the limit's.
	others  float64
	servers int
}

type outcome struct {
	// failed counts clients, refused counts retries that were told, and others counts units of the other
	// clients.
	failed, refused, others int
	// last is the time until the last success.
	last time.Duration
	pace time.Duration
}

// shared is the limiter of one of several servers.
type shared struct {
	*engine.Engine[string]
	servers int
}

func (s shared) Servers(bool) int { return s.servers }

// most returns the most clients that the law lets succeed, up to 40.
func (h herd) most(spread time.Duration) int {
	p, cost := policy.Must(policy.Parse(h.limit)), max(1, h.cost)
	return int(min(p.Limit()/cost+int64(spread/NewTurns(1, h.unit).pace(p, claimed(p), cost).Step), 60))
}

func control(t testing.TB, limiter limits.Limiter[string], turns *Turns) (*Controller[int64, int64], *Limit[int64, string, int64]) {
	t.Helper()
	l := &Limit[int64, string, int64]{Limiter: limiter, Key: func(int64) string { return "key" }}
	require.NoError(t, l.Check(0, "limit", "", func(string, any, string) error { return errors.New("at fault") }))
	return New(Config[int64, int64]{
		Cost: func(n int64) int64 { return n }, Turns: turns, Log: NewLog(nil), Counters: &Counters{},
	}, []Any[int64, int64]{l}, nil), l
}

// ask decides a request of n units. Under a queue that takes until its turn.
func ask(c *Controller[int64, int64], n int64) (v Result) {
	if c.Begin(context.Background(), n, &v) {
		v, _ = c.Single().Take(context.Background(), n, c, v)
	}
	return v
}

// run runs the herd in a bubble. Each decision is compared with an engine's without turns.
func (h herd) run(t testing.TB) (out outcome) {
	t.Helper()
	p := policy.Must(policy.Parse(h.limit))
	made := func() *engine.Engine[string] {
		e := must.Get(engine.New[string](engine.Config{Policy: p}))
		t.Cleanup(func() { assert.NoError(t, e.Close()) })
		return e
	}
	e, plain := made(), made()
	random := rand.New(rand.NewPCG(1, 2))
	var servers []*Controller[int64, int64]
	for i := range max(1, h.servers) {
		turns := NewTurns(h.spread, h.unit)
		if turns != nil {
			turns.phase = float64(i) / float64(max(1, h.servers))
		}
		c, _ := control(t, shared{e, h.servers}, turns)
		servers = append(servers, c)
	}
	h.cost = max(1, h.cost)
	out.pace = NewTurns(1, h.unit).pace(p, claimed(p), h.cost).Step
	q := quotaOf(p)
	type event struct {
		at time.Time
		// tries is -1 for another client.
		tries int
	}
	// The first call opens the window or empties the bucket at an odd instant.
	time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second))))
	began := time.Now()
	events := slices.Repeat([]event{{began, 0}}, h.n)
	if h.others > 0 {
		apart := float64(q.Window) / float64(q.Most) / h.others
		for at := 0.0; at < float64(time.Minute); at += random.ExpFloat64() * apart {
			events = append(events, event{began.Add(time.Duration(at)), -1})
		}
	}
	ended := func(ev event, v *Result) {
		switch after := v.RetryAfter; {
		case v.Reason == limits.Admitted && ev.tries < 0:
			out.others++
		case v.Reason == limits.Admitted:
			out.last = max(out.last, ev.at.Sub(began))
		case ev.tries == 2:
			out.failed++
			fallthrough
		case ev.tries >= 0:
			out.refused++
			if ev.tries == 2 {
				return
			}
			// The wait includes the way to the server and back.
			wait := time.Duration(whole.Up(after, h.unit))*h.unit + whole.Own
			if h.late > 0 {
				wait += time.Duration(random.Float64() * h.late * float64(out.pace))
			}
			events = append(events, event{time.Now().Add(wait), ev.tries + 1})
		}
	}
	for len(events) > 0 {
		first := 0
		for i := range events {
			if events[i].at.Before(events[first].at) {
				first = i
			}
		}
		ev := events[first]
		events = slices.Delete(events, first, first+1)
		time.Sleep(time.Until(ev.at))
		c := servers[random.IntN(len(servers))]
		if p.Delays() {
			var decided atomic.Bool
			var v Result
			go func() { v = ask(c, h.cost); decided.Store(true) }()
			if synctest.Wait(); decided.Load() {
				ended(ev, &v)
			}
			// Otherwise the turn of the call will come.
			continue
		}
		v, want := ask(c, h.cost), plain.Take("key", h.cost)
		require.Equal(t, want.Allowed, v.Reason == limits.Admitted, "a turn admits and refuses nothing")
		if h.spread > 0 {
			require.GreaterOrEqual(t, v.RetryAfter, want.RetryAfter)
			require.LessOrEqual(t, v.RetryAfter, want.RetryAfter+h.spread)
		} else if !lasts(p) || want.RetryAfter < q.Window {
			require.Equal(t, want.RetryAfter, v.RetryAfter, "exact")
		} else {
			require.LessOrEqual(t, v.RetryAfter, q.Window, "no more than the period of a fresh window")
		}
		ended(ev, &v)
	}
	// The queue's calls leave meanwhile.
	time.Sleep(time.Hour)
	return out
}

var herdLimits = []string{"funnel 1, 1/s", "funnel 1, 2/3s", "funnel 2, 2/s", "funnel 20, 10/s", "window 10/s", "window 20/10s", "window 10/s aligned", "sliding 1/10s", "sliding 2/10s", "sliding 10/s", "sliding 20/10s", "at most 10/s", "queue 5, 2/s"}

// Promise: Under `Spread`, a herd within its law needs two retries at most.
func TestHerdSucceedsWithinTheLaw(t *testing.T) {
	const spread = 30 * time.Second
	held := 0
	for _, limit := range herdLimits {
		p := policy.Must(policy.Parse(limit))
		for i := range 8 {
			h := herd{limit: limit, cost: 1 + int64(i%2*2), spread: spread, unit: []time.Duration{time.Second, time.Millisecond}[i/2%2], late: float64(i/4) / []float64{8, 32}[i/2%2]}
			if h.cost > p.Limit() {
				continue
			}
			h.n = h.most(h.spread)
			synctest.Test(t, func(t *testing.T) {
				out := h.run(t)
				held++
				assert.Zero(t, out.failed, "%+v: %+v", h, out)
				// Calls that are told the same second are late by different times.
				assert.LessOrEqual(t, out.refused, h.n+h.n/8, "%+v: more than one refusal each", h)
			})
		}
	}
	assert.Greater(t, held, 80, "too few herds to say anything")
}

// Clients that were not told take turns of others: no more clients fail than they took units.
func TestHerdBesideOtherTraffic(t *testing.T) {
	for _, limit := range herdLimits {
		for _, unit := range []time.Duration{time.Second, time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				h := herd{limit: limit, unit: unit, late: 1.0 / 8, others: 0.25}
				h.n = h.most(30 * time.Second)
				without := h.run(t)
				h.spread = 30 * time.Second
				with := h.run(t)
				t.Logf("%-20s %5v failed %d without, %d with; the others took %d and %d", limit, unit, without.failed, with.failed, without.others, with.others)
				assert.LessOrEqual(t, with.failed, min(with.others, without.failed), limit)
			})
		}
	}
}

// Each server knows only its own turns, and tells them as many times further apart.
func TestHerdOverAFleet(t *testing.T) {
	for _, servers := range []int{1, 2, 8} {
		for _, limit := range []string{"funnel 2, 2/s", "window 20/10s", "sliding 10/s"} {
			for _, n := range []int{6, 12, 24, 50} {
				synctest.Test(t, func(t *testing.T) {
					out := herd{limit: limit, n: n, unit: time.Second, spread: 30 * time.Second, late: 1.0 / 8, servers: servers}.run(t)
					t.Logf("%d servers, %-14s n = %2d: %d failed, %d refusals, %v", servers, limit, n, out.failed, out.refused, out.last)
					assert.LessOrEqual(t, out.failed, n/20)
				})
			}
		}
	}
}

// The table of docs/httplimit.md.
func TestDocumentedHerdTableIsMeasured(t *testing.T) {
	page := must.Get(os.ReadFile("../../../docs/httplimit.md"))
	for _, limit := range []string{"funnel 2, 2/s", "window 10/s", "sliding 10/s"} {
		row, served := "|`"+limit+"`|", ""
		for _, n := range []int{12, 24, 100} {
			for _, spread := range []time.Duration{time.Minute, 0} {
				synctest.Test(t, func(t *testing.T) {
					out := herd{limit: limit, n: n, unit: time.Second, spread: spread}.run(t)
					row += fmt.Sprintf("%d; %.1f|", out.failed, float64(out.refused)/float64(n-out.failed))
					if spread > 0 {
						served += fmt.Sprintf("; %.1f", float64(out.last)/float64(soonest(limit, n)))
					}
				})
			}
		}
		row += served[2:] + "|"
		t.Log(row)
		assert.Contains(t, string(page), row+"\n")
	}
}

// soonest returns the time in which a limit admits n calls that lose none.
func soonest(limit string, n int) time.Duration {
	p, word, d := policy.Must(policy.Parse(limit)), uint64(0), policy.Decision{}
	for range n {
		word, d = p.Take(word, 1, 1, time.Hour)
	}
	return d.Wait
}

func TestTurnsOfAKey(t *testing.T) {
	const s = int64(time.Second)
	turns := NewTurns(10*time.Second, time.Second)
	assert.Nil(t, NewTurns(0, time.Second))
	const key = 5<<turnBits | 3
	tell := func(key uint64, earliest, phase, step int64) int64 {
		return turns.tell(key, 0, earliest, phase, pace{Spacing: shape.Spacing{Step: time.Duration(step)}})
	}
	near := func(want, got int64) {
		t.Helper()
		assert.InDelta(t, want, got, 1<<(turnUnit+2))
	}
	near(1*s, tell(key, 1*s, 0, s))
	near(2*s, tell(key, 1*s, 0, s))
	// A turn of 3 units is 3 s long.
	near(5*s, tell(key, 1*s, 0, 3*s))
	// Another key has turns of its own.
	near(1*s, tell(key+1, 1*s, 0, s))
	// Unused turns are gone.
	near(9*s, tell(key, 9*s, 0, s))
	near(18*s, tell(key, 9*s, 0, 9*s))
	assert.Equal(t, 19*s, tell(key, 9*s, 0, 9*s), "the horizon")
	// The horizon took no turn.
	near(19*s, tell(key, 9*s, 0, s))
	// A turn too far for any call is of another time.
	near(2*s, tell(key, 2*s, 0, s))
	assert.Equal(t, int64(1)<<60, tell(key, 1<<60, 0, s), "too late for a turn")

	// The turn lies at a phase, but after the last turn.
	near(4*s, tell(key, 3*s, s, s))
	near(9*s, tell(key, 4*s, 5*s, s))
	assert.Equal(t, 14*s, tell(key, 4*s, 99*s, s), "the horizon")

	// In a set of slots a further key replaces the earliest turn.
	in := func(tag uint64) uint64 { return tag<<turnBits | 7 }
	for tag := range uint64(slotsOfSet) {
		near(int64(tag+1)*s, tell(in(tag+1), int64(tag+1)*s, 0, s))
	}
	near(1*s, tell(in(9), 1*s, 0, s))
	near(5*s, tell(in(slotsOfSet), 1*s, 0, s))
	near(2*s, tell(in(9), 1*s, 0, s))
	near(1*s, tell(in(1), 1*s, 0, s))
}

// divided is a fleet's limiter whose shares divide the limit by more servers than run.
type divided struct{ *admissiontest.Fake[string] }

func (divided) Servers(guess bool) int {
	if guess {
		return 4
	}
	return 1
}

// Turns of a share's refusals are as far apart as the limit is divided, whatever is known of Redis by then.
func TestTurnsOfGuessesGoByTheirDivisor(t *testing.T) {
	for source, servers := range map[limits.Source]time.Duration{limits.SourceRedis: 1, limits.SourceShare: 4} {
		for _, beside := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				fake := admissiontest.NewFake[string](t, 10, policy.Decision{Limit: 10, RetryAfter: time.Second}, source, source == limits.SourceRedis)
				limiters := []limits.Limiter[string]{divided{fake}}
				if beside {
					limiters = append(limiters, admissiontest.Hourly[string](t, 1_000))
				}
				var all []Any[int64, int64]
				for i, limiter := range limiters {
					l := &Limit[int64, string, int64]{Limiter: limiter, Key: func(int64) string { return "key" }}
					require.NoError(t, l.Check(i, fmt.Sprint(i), "", func(string, any, string) error { return errors.New("at fault") }))
					all = append(all, l)
				}
				turns := NewTurns(24*time.Hour, time.Millisecond)
				c := New(Config[int64, int64]{Turns: turns, Log: NewLog(nil), Counters: &Counters{}}, all, nil)
				turn := func() time.Duration {
					var v Result
					require.True(t, c.Begin(t.Context(), 1, &v))
					if c.Single() != nil {
						v, _ = c.Single().Take(t.Context(), 1, c, v)
					} else {
						c.Decide(t.Context(), 1, &v, make([]Quota, len(all)))
					}
					require.Equal(t, limits.OverLimit, v.Reason)
					return v.RetryAfter
				}
				first := turn()
				limit := fake.LimitFor("key")
				assert.InDelta(t, servers*turns.pace(limit, quotaOf(limit), 1).Step, turn()-first, 1<<(turnUnit+2), "%v, beside another limit: %v", source, beside)
			})
		}
	}
}

// Concurrent calls have turns of their own.
func TestTurnsAreDistinct(t *testing.T) {
	turns := NewTurns(time.Hour, time.Second)
	retries := make(chan int64, 1000)
	for range 10 {
		go func() {
			for range 100 {
				retries <- turns.tell(1, 0, 1, 0, pace{Spacing: shape.Spacing{Step: 1 << turnUnit}})
			}
		}()
	}
	seen := map[int64]bool{}
	for range 1000 {
		seen[<-retries>>turnUnit] = true
	}
	assert.Len(t, seen, 1000)
}

func TestTurnsKeepOtherRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := must.Get(engine.New[string](engine.Config{Policy: policy.Must(policy.Funnel(2, 2, time.Second))}))
		defer func() { assert.NoError(t, e.Close()) }()
		c, l := control(t, e, NewTurns(time.Minute, time.Millisecond))
		require.Equal(t, limits.Admitted, ask(c, 2).Reason)
		v := ask(c, 3)
		assert.Equal(t, limits.NeverAdmitted, v.Reason)
		assert.Equal(t, policy.Never, v.RetryAfter)
		assert.Equal(t, 500*time.Millisecond, ask(c, 1).RetryAfter)
		v = ask(c, 2)
		assert.InDelta(t, 500*time.Millisecond+c.config.Turns.pace(e.Limit(), Quota{}, 2).Step, v.RetryAfter, float64(time.Millisecond), "of 2 units behind a turn")
		assert.Equal(t, v.RetryAfter, v.Decision.RetryAfter)

		shadow := New(Config[int64, int64]{Turns: c.config.Turns, Shadow: true, Log: NewLog(nil), Counters: &Counters{}}, []Any[int64, int64]{l}, nil)
		assert.Equal(t, 500*time.Millisecond, ask(shadow, 1).RetryAfter)
		e.Block("key", time.Hour)
		assert.Equal(t, time.Hour, ask(c, 1).RetryAfter)
	})
}

// A turn suits all limits that refuse; a Tiered has none, as a single tier may refuse.
func TestTurnOfSeveralLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := func(text string) *engine.Engine[string] {
			e := must.Get(engine.New[string](engine.Config{Policy: policy.Must(policy.Parse(text))}))
			t.Cleanup(func() { assert.NoError(t, e.Close()) })
			return e
		}
		fast, slow := open("window 2/m"), open("funnel 2, 1/10s")
		var all []Any[int64, int64]
		for i, e := range []*engine.Engine[string]{fast, slow} {
			l := &Limit[int64, string, int64]{Limiter: e, Key: func(int64) string { return "key" }}
			require.NoError(t, l.Check(i, fmt.Sprint(i), "", func(string, any, string) error { return errors.New("at fault") }))
			all = append(all, l)
		}
		turns := NewTurns(time.Hour, time.Millisecond)
		c := New(Config[int64, int64]{Turns: turns, Log: NewLog(nil), Counters: &Counters{}}, all, nil)
		both := func() time.Duration {
			v, quotas := Result{}, make([]Quota, 2)
			require.True(t, c.Begin(t.Context(), 1, &v))
			c.Decide(t.Context(), 1, &v, quotas)
			return v.RetryAfter
		}
		slow.Take("key", 2)
		assert.Equal(t, 10*time.Second, both(), "of the only limit that refuses")
		fast.Take("key", 2)
		last := both()
		assert.Equal(t, time.Minute, last, "the later turn")
		for range 3 {
			told := both()
			assert.GreaterOrEqual(t, told-last, turns.pace(fast.Limit(), Quota{}, 1).Step-time.Microsecond)
			last = told
		}
		tiers := must.Get(engine.NewTiered[string](engine.Config{Policy: fast.Limit()}, slow.Limit()))
		defer tiers.Close()
		c, _ = control(t, tiers, turns)
		tiers.Take("key", 2)
		for range 2 {
			assert.Equal(t, tiers.Take("key", 1).RetryAfter, ask(c, 1).RetryAfter)
		}
	})
}
