package engine_test

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func inFlight(n int64, longest time.Duration) policy.Policy {
	return policy.Must(policy.InFlight(n, longest))
}

// handClock is a clock that a test sets.
type handClock struct{ now atomic.Int64 }

func newInFlight(t *testing.T, config engine.Config) (*engine.Engine[string], *handClock) {
	t.Helper()
	c := &handClock{}
	c.now.Store(int64(time.Hour))
	config.Clock = func() policy.Instant { return policy.Instant(c.now.Load()) }
	// A busy machine may take longer than 10 ms to make room.
	config.OpenTimeout = time.Minute
	e, err := engine.New[string](config)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	return e, c
}

func (c *handClock) pass(d time.Duration) { c.now.Add(int64(d)) }

// Promise: `Release` gives back units in use, and `Settle`, `Keep` and `Cancel` give back all of them.
func TestReleaseGivesBackUnitsInUse(t *testing.T) {
	e, _ := newInFlight(t, engine.Config{Policy: inFlight(2, time.Minute)})
	ends := map[string]func(r *engine.Reservation[string]){
		"release": (*engine.Reservation[string]).Release,
		"cancel":  (*engine.Reservation[string]).Cancel,
		"keep":    func(r *engine.Reservation[string]) { r.Keep(2) },
	}
	for name, end := range ends {
		r := e.Reserve("a", 2, time.Hour)
		require.True(t, r.Allowed, name)
		assert.False(t, e.Choke("a"), name)
		end(&r)
		// A second Release does nothing.
		r.Release()
		assert.EqualValues(t, 2, e.Peek("a", 0).Remaining, name)
	}
	for used := range int64(4) {
		g, err := e.Hold(t.Context(), limits.Call[string]{Key: "a", N: 2})
		require.NoError(t, err)
		require.True(t, g.Allowed)
		assert.NoError(t, g.Settle(t.Context(), used))
		assert.EqualValues(t, 2, e.Peek("a", 0).Remaining, "settled with %d", used)
	}
	g, err := e.Hold(t.Context(), limits.Call[string]{Key: "a", N: 2})
	require.NoError(t, err)
	assert.NoError(t, g.Release(t.Context()))
	assert.EqualValues(t, 2, e.Peek("a", 0).Remaining)
	assert.Zero(t, e.Stats().Overstayed)
}

// Promise: Rate, cost and units in use are taken all or nothing, and `Release` leaves the rates spent.
func TestReleaseLeavesRatesSpent(t *testing.T) {
	e, _ := newInFlight(t, engine.Config{Policy: inFlight(2, time.Minute)})
	rate, _ := newInFlight(t, engine.Config{Policy: policy.Must(policy.FixedWindow(3, time.Hour))})
	for round := range int64(3) {
		out := engine.TakeAll(rate.Claim("a", 1), e.Claim("a", 2))
		require.True(t, out.Allowed)
		assert.False(t, engine.TakeAll(rate.Claim("a", 0), e.Claim("a", 1)).Allowed)
		out.Release()
		assert.EqualValues(t, 2, e.Peek("a", 0).Remaining)
		assert.EqualValues(t, 2-round, rate.Peek("a", 0).Remaining)
	}
	assert.False(t, engine.TakeAll(rate.Claim("a", 1), e.Claim("a", 1)).Allowed)
	assert.EqualValues(t, 2, e.Peek("a", 0).Remaining, "a call that the rate refuses holds nothing")

	tiers, err := engine.NewTiered[string](engine.Config{Policy: policy.Must(policy.FixedWindow(5, time.Hour))}, inFlight(1, time.Minute))
	require.NoError(t, err)
	defer func() { assert.NoError(t, tiers.Close()) }()
	for _, end := range []func(o *engine.Outcome){(*engine.Outcome).Release, func(o *engine.Outcome) { o.Keep(1, 1) }, (*engine.Outcome).Cancel} {
		out, err := tiers.Acquire(t.Context(), "a", 1, 0)
		require.NoError(t, err)
		assert.False(t, tiers.Choke("a"))
		end(&out)
	}
	g, err := tiers.Hold(t.Context(), limits.Call[string]{Key: "a", N: 1})
	require.NoError(t, err)
	assert.NoError(t, g.Release(t.Context()))
	assert.EqualValues(t, 2, tiers.Engines()[0].Peek("a", 0).Remaining, "of five units, three must be spent and one given back")
}

// Promise: A unit that nobody releases ends by itself; its late release takes no other unit, and is counted.
func TestUnitEndsByItself(t *testing.T) {
	e, clock := newInFlight(t, engine.Config{Policy: inFlight(1, time.Minute)})
	late := e.Reserve("a", 1, 0)
	clock.pass(time.Minute)
	assert.False(t, e.Reserve("b", 2, 0).Allowed)
	clock.pass(time.Minute)
	second := e.Reserve("a", 1, 0)
	require.True(t, second.Allowed)
	late.Release()
	assert.False(t, e.Choke("a"))
	assert.EqualValues(t, 1, e.Stats().Overstayed)
	second.Release()
	assert.True(t, e.Choke("a"))
}

// Promise: A second release of a unit, as of a copy of its reservation, is not counted as one that comes after the unit's end.
func TestSecondReleaseIsNotCountedAsLate(t *testing.T) {
	e, clock := newInFlight(t, engine.Config{
		Policy: inFlight(2, time.Minute), State: engine.State{Path: filepath.Join(t.TempDir(), "state")},
	})
	for range 2 {
		r := e.Reserve("a", 1, 0)
		same, third := r, r
		r.Release()
		same.Release()
		assert.False(t, third.Extend())
		assert.Zero(t, e.Stats().Overstayed)
		assert.EqualValues(t, 2, e.Peek("a", 0).Remaining)
		clock.pass(50 * time.Second)
		require.NoError(t, e.SetPolicy(inFlight(3, time.Minute)))
		require.NoError(t, e.SetPolicy(inFlight(2, time.Minute)))
	}
	last, late := e.Reserve("a", 1, 0), e.Reserve("a", 1, 0)
	require.NoError(t, e.Close())
	last.Release()
	assert.Zero(t, e.Stats().Overstayed, "the unit must be ended by Close, and not count as overstayed")
	clock.pass(2 * time.Minute)
	late.Release()
	assert.EqualValues(t, 1, e.Stats().Overstayed)
}

// Promise: `Extend` lets a unit begin its longest time anew, and fails after its end.
func TestExtendBeginsTheLongestTimeAnew(t *testing.T) {
	e, clock := newInFlight(t, engine.Config{Policy: inFlight(1, time.Minute)})
	r := e.Reserve("a", 1, 0)
	for range 10 {
		clock.pass(45 * time.Second)
		assert.True(t, r.Extend())
		assert.False(t, e.Choke("a"))
	}
	clock.pass(3 * time.Minute)
	require.True(t, e.Choke("a"))
	assert.False(t, r.Extend())
	r.Release()
	assert.False(t, e.Choke("a"))
}

// Promise: A release from before a `Reset` frees no other unit, whatever followed.
func TestReleaseFromBeforeResetFreesNothing(t *testing.T) {
	e, _ := newInFlight(t, engine.Config{Policy: inFlight(1, time.Minute)})
	var old []engine.Reservation[string]
	for range 5 {
		r := e.Reserve("a", 1, 0)
		require.True(t, r.Allowed)
		for i := range old {
			copied := old[i]
			copied.Release()
			extended := old[i]
			assert.False(t, extended.Extend())
			require.False(t, e.Choke("a"), "a release from before a reset freed the unit")
		}
		old = append(old, r)
		assert.True(t, e.Reset("a"))
	}
	r := e.Reserve("a", 1, 0)
	require.True(t, r.Allowed)
	r.Release()
	assert.True(t, e.Choke("a"))
}

// Promise: A release counts after any change of the limit, as long as its unit does.
func TestReleaseAfterSetPolicy(t *testing.T) {
	e, clock := newInFlight(t, engine.Config{Policy: inFlight(10, time.Minute)})
	held := make([]engine.Reservation[string], 10)
	for i := range held {
		held[i] = e.Reserve("a", 1, 0)
		require.True(t, held[i].Allowed)
	}
	for i, p := range []policy.Policy{inFlight(3, time.Minute), inFlight(20, time.Hour), inFlight(20, time.Minute), inFlight(500, time.Minute), inFlight(11, time.Hour)} {
		require.NoError(t, e.SetPolicy(p))
		assert.Equal(t, max(p.Limit()-int64(10-i), 0), e.Peek("a", 0).Remaining, "%v", p)
		held[i].Release()
		assert.Equal(t, max(p.Limit()-int64(9-i), 0), e.Peek("a", 0).Remaining, "%v", p)
		assert.True(t, held[i+1].Extend())
	}
	clock.pass(30 * time.Minute)
	for i := range held[5:] {
		held[5+i].Release()
	}
	assert.EqualValues(t, 11, e.Peek("a", 0).Remaining)
	assert.Zero(t, e.Stats().Overstayed)
}

// Promise: A release finds its unit after as many as 64 changes of the longest time; after more, the unit ends by itself.
func TestReleaseAfterManyChanges(t *testing.T) {
	for changes := 63; changes <= 66; changes++ {
		e, clock := newInFlight(t, engine.Config{Policy: inFlight(1, time.Minute)})
		r := e.Reserve("a", 1, 0)
		for i := range changes {
			require.NoError(t, e.SetPolicy(inFlight(1, time.Minute+time.Duration(i+1)%2*time.Second)))
		}
		assert.Equal(t, changes <= 64, r.Extend(), changes)
		r.Release()
		require.Equal(t, changes <= 64, e.Peek("a", 1).Allowed, changes)
		clock.pass(2 * time.Minute)
		assert.True(t, e.Choke("a"))
	}
}

// Promise: A limit of a key that is lowered and raised by `ChangeLimit` forgets no unit in use, and each is released as before.
func TestChangeLimitForgetsNoUnitInUse(t *testing.T) {
	e, _ := newInFlight(t, engine.Config{Policy: inFlight(10, time.Minute)})
	low, high := inFlight(2, time.Minute), inFlight(20, time.Minute)
	held := []engine.Reservation[string]{e.Reserve("a", 5, 0), e.Reserve("a", 3, 0)}
	require.NoError(t, e.ChangeLimit("a", nil, low, engine.KeepShare))
	assert.EqualValues(t, 8, e.ExplainWith(low, "a").Used, "KeepShare must do as KeepUsed")
	require.NoError(t, e.ChangeLimit("a", low, high, engine.KeepShare))
	assert.EqualValues(t, 12, e.ExplainWith(high, "a").Remaining)
	for i := range held {
		assert.True(t, held[i].Extend())
		held[i].Release()
	}
	assert.EqualValues(t, 20, e.ExplainWith(high, "a").Remaining)
	assert.Zero(t, e.Stats().Overstayed)
}

// Promise: A full table gives up no key in use; a released key's place is free at once.
func TestKeyInUseIsNeverGone(t *testing.T) {
	// The keys are idle before and after the units would end.
	for _, idle := range []time.Duration{time.Second, 24 * time.Hour} {
		e, clock := newInFlight(t, engine.Config{Policy: inFlight(1, time.Hour), MaxKeys: 3, Idle: idle})
		var held []engine.Reservation[string]
		for _, key := range []string{"a", "b", "c"} {
			r := e.Reserve(key, 1, 0)
			require.True(t, r.Allowed)
			held = append(held, r)
		}
		for range 10 {
			d := e.Take("d", 1)
			require.False(t, d.Allowed, "%v", e.Stats())
			assert.Equal(t, idle, d.RetryAfter, "the call must be refused as under RefuseNew")
		}
		for _, key := range []string{"a", "b", "c"} {
			assert.False(t, e.Choke(key))
		}
		held[1].Release()
		assert.True(t, e.Choke("d"))
		assert.False(t, e.Choke("d"))
		assert.False(t, e.Choke("a"))
		clock.pass(2 * time.Hour)
		assert.True(t, e.Choke("e"), "a call must pass once the units have ended by themselves")
		assert.Zero(t, e.Stats().Forgiven)
	}
}

// Promise: `Explain` of a new key agrees with the next call, also if every key of a full table is in use.
func TestExplainOfANewKeyWhileAllPlacesAreInUse(t *testing.T) {
	for _, whenFull := range []engine.WhenFull{engine.EvictLeastDebt, engine.RefuseNew, engine.AdmitNew} {
		e, clock := newInFlight(t, engine.Config{Policy: inFlight(2, time.Hour), MaxKeys: 2, Idle: time.Second, WhenFull: whenFull})
		agrees := func(allowed bool) {
			t.Helper()
			x := e.Explain("new")
			assert.Equal(t, allowed, x.Allowed, x.String())
			assert.Equal(t, limits.SourceUnrecorded, x.Source())
			if !allowed {
				assert.Equal(t, time.Second, x.RetryAfter)
				assert.Contains(t, x.String(), "A call is refused")
			}
			d := e.Take("new", 1)
			assert.Equal(t, []any{d.Allowed, d.RetryAfter}, []any{x.Allowed, x.RetryAfter})
		}
		held := []engine.Reservation[string]{e.Reserve("a", 1, 0), e.Reserve("b", 1, 0)}
		// The second time the writer has found that every key is in use.
		agrees(whenFull == engine.AdmitNew)
		agrees(whenFull == engine.AdmitNew)
		if whenFull == engine.EvictLeastDebt {
			held[1].Release()
			assert.True(t, e.Explain("new").Allowed)
			assert.Equal(t, 2, e.Len(), "an explanation made room")
			assert.True(t, e.Allow("new"))
			assert.False(t, e.Explain("b").Allowed)
			clock.pass(2 * time.Hour)
			assert.True(t, e.Explain("b").Allowed, "a call must be explained as admitted once the units have ended by themselves")
		}
	}
}

// Promise: Resets beside takes and releases leave no unit in use that every caller has released.
func TestResetsLoseNoRelease(t *testing.T) {
	e, err := engine.New[string](engine.Config{Policy: inFlight(7, time.Hour)})
	require.NoError(t, err)
	defer func() { assert.NoError(t, e.Close()) }()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 20_000 {
				r := e.Reserve("a", 1, 0)
				if i%100 == 0 {
					e.Reset("a")
				}
				r.Release()
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, 7, e.Peek("a", 0).Remaining)
}

// Promise: Of 16 callers at once, exactly one passes a limit of one in flight, by whichever verb.
func TestOneOf16CallersPassesALimitOfOneInFlight(t *testing.T) {
	for name, take := range map[string]func(e *engine.Engine[string]) (allowed bool){
		"Choke":   func(e *engine.Engine[string]) bool { return e.Choke("a") },
		"Reserve": func(e *engine.Engine[string]) bool { r := e.Reserve("a", 1, 0); return r.Allowed },
		"Acquire": func(e *engine.Engine[string]) bool { _, err := e.Acquire(t.Context(), "a", 1, 0); return err == nil },
		"TakeAll": func(e *engine.Engine[string]) bool { return engine.TakeAll(e.Claim("a", 1), e.Claim("b", 1)).Allowed },
		"Hold": func(e *engine.Engine[string]) bool {
			g, err := e.Hold(t.Context(), limits.Call[string]{Key: "a", N: 1})
			return err == nil && g.Allowed
		},
	} {
		for range 50 {
			e, _ := newInFlight(t, engine.Config{Policy: inFlight(1, time.Hour)})
			var passed atomic.Int64
			var all sync.WaitGroup
			start := make(chan bool)
			for range 16 {
				all.Go(func() {
					<-start
					if take(e) {
						passed.Add(1)
					}
				})
			}
			close(start)
			all.Wait()
			require.EqualValues(t, 1, passed.Load(), name)
		}
	}
}

// Promise: A call that one limit refuses holds no unit in use of another, in whatever order the limits are listed.
func TestRefusedCallHoldsNoUnitInUse(t *testing.T) {
	e, _ := newInFlight(t, engine.Config{Policy: inFlight(1, time.Hour)})
	rate, _ := newInFlight(t, engine.Config{Policy: policy.Must(policy.FixedWindow(1, time.Hour))})
	require.True(t, rate.Choke("a"))
	for _, claims := range [][]engine.Claim{{e.Claim("a", 1), rate.Claim("a", 1)}, {rate.Claim("a", 1), e.Claim("a", 1)}} {
		out := engine.TakeAll(claims...)
		assert.False(t, out.Allowed)
		_, err := engine.AcquireAll(t.Context(), 0, claims...)
		assert.Error(t, err)
		assert.EqualValues(t, 1, e.Peek("a", 0).Remaining)
	}
	for _, policies := range [][]policy.Policy{{inFlight(1, time.Hour), funnelOf(1)}, {funnelOf(1), inFlight(1, time.Hour)}} {
		tiers, err := engine.NewTiered[string](engine.Config{Policy: policies[0]}, policies[1])
		require.NoError(t, err)
		defer func() { assert.NoError(t, tiers.Close()) }()
		out, err := tiers.Acquire(t.Context(), "a", 1, 0)
		require.NoError(t, err)
		out.Release()
		assert.False(t, tiers.Choke("a"), "the rate is spent")
		for _, tier := range tiers.Engines() {
			if _, ok := tier.Limit().(policy.Occupier); ok {
				assert.EqualValues(t, 1, tier.Peek("a", 0).Remaining)
			}
		}
	}
	unit := limits.NewClaim[string](e, limits.Call[string]{Key: "a", N: 1})
	spent := limits.NewClaim[string](rate, limits.Call[string]{Key: "a", N: 1})
	for _, claims := range [][]limits.Claim{{unit, spent}, {spent, unit}} {
		out, err := limits.AskAll(t.Context(), 0, claims...)
		require.NoError(t, err)
		assert.False(t, out.Allowed)
		assert.EqualValues(t, 1, e.Peek("a", 0).Remaining)
	}
}

func funnelOf(n int64) policy.Policy { return policy.Must(policy.Funnel(n, n, time.Hour)) }

// Promise: Never more units are in use than the limit, and none at the end, whatever calls overlap.
func TestInFlightIsExact(t *testing.T) {
	e, err := engine.New[string](engine.Config{Policy: inFlight(7, time.Hour)})
	require.NoError(t, err)
	defer func() { assert.NoError(t, e.Close()) }()
	var used atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 5000 {
				r := e.Reserve("a", 1, 0)
				if !r.Allowed {
					continue
				}
				if now := used.Add(1); now > 7 {
					t.Errorf("%d units are in use, more than 7", now)
				}
				if i%5 == 0 && !r.Extend() {
					t.Error("a unit in use was not extended")
				}
				used.Add(-1)
				r.Release()
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, 7, e.Peek("a", 0).Remaining)
	assert.Zero(t, e.Stats().Overstayed)
}

func TestInFlightRefundsNothing(t *testing.T) {
	e, _ := newInFlight(t, engine.Config{Policy: inFlight(3, time.Minute)})
	require.True(t, e.Choke("a"))
	for _, n := range []int64{1, -1} {
		assert.False(t, e.Refund("a", n).Allowed)
		assert.EqualValues(t, 2, e.Peek("a", 0).Remaining)
	}
}

func TestReserveAndReleaseAllocateNothing(t *testing.T) {
	e, _ := newInFlight(t, engine.Config{Policy: inFlight(3, time.Minute)})
	e.Choke("a")
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		r := e.Reserve("a", 1, 0)
		r.Extend()
		r.Release()
	}))
}

// The take's word had more units than the key's word when the limit changed, so it was carried into longer parts.
//
// Promise: A release after a change of the longest time finds its unit, whatever units were released before.
func TestReleaseAfterOthersAndAChange(t *testing.T) {
	for _, longest := range []time.Duration{500 * time.Millisecond, time.Hour} {
		e, _ := newInFlight(t, engine.Config{Policy: inFlight(1000, time.Minute)})
		first, many, last := e.Reserve("a", 1, 0), e.Reserve("a", 998, 0), e.Reserve("a", 1, 0)
		require.True(t, first.Allowed && many.Allowed && last.Allowed)
		many.Release()
		require.NoError(t, e.SetPolicy(inFlight(2, longest)))
		require.False(t, e.Choke("a"))
		assert.True(t, last.Extend())
		last.Release()
		assert.EqualValues(t, 1, e.Peek("a", 0).Remaining)
		first.Release()
		assert.EqualValues(t, 2, e.Peek("a", 0).Remaining)
		assert.Zero(t, e.Stats().Overstayed)
	}
}

// A take may merge the parts of its key's word. The word before it must not come back if another call has taken from
// the merged word since, also if the word is again what the take has left.
//
// Promise: A release loses no unit of a call that took after it, whatever others were released meanwhile.
func TestReleaseOfATakeThatMergedParts(t *testing.T) {
	for before := 1; before < 200; before++ {
		e, _ := newInFlight(t, engine.Config{Policy: inFlight(5, time.Minute)})
		first := e.Reserve("a", 1, 0)
		require.NoError(t, e.SetPolicy(inFlight(1000, time.Minute)))
		held := make([]engine.Reservation[string], before)
		for i := range held {
			held[i] = e.Reserve("a", 1, 0)
		}
		merging, later := e.Reserve("a", 1, 0), e.Reserve("a", 1, 0)
		require.True(t, merging.Allowed && later.Allowed)
		held[0].Release()
		merging.Release()
		require.True(t, later.Extend(), before)
		later.Release()
		for i := range held {
			held[i].Release()
		}
		first.Release()
		require.EqualValues(t, 1000, e.Peek("a", 0).Remaining, before)
		require.Zero(t, e.Stats().Overstayed)
		require.NoError(t, e.Close())
	}
}

// The entry of the take was moved by the change. After its successor has left, the key has an entry without a past.
//
// Promise: A release from before a `Reset` frees no unit of a key that left and came again, also after a change of the limit.
func TestReleaseAfterAChangeAndAReset(t *testing.T) {
	e, _ := newInFlight(t, engine.Config{Policy: inFlight(1, time.Hour), MaxKeys: 1})
	for n := range int64(3) {
		old := e.Reserve("a", 1, 0)
		require.True(t, old.Allowed)
		require.NoError(t, e.SetPolicy(inFlight(1+n%2, time.Hour)))
		require.True(t, e.Reset("a"))
		other := e.Reserve("b", 1, 0)
		require.True(t, other.Allowed, "a call must pass once the key that was reset has left")
		other.Release()
		again := e.Reserve("a", 1+n%2, 0)
		require.True(t, again.Allowed)
		extended := old
		assert.False(t, extended.Extend())
		old.Release()
		assert.Zero(t, e.Peek("a", 0).Remaining, "the release freed another call's unit")
		again.Release()
		assert.Equal(t, 1+n%2, e.Peek("a", 0).Remaining)
	}
}
