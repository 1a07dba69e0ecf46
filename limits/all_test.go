package limits_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// far is a limiter elsewhere: it counts the round trips, and does something on each.
type far struct {
	limits.Limiter[string]
	trips int
	// on runs before a decision.
	on func(ctx context.Context) error
	// back runs after units are given back.
	back func() error
}

func (f *far) Remote() bool { return true }

func (f *far) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	f.trips++
	if f.on != nil {
		if err := f.on(ctx); err != nil {
			return limits.Grant{}, err
		}
	}
	g, err := f.Limiter.Hold(ctx, call)
	if g.State.Settler != nil {
		g.State.Settler = farSettler{f, g.State.Settler}
	}
	return g, err
}

type farSettler struct {
	far *far
	limits.Settler
}

func (h farSettler) Settle(ctx context.Context, state limits.GrantState, used int64) error {
	h.far.trips++
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := h.Settler.Settle(ctx, state, used); err != nil || h.far.back == nil {
		return err
	}
	return h.far.back()
}

func under(t *testing.T, limit policy.Policy) *engine.Engine[string] {
	t.Helper()
	e := must.Get(engine.New[string](engine.Config{Policy: limit}))
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	return e
}

func window(t *testing.T, n int64) *engine.Engine[string] {
	t.Helper()
	return under(t, policy.Must(policy.FixedWindow(n, time.Hour)))
}

func left(e *engine.Engine[string]) int64 { return e.Peek("key", 0).Remaining }

func claim(l limits.Limiter[string], n int64) limits.Claim {
	return limits.NewClaim(l, limits.Call[string]{Key: "key", N: n})
}

// A call on two limits in process, one of them without Look, and two elsewhere takes from all or from
// none, whatever happens to it. Nothing is taken in process before the others admit, except that a
// limiter without Look is asked first.
//
// Promise: A local refusal takes nothing and costs no round trip.
// Promise: A refusal elsewhere takes nothing locally.
// Promise: An overtaken call returns its units elsewhere.
func TestAskAllTakesFromAllOrNone(t *testing.T) {
	broken := errors.New("broken")
	ends := func(end func()) error { end(); return nil }
	endsIt := func(end func()) error { end(); return context.Canceled }
	for name, c := range map[string]struct {
		// address, tenant and region are the units to take, of 10. 0 is 1.
		address, tenant, region int64
		onTenant, onRegion      func(end func()) error
		// back runs when the tenant gives back.
		back func() error
		// overtaken means that another call takes from the address meanwhile.
		overtaken bool
		// trips are the round trips to tenant and region.
		trips           [2]int
		allowed, panics bool
		err             error
	}{
		"admitted":                         {trips: [2]int{1, 1}, allowed: true},
		"admitted, and its context ends":   {onRegion: ends, trips: [2]int{1, 1}, allowed: true},
		"a limit in process refuses":       {address: 11},
		"the first elsewhere refuses":      {tenant: 11, trips: [2]int{1, 0}},
		"the first fails":                  {onTenant: func(func()) error { return broken }, trips: [2]int{1, 0}, err: broken},
		"the first panics":                 {onTenant: func(func()) error { panic(broken) }, trips: [2]int{1, 0}, panics: true},
		"the context ends there":           {onTenant: endsIt, trips: [2]int{1, 0}, err: context.Canceled},
		"the second elsewhere refuses":     {region: 11, trips: [2]int{2, 1}},
		"it refuses when the context ends": {region: 11, onRegion: ends, trips: [2]int{2, 1}},
		"it fails when the context ends":   {onRegion: endsIt, trips: [2]int{2, 1}, err: context.Canceled},
		"another call takes in process":    {address: 3, overtaken: true, trips: [2]int{2, 2}},
		"giving back panics":               {region: 11, back: func() error { panic(broken) }, trips: [2]int{2, 1}, panics: true},
	} {
		t.Run(name, func(t *testing.T) {
			tenants, regions, address, user := window(t, 10), window(t, 10), window(t, 10), window(t, 10)
			ctx, end := context.WithCancel(t.Context())
			defer end()
			then := func(do func(end func()) error) func(context.Context) error {
				return func(context.Context) error {
					assert.Equal(t, []int64{10, 9}, []int64{left(address), left(user)})
					if do == nil {
						return nil
					}
					return do(end)
				}
			}
			if c.overtaken {
				c.onRegion = func(func()) error { address.Take("key", 8); return nil }
			}
			tenant := &far{Limiter: tenants, on: then(c.onTenant), back: c.back}
			region := &far{Limiter: regions, on: then(c.onRegion)}
			var out limits.Outcome
			var err error
			call := func() {
				out, err = limits.AskAll(ctx, 0, claim(tenant, max(c.tenant, 1)), claim(region, max(c.region, 1)),
					claim(address, max(c.address, 1)), claim(blind{user}, 1))
			}
			if c.panics {
				assert.PanicsWithValue(t, broken, call)
			} else {
				call()
			}
			assert.ErrorIs(t, err, c.err)
			assert.Equal(t, c.allowed, out.Allowed)
			assert.Equal(t, c.trips, [2]int{tenant.trips, region.trips})
			want := []int64{10, 10, 10, 10}
			if c.allowed {
				require.NoError(t, out.Settle(t.Context(), 1, 0))
				require.NoError(t, out.Cancel(t.Context()), "it is settled")
				want = []int64{9, 10, 9, 9}
			}
			if c.overtaken {
				assert.Equal(t, 2, out.Binding)
				want[2] = 2
			}
			assert.Equal(t, want, []int64{left(tenants), left(regions), left(address), left(user)})
		})
	}
}

// All claims in process that refuse are named, even if the call would wait.
func TestLocalRefusalsAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := []limits.Claim{claim(&far{Limiter: window(t, 10)}, 1), claim(window(t, 1), 2), claim(window(t, 1), 2)}
		for _, patience := range []time.Duration{0, time.Minute} {
			out := must.Get(limits.AskAll(t.Context(), patience, all...))
			assert.Equal(t, []any{false, 1, policy.Never}, []any{out.Allowed, out.Binding, out.RetryAfter})
			for i, source := range []limits.Source{limits.SourceNone, limits.SourceProcess, limits.SourceProcess} {
				assert.Equal(t, source, out.Answers[i].Source())
				assert.False(t, out.Answers[i].Allowed)
			}
		}
	})
}

type blind struct{ limits.Limiter[string] }

// batch is a limiter elsewhere that takes several claims in a single exchange, unless alone is set.
type batch struct {
	far
	alone     bool
	exchanges *int
}

func (b *batch) Join(all any, call limits.Call[string]) any {
	calls, _ := all.(exchange)
	return append(calls, exchanged{b, call})
}

// exchange is calls of batches, asked together.
type exchange []exchanged

type exchanged struct {
	limiter *batch
	call    limits.Call[string]
}

func (e exchange) HoldAll(ctx context.Context, _ time.Duration) (grants []limits.Grant, waited time.Duration, err error) {
	if e[0].limiter.alone {
		return nil, 0, nil
	}
	*e[0].limiter.exchanges++
	allowed := true
	for _, one := range e {
		g, err := one.limiter.far.Limiter.Hold(ctx, one.call)
		if err != nil {
			return nil, 0, err
		}
		grants, allowed = append(grants, g), allowed && g.Allowed
	}
	for i := range grants {
		if !allowed {
			if err := grants[i].Cancel(ctx); err != nil {
				return nil, 0, err
			}
		}
	}
	return grants, 0, nil
}

// Limiters that cannot be asked at once are asked in turn.
//
// Promise: Claims of one Redis client take one exchange.
func TestClaimsElsewhereAreAskedAtOnce(t *testing.T) {
	for _, alone := range []bool{false, true} {
		exchanges := 0
		batchOf := func(n int64) (*batch, *engine.Engine[string]) {
			e := window(t, n)
			return &batch{far: far{Limiter: e}, alone: alone, exchanges: &exchanges}, e
		}
		requests, left1 := batchOf(9)
		tokens, left2 := batchOf(5)
		address := window(t, 100)
		ask := func() limits.Outcome {
			return must.Get(limits.AskAll(t.Context(), 0, claim(requests, 1), claim(address, 1), claim(tokens, 3)))
		}
		out := ask()
		require.True(t, out.Allowed)
		refused := ask()
		assert.False(t, refused.Allowed)
		assert.Equal(t, 2, refused.Binding)
		assert.Equal(t, int64(8), left(left1))
		assert.Equal(t, int64(99), left(address))
		require.NoError(t, out.Settle(t.Context(), 1, 1, 1))
		assert.Equal(t, int64(4), left(left2), "each grant is settled by itself")
		if alone {
			assert.Zero(t, exchanges)
			assert.Positive(t, requests.trips)
		} else {
			assert.Equal(t, 2, exchanges)
			assert.Zero(t, requests.trips)
		}
	}
}

// Promise: A waiting call on several limiters holds nothing.
func TestAskAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := under(t, policy.Must(policy.Funnel(1, 1, time.Second)))
		free := window(t, 10)
		require.True(t, slow.Choke("key"))
		looked := make(chan int64)
		go func() {
			time.Sleep(500 * time.Millisecond)
			looked <- left(free)
		}()
		tenant := &far{Limiter: window(t, 10)}
		out := must.Get(limits.AskAll(t.Context(), time.Minute, claim(tenant, 1), claim(free, 1), claim(slow, 1)))
		require.True(t, out.Allowed)
		assert.Equal(t, time.Second, out.Waited)
		assert.Equal(t, int64(10), <-looked, "it holds nothing while it waits")
		assert.Equal(t, 1, tenant.trips)
		assert.Equal(t, int64(9), left(free))

		// The wait ends with the context, and takes nothing.
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		out, err := limits.AskAll(ctx, time.Minute, claim(free, 1), claim(slow, 1))
		assert.ErrorIs(t, err, context.Canceled)
		assert.False(t, out.Allowed)
		assert.Equal(t, 100*time.Millisecond, out.Waited)
		assert.Equal(t, int64(9), left(free))

		// Nor does it wait for a turn beyond its patience.
		began := time.Now()
		out = must.Get(limits.AskAll(t.Context(), 10*time.Millisecond, claim(free, 1), claim(slow, 1)))
		assert.False(t, out.Allowed)
		assert.Zero(t, time.Since(began))

		// Refused after the wait, a claim that was not asked again has no answer.
		near := window(t, 1)
		time.AfterFunc(100*time.Millisecond, func() { near.Choke("key") })
		out = must.Get(limits.AskAll(t.Context(), time.Minute, claim(near, 1), claim(tenant, 1), claim(&far{Limiter: slow}, 1)))
		assert.Equal(t, []any{false, 0, limits.SourceNone}, []any{out.Allowed, out.Binding, out.Answers[1].Source()})
	})
}

func TestOutcomeTellsTheFirstFailure(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	e := window(t, 10)
	out := must.Get(limits.AskAll(t.Context(), 0, claim(e, 1),
		claim(&far{Limiter: window(t, 1), back: func() error { return first }}, 1),
		claim(&far{Limiter: window(t, 1), back: func() error { return second }}, 1)))
	assert.Equal(t, first, out.Cancel(t.Context()))
	assert.Equal(t, int64(10), left(e))
}

func TestAskAllOfZeroValues(t *testing.T) {
	e := window(t, 10)
	for _, c := range []struct {
		claims  []limits.Claim
		allowed bool
	}{
		{nil, true},
		{[]limits.Claim{claim(e, 1), claim(&engine.Tiered[string]{}, 1)}, true},
		{[]limits.Claim{claim(e, 1), claim(limits.ForAnyKey[string](&single.Limiter{}), 1)}, false},
	} {
		out := must.Get(limits.AskAll(t.Context(), 0, c.claims...))
		assert.Equal(t, c.allowed, out.Allowed)
		assert.Equal(t, len(c.claims) == 0, out.Binding < 0)
	}
	assert.Equal(t, int64(9), left(e))
	assert.NoError(t, (&limits.Outcome{}).Cancel(t.Context()))
}

func TestNamesDiffer(t *testing.T) {
	seen := map[string]bool{"": true}
	differs := func(name string) {
		assert.False(t, seen[name], name)
		seen[name] = true
	}
	for s := limits.SourceNone; s <= limits.SourceClosed; s++ {
		differs(s.String())
	}
	for r := limits.Admitted; r <= limits.Unavailable; r++ {
		differs(r.String())
	}
	assert.Equal(t, "none", limits.Source(200).String())
	assert.Equal(t, []string{"unknown", "unknown"}, []string{limits.Reason(-1).String(), (limits.Unavailable + 1).String()})
}

func TestZeroAnswerHasNoSourceAndNoError(t *testing.T) {
	var zero limits.Answer
	assert.Equal(t, limits.SourceNone, zero.Source())
	assert.False(t, zero.Exact())
	assert.NoError(t, zero.Err())
	// At most nine words are returned in registers: an Answer and an error.
	assert.LessOrEqual(t, unsafe.Sizeof(zero), 7*unsafe.Sizeof(int64(0)))
	var none limits.Grant
	assert.NoError(t, none.Settle(t.Context(), 1))
}

// A wait in process counts once as admitted; a wait beyond the patience once as refused.
func TestPatientCallIsCountedOnce(t *testing.T) {
	for _, claims := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			e := under(t, policy.Must(policy.Funnel(1, 1, time.Second)))
			all := []limits.Claim{claim(e, 1), claim(window(t, 9), 1)}[:claims]
			for range 3 {
				require.True(t, must.Get(limits.AskAll(t.Context(), time.Minute, all...)).Allowed)
			}
			s := e.Stats()
			assert.EqualValues(t, 3, s.Admitted)
			assert.Zero(t, s.Refused)
			assert.False(t, must.Get(limits.AskAll(t.Context(), time.Millisecond, all...)).Allowed)
			s = e.Stats()
			assert.EqualValues(t, 3, s.Admitted)
			assert.EqualValues(t, 1, s.Refused)
		})
	}
}
