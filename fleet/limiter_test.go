package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Promise: A call on several keys takes all or nothing.
func TestTakeAllTakesAllOrNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		byAddress, byUser := twoOfOneRedis(t, redis, funnel(3, 1, time.Hour), window(5, time.Hour))
		all := func(claims ...Claim) limits.Outcome { return must.Get(TakeAll(t.Context(), claims...)) }
		out := all(byAddress.Claim("a", 2), byUser.Claim("u", 2))
		require.True(t, out.Allowed)
		require.Zero(t, out.RetryAfter)
		require.Equal(t, []int64{0, 1, 3}, []int64{int64(out.Binding), out.Answers[0].Remaining, out.Answers[1].Remaining})
		require.Equal(t, limits.SourceRedis, out.Answers[1].Source())
		out = all(byUser.Claim("u", 2), byAddress.Claim("a", 2))
		require.False(t, out.Allowed)
		require.Equal(t, 1, out.Binding)
		require.Equal(t, out.Answers[1].RetryAfter, out.RetryAfter)
		require.EqualValues(t, 3, take(t, byUser, "u", 0).Remaining, "the refused call took units")
		require.True(t, out.Answers[0].Allowed)

		// A Bursty's rest is of its stored units, not of its credit.
		bursts := open(t, via(byAddress, policy.Must(policy.Bursty(1, time.Hour, 9))))
		out = all(byAddress.Claim("d", 2), bursts.Claim("d", 2))
		require.EqualValues(t, 8, out.Answers[1].Remaining)
		require.Equal(t, 0, out.Binding, "the binding limit must be the one with 1 of 3 left, not 8 of 10")
		require.Equal(t, limits.Outcome{Allowed: true, Binding: -1, Answers: []limits.Answer{}}, all())
		require.Equal(t, policy.Never, all(byAddress.Claim("c", 4), byUser.Claim("c", 4)).RetryAfter)

		withEpoch := func(epoch time.Time) *Limiter {
			c := via(byAddress, byAddress.Limit())
			c.Epoch = epoch
			return open(t, c)
		}
		require.True(t, all(withEpoch(store.DefaultEpoch.In(time.FixedZone("", 3600))).Claim("z", 1), byAddress.Claim("z", 1)).Allowed)
		old, other := withEpoch(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)), open(t, on(redis, byAddress.Limit()))
		for _, apart := range [][2]*Limiter{{byAddress, old}, {old, byAddress}, {byUser, other}} {
			_, err := TakeAll(t.Context(), apart[0].Claim("b", 1), apart[1].Claim("b", 1))
			require.ErrorIs(t, err, ErrDifferentClients)
			require.ErrorContains(t, err, "Epoch")
			require.Zero(t, take(t, apart[1], "b", 0).ResetAfter)
		}
		_, err := TakeAll(t.Context(), byUser.Claim(strings.Repeat("x", 1<<16+1), 1))
		require.ErrorIs(t, err, ErrKeyTooLong)
	})
}

// An error counts for the breaker if Redis may be away, and units are charged unless Redis said no.
func TestErrorsAreToldApart(t *testing.T) {
	for _, err := range []error{store.ErrAsking, fmt.Errorf("%w: %w", store.ErrAsking, context.DeadlineExceeded)} {
		require.True(t, countsAsFailure(err), err)
	}
	for _, err := range []error{
		errors.New("any"), errConnecting, &policy.FieldError{}, ErrKeyTooLong, ErrCrossSlot, ErrForeignValue,
		store.ErrDisagrees, store.ErrContended, store.ErrUnchecked, ErrFull, ErrReadOnly, ErrEvictionPolicy, store.ErrTooOld,
		store.ErrNoReplicas, store.ErrUnsaved, store.ErrNoRoll,
	} {
		require.False(t, countsAsFailure(err), err)
	}
	for _, cause := range []error{ErrBreakerOpen, errConnecting, ErrForeignValue, ErrReadOnly, ErrFull} {
		require.True(t, notExecuted(asOutage(cause)), cause)
	}
	for _, cause := range []error{ErrBudget, store.ErrAsking, store.ErrDisagrees} {
		require.False(t, notExecuted(asOutage(cause)), cause)
	}
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := open(t, on(redis, funnel(10, 1, time.Hour)))
		// The share knows the key then.
		take(t, l, "a", 0)
		passWithoutRedis(l, "a", 4)
		redis.SetUnfit(fmt.Errorf("%w: %w", store.ErrDenied, &rueidis.RedisError{}))
		// The last calls find the breaker open.
		for i := range 2 * failures {
			a := must.Get(l.Refund(t.Context(), "a", 1))
			require.ErrorIs(t, a.Err(), ErrOutage)
			require.True(t, a.Allowed)
			require.EqualValues(t, min(7+i, 10), a.Remaining)
		}
		k := keeper{Limiter: l}
		require.Equal(t, fate{stop: true}, k.charge(l.own.Load(), []share.Debt{{Name: store.Tail("a"), Units: 1}})[0])
	})
}

// A cancelled call is no outage, even if cancelled because of an outage that was reported.
func TestContextOfTheCaller(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, funnel(2, 1, time.Hour))
		down, l := open(t, c), open(t, on(storetest.New(), c.Policy))
		r := must.Get(down.Reserve(t.Context(), "a", 1, 0))
		redis.Set(gone)
		_, reset := down.Reset(t.Context(), "a")
		outages := []error{reset, r.Cancel(t.Context()), take(t, down, "a", 1).Err(), down.Health()}
		for _, cause := range outages {
			require.ErrorIs(t, cause, ErrOutage)
			require.False(t, errors.As(cause, new(noAnswer)), "the internal error noAnswer got out: %v", cause)
		}
		for _, cause := range append(outages, errors.New("mine")) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(cause)
			_, err := l.Take(ctx, "a", 1)
			require.Equal(t, cause, err)
			_, err = TakeAll(ctx, l.Claim("a", 1))
			require.Equal(t, cause, err)
			_, err = l.Reserve(ctx, "a", 1, 0)
			require.Equal(t, cause, err)
			_, err = l.Refund(ctx, "a", 1)
			require.Equal(t, cause, err)
			_, err = l.Reset(ctx, "a")
			require.Equal(t, cause, err)
			require.False(t, l.Choke(ctx, "a"))
		}
		require.EqualValues(t, 2, take(t, l, "a", 0).Remaining)
		require.Zero(t, l.Stats().Local)
		_, err := l.Refund(t.Context(), "a", -1<<50)
		require.ErrorAs(t, err, new(*policy.FieldError))
	})
}

func TestCloseEndsEveryCall(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		for _, f := range fallbacks {
			c := on(redis, funnel(2, 1, time.Hour))
			c.Outage = f.outage
			l := must.Get(New(c))
			ended := make(chan error, 2)
			require.NoError(t, l.Wait(t.Context(), "a", 2))
			require.NoError(t, l.Block(t.Context(), "blocked", time.Hour))
			for _, key := range []string{"a", "blocked"} {
				go func() { ended <- l.Wait(context.Background(), key, 1) }()
			}
			eventually(t, func() bool { return l.Stats().Waiting == 2 }, "they wait")
			require.NoError(t, l.Close())
			require.NoError(t, l.Close())
			_, take := l.Take(t.Context(), "a", 1)
			_, all := TakeAll(t.Context(), l.Claim("a", 1))
			_, ask := l.Admit(t.Context(), "a", 1)
			_, hold := l.Hold(t.Context(), limits.Call[string]{Key: "a", N: 1})
			for _, err := range []error{<-ended, <-ended, l.Health(), take, all, ask, hold} {
				require.ErrorIs(t, err, engine.ErrClosed)
			}
			require.False(t, l.Choke(t.Context(), "a"))
			require.Equal(t, 1, open(t, c).Stats().Servers, "the closed server is still counted")
		}
	})
}

// Promise: A call that finds the limiter closed is an error.
func TestCallFailsIfClosedMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		down := errors.New("down")
		failure := noAnswer{cause: down}
		for _, outage := range []Fallback{FallbackShare, FallbackOpen, FallbackClosed} {
			c := on(redis, funnel(2, 1, time.Hour))
			c.Outage = outage
			l, other := open(t, c), open(t, c)
			all := func(limiters ...*Limiter) error {
				var parts []part
				for _, l := range limiters {
					parts = append(parts, part{l, ask{terms: l.own.Load(), key: "a", n: 1}})
				}
				_, err := withoutTogether(parts, failure)
				return err
			}
			failed := ask{terms: l.own.Load(), key: "a", n: 1, why: failure}
			take(t, l, "a", 0)
			require.NoError(t, all(other, l))
			a := must.Get(l.giveBack(t.Context(), failed))
			require.ErrorIs(t, a.Err(), down)

			require.NoError(t, l.Close())
			got, err := l.take(t.Context(), failed)
			require.ErrorIs(t, err, engine.ErrClosed)
			require.Zero(t, got)
			a, err = l.giveBack(t.Context(), failed)
			require.ErrorIs(t, err, engine.ErrClosed)
			require.Zero(t, a)
			require.ErrorIs(t, all(other, l), engine.ErrClosed)
			require.Zero(t, l.Stats().Admitted+l.Stats().Refused)
			// All fallbacks let the call pass.
			if outage == FallbackOpen {
				c.Outage = FallbackShare
				share := open(t, c)
				take(t, share, "a", 0)
				require.ErrorIs(t, all(share, l), engine.ErrClosed)
				require.Zero(t, share.local.Peek("a", 0).ResetAfter, "the share's units did not come back")
			}
		}
	})
}

// A limiter closes its own client, and no client of the caller.
func TestClientIsClosed(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	connections := func() int {
		reply := redis.Do(t, "CLIENT", "LIST", "TYPE", "normal")
		// The asking client is listed, too.
		return strings.Count(must.Get(reply.ToString()), "\n") - 1
	}
	c := at(redis.Addr(), funnel(2, 1, time.Hour))
	for range 2 {
		l := must.Get(New(c))
		require.Equal(t, limits.SourceRedis, take(t, l, "a", 1).Source())
		require.NotZero(t, connections())
		require.NoError(t, l.Close())
		if c.Client == nil {
			require.Zero(t, connections())
			c.Client, c.Redis = redis.Client(t), rueidis.ClientOption{}
		}
	}
	require.NoError(t, c.Client.Do(t.Context(), c.Client.B().Ping().Build()).Error())
}

func addresses(all ...string) func(*Config) {
	return func(c *Config) { c.Redis.InitAddress = all }
}

// Promise: `fleet.New` refuses an address that is no host and port, without its password in the error.
func TestNewNamesTheBadField(t *testing.T) {
	good := at(shared.Addr(), funnel(1, 1, time.Hour))
	penalty := engine.Penalty{Refusals: 3, Within: time.Minute, For: time.Minute}
	for _, c := range []struct {
		change func(*Config)
		field  string
	}{
		{func(c *Config) { c.Redis = rueidis.ClientOption{} }, "Redis"},
		{func(c *Config) { c.Client = shared.Client(t) }, "Redis"},
		{addresses("redis://localhost:6379"), "Redis.InitAddress[0]"},
		{addresses(" localhost:6379"), "Redis.InitAddress[0]"},
		{addresses("user:secret@localhost:6379"), "Redis.InitAddress[0]"},
		{addresses("user@localhost:6379"), "Redis.InitAddress[0]"},
		{addresses("localhost:6379", "localhost"), "Redis.InitAddress[1]"},
		{addresses("localhost:"), "Redis.InitAddress[0]"},
		{addresses("localhost:0"), "Redis.InitAddress[0]"},
		{addresses("localhost:6379/1"), "Redis.InitAddress[0]"},
		{addresses("localhost:65536"), "Redis.InitAddress[0]"},
		{addresses(""), "Redis.InitAddress[0]"},
		{func(c *Config) { c.Name = "" }, "Name"},
		{func(c *Config) { c.Name = "a{b" }, "Name"},
		{func(c *Config) { c.Name = "a b" }, "Name"},
		{func(c *Config) { c.Name = strings.Repeat("x", 65) }, "Name"},
		{func(c *Config) { c.Tag = "}" }, "Tag"},
		{func(c *Config) { c.Policy = nil }, "Policy"},
		{func(c *Config) { c.Policy = policy.Must(policy.AtMost(1, time.Second)) }, "Policy"},
		{func(c *Config) { c.Policy = policy.Must(policy.WarmingUp(1, time.Second, time.Second, 3)) }, "Policy"},
		{func(c *Config) { c.Policy = policy.Must(policy.AlignedWindow(1, time.Second+1)) }, "Policy"},
		{func(c *Config) { c.Policy = policy.Must(policy.AlignedWindow(1<<53, 366*24*time.Hour)) }, "Policy"},
		{func(c *Config) {
			c.Outage = FallbackShare
			c.Policy, c.StateFile = policy.Must(policy.AlignedWindow(1, time.Second)), filepath.Join(t.TempDir(), "state")
		}, "StateFile"},
		{func(c *Config) { c.Policy = policy.Must(policy.CalendarWindow(1, policy.Month, "UTC")) }, "Policy"},
		{func(c *Config) { c.Mode = 7 }, "Mode"},
		{func(c *Config) { c.Mode = Leased }, "Policy"},
		{func(c *Config) { c.Mode, c.Policy = Leased, policy.Must(policy.Queue(4, 1, time.Hour)) }, "Policy"},
		{func(c *Config) { c.Mode, c.Policy = Leased, policy.Must(policy.Bursty(1, time.Second, 3)) }, "Policy"},
		{func(c *Config) { c.Mode, c.Policy = Leased, policy.Must(SlidingLog(5, time.Hour)) }, "Policy"},
		{func(c *Config) { c.Mode, c.Policy, c.Term = Leased, funnel(100, 10, time.Second), time.Millisecond }, "Term"},
		{func(c *Config) {
			c.Mode, c.Policy, c.PolicyFor = Leased, funnel(100, 1, time.Second), func(string) policy.Policy { return nil }
		}, "PolicyFor"},
		{func(c *Config) { c.Mode, c.Policy, c.Penalty = Leased, funnel(1000, 1000, time.Second), penalty }, "Penalty"},
		{func(c *Config) { c.Penalty = penalty; c.Penalty.Refusals = 1025 }, "Penalty.Refusals"},
		{func(c *Config) { c.Penalty = penalty; c.Penalty.Within = -1 }, "Penalty.Within"},
		{func(c *Config) { c.Penalty = penalty; c.Penalty.For = 0 }, "Penalty.For"},
		{func(c *Config) { c.Penalty = penalty; c.Penalty.Max = time.Second }, "Penalty.Max"},
		{func(c *Config) { c.Penalty = penalty; c.Penalty.Forget = time.Second }, "Penalty.Forget"},
		{func(c *Config) { c.Term = -1 }, "Term"},
		{func(c *Config) { c.Budget = -1 }, "Budget"},
		{func(c *Config) { c.Budget = 1 << 61 }, "Budget"},
		{func(c *Config) { c.Epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }, "Epoch"},
		{func(c *Config) {
			c.Epoch, c.Policy = time.Date(2012, 1, 1, 0, 0, 0, 0, time.UTC), policy.Must(policy.FixedWindow(1, time.Second))
		}, "Epoch"},
		{func(c *Config) { c.Outage = 7 }, "Outage"},
		{func(c *Config) { c.Servers = -1 }, "Servers"},
		{func(c *Config) { c.MaxKeys = -1 }, "MaxKeys"},
		{func(c *Config) { c.MaxWaiting = -1 }, "MaxWaiting"},
		{func(c *Config) { c.MaxWaitingTotal = -1 }, "MaxWaitingTotal"},
		{func(c *Config) { c.Epoch = time.Now().Add(time.Hour) }, "Epoch"},
		{func(c *Config) { c.Epoch = time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC) }, "Epoch"},
	} {
		bad := good
		c.change(&bad)
		_, err := New(bad)
		var field *policy.FieldError
		require.ErrorAs(t, err, &field)
		assert.Equal(t, "fleet.Config", field.Of)
		assert.Equal(t, c.field, field.Field, err)
		assert.NotEmpty(t, field.Want)
	}
	bad := good
	addresses("rediss://anna:secret@redis:6379/0")(&bad)
	_, err := New(bad)
	require.EqualError(t, err, `ral: fleet.Config: Redis.InitAddress[0] is "...@redis:6379/0", want host:port, such as localhost:6379; rueidis.ParseURL makes the options of a URL`)
	// A function may dial what package net does not.
	bad.Redis = must.Get(rueidis.ParseURL("unix:///does/not/exist"))
	require.NoError(t, must.Get(New(bad)).Close())
	_, err = SlidingLog(0, time.Second)
	require.ErrorContains(t, err, "SlidingLog: limit is 0")
}

func TestSourcesAndEventsHaveNames(t *testing.T) {
	require.Equal(t, "none exact leased local open closed none", fmt.Sprint(limits.SourceNone, limits.SourceRedis, limits.SourceLease, limits.SourceShare, limits.SourceOpen, limits.SourceClosed, limits.Source(9)))
	require.Equal(t, "outage began", OutageBegan.String())
}

func TestClaimsOfDifferentUnits(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, funnel(10_000, 1, time.Hour))
		c.Servers = 1
		tokens := open(t, c)
		c = via(tokens, policy.Must(policy.FixedWindow(5, time.Hour)))
		c.Servers = 1
		requests := open(t, c)
		ask := func(want bool, units ...int64) limits.Outcome {
			t.Helper()
			claims := []Claim{requests.Claim("a", 1)}
			for _, n := range units {
				claims = append(claims, tokens.Claim("a", n))
			}
			out := must.Get(TakeAll(t.Context(), claims...))
			require.Equal(t, want, out.Allowed, "%+v", out)
			return out
		}
		out := ask(true, 4000)
		require.EqualValues(t, 6000, out.Answers[1].Remaining)
		require.EqualValues(t, 4, out.Answers[0].Remaining)
		out = ask(false, 6001)
		require.Equal(t, 1, out.Binding)
		require.Less(t, out.RetryAfter, policy.Never)
		require.Equal(t, policy.Never, ask(false, math.MaxInt64, math.MaxInt64).RetryAfter)
		require.EqualValues(t, 4000, ask(true, 1000, 1000, 0).Answers[1].Remaining)

		redis.Set(gone)
		eventually(t, func() bool { return tokens.Health() != nil && requests.Health() != nil }, "the outage is noticed")
		out = ask(false, 3000, 3000)
		require.Equal(t, out.Answers[1], out.Answers[2])
		require.Less(t, out.RetryAfter, policy.Never)
		out = ask(true, 3900, 50, 0)
		require.Equal(t, limits.SourceShare, out.Answers[1].Source())
		require.EqualValues(t, 2, out.Answers[0].Remaining)
		require.Equal(t, policy.Never, ask(false, 1, -1).RetryAfter)
	})
}

// Promise: A limiter `Via` another connects with it.
func TestLimiterViaAnotherConnectsWithIt(t *testing.T) {
	inBubbleOf(t, shared, func(t *testing.T, line *redistest.Line) {
		line.Set(gone)
		c := over(line, funnel(10, 1, time.Hour))
		c.Servers = 1
		all := []*Limiter{launch(t, c)}
		for range 2 {
			c := via(all[len(all)-1], window(5, time.Hour))
			c.clock, c.Servers = now, 1
			all = append(all, launch(t, c))
		}
		for range 2 {
			for _, l := range all {
				eventually(t, func() bool { return errors.Is(l.Health(), ErrOutage) }, "Redis is away")
			}
			line.Set(well)
			for _, l := range all {
				eventually(t, func() bool { return l.Health() == nil }, "Redis is back")
			}
			out := must.Get(TakeAll(t.Context(), all[0].Claim("a", 1), all[1].Claim("a", 1), all[2].Claim("a", 1)))
			require.True(t, out.Allowed)
			require.Equal(t, limits.SourceRedis, out.Answers[2].Source())
			line.Set(gone)
		}
		for _, bad := range []Config{{Redis: c.Redis}, {Client: all[0].remote.Load().client}} {
			bad.Name, bad.Policy, bad.Via = name(), c.Policy, all[0]
			_, err := New(bad)
			require.ErrorContains(t, err, "Via")
		}
	})
}

// Calls of any size at any time, as of an engine. Then 8 callers take up to 7 units at once.
// Promise: `TakeUpTo` takes what an engine's does, and callers at once share what remains to the unit.
func TestTakeUpToTakesWhatAnEngineDoes(t *testing.T) {
	for i, p := range []policy.Policy{funnel(5, 2, time.Second), window(5, 2*time.Second)} {
		inBubble(t, func(t *testing.T, redis *storetest.Redis) {
			r := rand.New(rand.NewPCG(uint64(i), 5))
			var clock atomic.Int64
			// The store is full.
			clock.Store(int64(100 * time.Hour / time.Microsecond))
			c := on(redis, p)
			c.clock = clock.Load
			l := open(t, c)
			e := must.Get(engine.New[string](engine.Config{Policy: p, Clock: func() policy.Instant { return policy.Instant(clock.Load() * 1000) }}))
			defer e.Close()
			for range 300 {
				clock.Add(r.Int64N(1e6))
				n := r.Int64N(9) - 1
				units, a, err := l.TakeUpTo(t.Context(), "a", n)
				require.NoError(t, err)
				want, d := e.TakeUpTo("a", n)
				require.Equal(t, want, units, "%v, %d", p, n)
				require.Equal(t, []any{d.Allowed, d.Remaining, d.Limit}, []any{a.Allowed, a.Remaining, a.Limit}, "%v, %d", p, n)
			}
			remain := must.Get(l.Peek(t.Context(), "b", 0)).Remaining
			var sum atomic.Int64
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					units, _, err := l.TakeUpTo(t.Context(), "b", 7)
					require.NoError(t, err)
					sum.Add(units)
				})
			}
			all.Wait()
			require.Equal(t, remain, sum.Load(), "%v", p)
			redis.Set(gone)
			units, a, err := l.TakeUpTo(t.Context(), "b", 7)
			require.NoError(t, err)
			require.Zero(t, units)
			require.Equal(t, limits.SourceShare, a.Source())
			_, _, err = l.TakeUpTo(t.Context(), strings.Repeat("x", 1<<16+1), 7)
			require.ErrorIs(t, err, ErrKeyTooLong)
		})
	}
}
