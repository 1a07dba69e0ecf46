package limits_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// far is a limiter elsewhere: it counts the round trips to it, and does something on each.
type far struct {
	limits.Limiter[string]
	trips int
	on    func(ctx context.Context) error
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
	if g.Held.Of != nil {
		g.Held.Of = farHolder{f, g.Held.Of}
	}
	return g, err
}

type farHolder struct {
	far *far
	of  limits.Holder
}

func (h farHolder) Settle(ctx context.Context, held limits.Held, used int64) error {
	h.far.trips++
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return h.of.Settle(ctx, held, used)
}

func under(t *testing.T, limit policy.Policy) *engine.Engine[string] {
	t.Helper()
	e, err := engine.New[string](engine.Config{Policy: limit})
	require.NoError(t, err)
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

// All claims in process that refuse are named.
//
// Promise: A local refusal takes nothing and costs no round trip.
func TestLocalRefusalCostsNoRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		address, user := window(t, 1), window(t, 1)
		tenants := window(t, 100)
		tenant := &far{Limiter: tenants}
		all := []limits.Claim{claim(tenant, 1), claim(address, 1), claim(user, 1)}
		out, err := limits.AskAll(t.Context(), 0, all...)
		require.NoError(t, err)
		require.True(t, out.Allowed)
		require.Equal(t, 1, tenant.trips)
		for _, patience := range []time.Duration{0, time.Minute} {
			out, err = limits.AskAll(t.Context(), patience, all...)
			require.NoError(t, err)
			assert.False(t, out.Allowed)
			assert.Equal(t, 1, out.Binding)
			assert.Equal(t, limits.SourceNone, out.Answers[0].Source())
			for _, a := range out.Answers[1:] {
				assert.False(t, a.Allowed)
				assert.Equal(t, limits.SourceProcess, a.Source())
			}
			assert.Equal(t, out.Answers[1].RetryAfter, out.RetryAfter)
		}
		assert.Equal(t, 1, tenant.trips)
		assert.Equal(t, int64(99), left(tenants))
	})
}

// Elsewhere refuses, fails, panics, or its context ends. A limiter without Look gives back.
//
// Promise: A refusal elsewhere takes nothing locally.
func TestRefusalElsewhereLeavesLocalClaims(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		remote int64 // units that it has
		on     func(ctx context.Context, cancel func()) error
		err    error
		panics bool
	}{
		"refuses": {remote: 2},
		"fails":   {remote: 9, on: func(context.Context, func()) error { return broken }, err: broken},
		"panics":  {remote: 9, on: func(context.Context, func()) error { panic(broken) }, panics: true},
		"context ends": {remote: 9, on: func(ctx context.Context, cancel func()) error {
			cancel()
			return context.Cause(ctx)
		}, err: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			address, user, tenants := window(t, 10), window(t, 10), window(t, c.remote)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tenant, second := &far{Limiter: tenants}, &far{Limiter: window(t, 10)}
			tenant.on = func(ctx context.Context) error {
				assert.Equal(t, int64(10), left(address), "nothing is taken before the others admit")
				assert.Equal(t, int64(5), left(user), "a limiter without Look is asked first")
				if c.on != nil {
					return c.on(ctx, cancel)
				}
				return nil
			}
			call := func() (out limits.Outcome, err error) {
				return limits.AskAll(ctx, 0, claim(tenant, 3), claim(second, 3), claim(address, 4), claim(blind{user}, 5))
			}
			if c.panics {
				assert.PanicsWithValue(t, broken, func() { _, _ = call() })
			} else {
				out, err := call()
				assert.ErrorIs(t, err, c.err)
				assert.False(t, out.Allowed)
			}
			assert.Equal(t, int64(10), left(address))
			assert.Equal(t, int64(10), left(user))
			assert.Equal(t, c.remote, left(tenants))
			assert.Zero(t, second.trips, "nothing is asked after a refusal")
		})
	}
}

type blind struct{ limits.Limiter[string] }

// Another call takes in process between look and take.
//
// Promise: An overtaken call returns its units elsewhere.
func TestOvertakenCallGivesBackElsewhere(t *testing.T) {
	address, tenants := window(t, 10), window(t, 10)
	tenant := &far{Limiter: tenants, on: func(context.Context) error {
		assert.True(t, address.Take("key", 8).Allowed)
		return nil
	}}
	out, err := limits.AskAll(t.Context(), 0, claim(address, 3), claim(tenant, 4))
	require.NoError(t, err)
	assert.False(t, out.Allowed)
	assert.Zero(t, out.Binding)
	assert.Equal(t, int64(10), left(tenants))
	assert.Equal(t, int64(2), left(address))
}

// batch is a limiter elsewhere that takes several claims in a single exchange, unless alone is set.
type batch struct {
	far
	alone     bool
	exchanges *int
}

func (b *batch) HoldAll(ctx context.Context, parts []limits.Part[string]) (grants []limits.Grant, ok bool, err error) {
	if b.alone {
		return nil, false, nil
	}
	*b.exchanges++
	allowed := true
	for _, p := range parts {
		g, err := p.Limiter.(*batch).far.Limiter.Hold(ctx, p.Call)
		if err != nil {
			return nil, true, err
		}
		grants, allowed = append(grants, g), allowed && g.Allowed
	}
	for i := range grants {
		if !allowed {
			if err := grants[i].Cancel(ctx); err != nil {
				return nil, true, err
			}
		}
	}
	return grants, true, nil
}

// If they cannot be asked at once, they are asked in turn.
//
// Promise: Claims of one Redis client take one exchange.
func TestClaimsElsewhereAreAskedAtOnce(t *testing.T) {
	for _, alone := range []bool{false, true} {
		exchanges := 0
		of := func(n int64) (*batch, *engine.Engine[string]) {
			e := window(t, n)
			return &batch{far: far{Limiter: e}, alone: alone, exchanges: &exchanges}, e
		}
		requests, left1 := of(9)
		tokens, left2 := of(5)
		address := window(t, 100)
		ask := func() limits.Outcome {
			out, err := limits.AskAll(t.Context(), 0, claim(requests, 1), claim(address, 1), claim(tokens, 3))
			require.NoError(t, err)
			return out
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

// The context has ended meanwhile, or giving back elsewhere panics.
func TestFarClaimsAreGivenBack(t *testing.T) {
	for name, c := range map[string]struct {
		n     int64 // of the second claim
		fails bool
	}{"admitted": {n: 1}, "refused": {n: 2}, "failed": {n: 1, fails: true}} {
		t.Run(name, func(t *testing.T) {
			address, tenants := window(t, 10), window(t, 10)
			ctx, cancel := context.WithCancel(t.Context())
			first, second := &far{Limiter: tenants}, &far{Limiter: window(t, 1)}
			second.on = func(ctx context.Context) error {
				cancel()
				if c.fails {
					return context.Cause(ctx)
				}
				return nil
			}
			out, err := limits.AskAll(ctx, 0, claim(address, 1), claim(first, 1), claim(second, c.n))
			assert.Equal(t, c.fails, err != nil)
			assert.Equal(t, name == "admitted", out.Allowed)
			assert.NoError(t, out.Cancel(t.Context()))
			assert.Equal(t, int64(10), left(address))
			assert.Equal(t, int64(10), left(tenants))
			assert.Equal(t, 2, first.trips)
		})
	}
	address := window(t, 10)
	assert.Panics(t, func() {
		_, _ = limits.AskAll(t.Context(), 0, claim(address, 1), claim(panicking{window(t, 10)}, 1), claim(&far{Limiter: window(t, 1)}, 2))
	})
	assert.Equal(t, int64(10), left(address), "whatever else panics")
}

type panicking struct{ limits.Limiter[string] }

func (panicking) Remote() bool { return true }

func (p panicking) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	g, err := p.Limiter.Hold(ctx, call)
	g.Held.Of = p
	return g, err
}

func (panicking) Settle(context.Context, limits.Held, int64) error { panic("cannot give back") }

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
		out, err := limits.AskAll(t.Context(), time.Minute, claim(tenant, 1), claim(free, 1), claim(slow, 1))
		require.NoError(t, err)
		require.True(t, out.Allowed)
		assert.Equal(t, time.Second, out.Waited)
		assert.Equal(t, int64(10), <-looked, "it holds nothing while it waits")
		assert.Equal(t, 1, tenant.trips)
		assert.Equal(t, int64(9), left(free))

		// The wait ends with the context, and takes nothing.
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		out, err = limits.AskAll(ctx, time.Minute, claim(free, 1), claim(slow, 1))
		assert.ErrorIs(t, err, context.Canceled)
		assert.False(t, out.Allowed)
		assert.Equal(t, 100*time.Millisecond, out.Waited)
		assert.Equal(t, int64(9), left(free))

		// Nor does it wait for a turn beyond its patience.
		began := time.Now()
		out, err = limits.AskAll(t.Context(), 10*time.Millisecond, claim(free, 1), claim(slow, 1))
		require.NoError(t, err)
		assert.False(t, out.Allowed)
		assert.Zero(t, time.Since(began))
	})
}

func TestAskAllOfQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := single.MustNew(policy.Queue(5, 1, time.Second))
		claims := []limits.Claim{claim(window(t, 10), 1), claim(limits.ForAnyKey[string](queue), 1)}
		for i, c := range []struct {
			patience, waited time.Duration
			allowed          bool
		}{{0, 0, true}, {0, 0, false}, {time.Minute, time.Second, true}} {
			began := time.Now()
			out, err := limits.AskAll(t.Context(), c.patience, claims...)
			require.NoError(t, err)
			assert.Equal(t, c.allowed, out.Allowed, i)
			assert.Equal(t, c.waited, time.Since(began), i)
		}
	})
}

func TestOutcomeSettles(t *testing.T) {
	a, b := window(t, 10), window(t, 10)
	out, err := limits.AskAll(t.Context(), 0, claim(a, 4), claim(b, 5))
	require.NoError(t, err)
	require.NoError(t, out.Settle(t.Context(), 1))
	require.NoError(t, out.Cancel(t.Context()))
	assert.Equal(t, []int64{9, 5}, []int64{left(a), left(b)})
	out, err = limits.AskAll(t.Context(), 0)
	require.NoError(t, err)
	assert.True(t, out.Allowed)
	assert.Equal(t, -1, out.Binding)
	assert.NoError(t, out.Cancel(t.Context()))
}

type failing struct {
	limits.Limiter[string]
	err error
}

func (f failing) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	return limits.Grant{Answer: limits.Answer{Decision: policy.Decision{Allowed: true}}, Held: limits.Held{Of: f}}, nil
}

func (f failing) Settle(context.Context, limits.Held, int64) error { return f.err }

func TestOutcomeTellsTheFirstFailure(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	e := window(t, 10)
	out, err := limits.AskAll(t.Context(), 0, claim(e, 1), claim(failing{e, first}, 1), claim(failing{e, second}, 1))
	require.NoError(t, err)
	assert.Equal(t, first, out.Cancel(t.Context()))
	assert.Equal(t, int64(10), left(e))
}

func TestAskAllOfZeroValues(t *testing.T) {
	e := window(t, 10)
	out, err := limits.AskAll(t.Context(), 0, claim(e, 1), claim(&engine.Tiered[string]{}, 1))
	require.NoError(t, err)
	assert.True(t, out.Allowed)
	out, err = limits.AskAll(t.Context(), 0, claim(e, 1), claim(limits.ForAnyKey[string](&single.Limiter{}), 1))
	require.NoError(t, err)
	assert.False(t, out.Allowed)
	assert.Equal(t, int64(9), left(e))
}

func TestSourceString(t *testing.T) {
	seen := map[string]bool{}
	for s := limits.SourceNone; s <= limits.SourceClosed; s++ {
		assert.False(t, seen[s.String()], s)
		seen[s.String()] = true
	}
	assert.Equal(t, "none", limits.Source(200).String())
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
				out, err := limits.AskAll(t.Context(), time.Minute, all...)
				require.NoError(t, err)
				require.True(t, out.Allowed)
			}
			s := e.Stats()
			assert.EqualValues(t, 3, s.Admitted)
			assert.Zero(t, s.Refused)
			out, err := limits.AskAll(t.Context(), time.Millisecond, all...)
			require.NoError(t, err)
			assert.False(t, out.Allowed)
			s = e.Stats()
			assert.EqualValues(t, 3, s.Admitted)
			assert.EqualValues(t, 1, s.Refused)
		})
	}
}

// scripted is a limiter elsewhere that gives its answers in turn, and repeats the last.
type scripted struct {
	limits.Limiter[string]
	answers []limits.Answer
}

func (s *scripted) Remote() bool { return true }

func (s *scripted) Hold(context.Context, limits.Call[string]) (g limits.Grant, err error) {
	g.Answer = s.answers[0]
	s.answers = s.answers[min(1, len(s.answers)-1):]
	return g, nil
}

func (s *scripted) HoldAll(ctx context.Context, parts []limits.Part[string]) (grants []limits.Grant, ok bool, err error) {
	for _, p := range parts {
		g, _ := p.Limiter.Hold(ctx, p.Call)
		grants = append(grants, g)
	}
	return grants, true, nil
}

// A claim that was not asked again has no answer.
func TestAnswersFromBeforeAWaitAreGone(t *testing.T) {
	basis := limits.NewProvenance(limits.SourceRedis, true, nil)
	no := func(retry time.Duration) limits.Answer {
		return limits.Answer{Decision: policy.Decision{Limit: 9, RetryAfter: retry}, Provenance: basis}
	}
	yes := limits.Answer{Decision: policy.Decision{Allowed: true, Limit: 9}, Provenance: basis}
	near := window(t, 1)
	first := &scripted{window(t, 9), []limits.Answer{no(time.Second)}}
	second := &scripted{window(t, 9), []limits.Answer{no(time.Minute), yes}}
	turn := &taking{second, func() { assert.True(t, near.Choke("key")) }}
	out, err := limits.AskAll(t.Context(), 2*time.Minute, claim(near, 1), claim(first, 1), claim(turn, 1))
	require.NoError(t, err)
	assert.False(t, out.Allowed)
	assert.Equal(t, limits.SourceNone, out.Answers[1].Source())
	assert.Equal(t, 0, out.Binding)
}

type taking struct {
	*scripted
	alone func()
}

func (l *taking) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	if call.Patience > time.Second {
		l.alone()
	}
	return l.scripted.Hold(ctx, call)
}

func TestReasonsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for r := limits.Admitted; r <= limits.Unavailable; r++ {
		assert.NotEmpty(t, r.String())
		seen[r.String()] = true
	}
	assert.Len(t, seen, int(limits.Unavailable)+1)
	assert.Equal(t, "unknown", limits.Reason(-1).String())
	assert.Equal(t, "unknown", (limits.Unavailable + 1).String())
}
