package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func TestRefundAndResetTellTheirCaller(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := open(t, on(redis, funnel(3, 1, time.Hour)))
		ctx := t.Context()
		require.True(t, take(t, l, "a", 2).Allowed)
		_, err := l.Refund(ctx, "a", -1<<50)
		var bad *policy.FieldError
		require.ErrorAs(t, err, &bad)
		a, err := l.Refund(ctx, "a", 0)
		require.NoError(t, err)
		require.EqualValues(t, 1, a.Remaining)
		for _, there := range []bool{true, false} {
			used, err := l.Reset(ctx, "a")
			require.NoError(t, err)
			require.Equal(t, there, used)
		}
		require.EqualValues(t, 2, take(t, l, "a", 1).Remaining)
	})
}

// Wait is Acquire without a bound: TestAcquire has its errors.
func TestWait(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := open(t, on(redis, funnel(1, 1, 30*time.Millisecond)))
		done := make(chan error)
		begun := time.Now()
		for range 4 {
			go func() { done <- l.Wait(t.Context(), "a", 1) }()
		}
		for range 4 {
			require.NoError(t, <-done)
		}
		require.InDelta(t, 90*time.Millisecond, time.Since(begun), float64(10*time.Microsecond), "three intervals, and what Redis rounds")
		require.ErrorIs(t, l.Wait(t.Context(), "a", 2), engine.ErrNever)
		require.NoError(t, l.Wait(t.Context(), "a", 0))

		slow := open(t, on(redis, funnel(1, 1, time.Hour)))
		require.NoError(t, slow.Wait(t.Context(), "a", 1))
		mine := errors.New("mine")
		gone, leave := context.WithCancelCause(t.Context())
		go func() { done <- slow.Wait(gone, "a", 1) }()
		eventually(t, func() bool { return take(t, slow, "a", 0).ResetAfter > 90*time.Minute }, "it has a turn")
		leave(mine)
		err := <-done
		require.ErrorIs(t, err, engine.ErrCancelled)
		require.ErrorIs(t, err, mine)
		require.LessOrEqual(t, take(t, slow, "a", 0).ResetAfter, time.Hour)
	})
}

// Promise: A call on several keys takes all or nothing.
func TestTakeAll(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		byAddress, byUser := twoOfOneRedis(t, redis, funnel(3, 1, time.Hour), policy.Must(policy.FixedWindow(5, time.Hour)))
		ctx := t.Context()

		out, err := TakeAll(ctx, byAddress.Claim("a", 2), byUser.Claim("u", 2))
		require.NoError(t, err)
		require.True(t, out.Allowed)
		require.Zero(t, out.RetryAfter)
		require.Equal(t, 0, out.Binding)
		require.EqualValues(t, 1, out.Answers[0].Remaining)
		require.EqualValues(t, 3, out.Answers[1].Remaining)
		require.Equal(t, limits.SourceRedis, out.Answers[1].Source())

		out, err = TakeAll(ctx, byUser.Claim("u", 2), byAddress.Claim("a", 2))
		require.NoError(t, err)
		require.False(t, out.Allowed)
		require.Equal(t, 1, out.Binding)
		require.Equal(t, out.Answers[1].RetryAfter, out.RetryAfter)
		require.EqualValues(t, 3, take(t, byUser, "u", 0).Remaining, "nothing was taken")
		require.True(t, out.Answers[0].Allowed)

		// A Bursty's rest is of its stored units, not of its credit.
		bursts := open(t, via(byAddress, policy.Must(policy.Bursty(1, time.Hour, 9))))
		out, err = TakeAll(ctx, byAddress.Claim("d", 2), bursts.Claim("d", 2))
		require.NoError(t, err)
		require.EqualValues(t, 8, out.Answers[1].Remaining)
		require.Equal(t, 0, out.Binding, "1 of 3 is less than 8 of 10")

		out, err = TakeAll(ctx)
		require.NoError(t, err)
		require.Equal(t, limits.Outcome{Allowed: true, Binding: -1, Answers: []limits.Answer{}}, out)
		out, err = TakeAll(ctx, byAddress.Claim("c", 4), byUser.Claim("c", 4))
		require.NoError(t, err)
		require.Equal(t, policy.Never, out.RetryAfter)

		other := open(t, on(redis, funnel(3, 1, time.Hour)))
		_, err = TakeAll(ctx, byUser.Claim("u", 1), other.Claim("a", 1))
		require.ErrorIs(t, err, ErrDifferentClients)
		_, err = TakeAll(ctx, byUser.Claim(strings.Repeat("x", 1<<16+1), 1))
		require.ErrorIs(t, err, ErrKeyTooLong)
	})
}

func TestTakeAllOfOneEpoch(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		young := open(t, on(redis, funnel(3, 1, time.Hour)))
		with := func(epoch time.Time) *Limiter {
			c := via(young, young.Limit())
			c.Epoch = epoch
			return open(t, c)
		}
		old := with(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
		same := with(store.DefaultEpoch.In(time.FixedZone("", 3600)))
		take(t, young, "a", 3)
		for _, claims := range [][]Claim{{young.Claim("a", 1), old.Claim("a", 1)}, {old.Claim("a", 1), young.Claim("a", 1)}} {
			_, err := TakeAll(t.Context(), claims...)
			require.ErrorIs(t, err, ErrDifferentClients)
			require.ErrorContains(t, err, "Epoch")
		}
		require.EqualValues(t, 3, take(t, old, "a", 0).Remaining)
		out, err := TakeAll(t.Context(), same.Claim("a", 1), young.Claim("a", 1))
		require.NoError(t, err)
		require.True(t, out.Answers[0].Allowed)
		require.False(t, out.Allowed)
	})
}

func TestErrorsThatCountAsFailures(t *testing.T) {
	client := shared.Client(t)
	s := store.New(client, store.Options{Name: name()})
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0)) // wall: it has passed
	defer cancel()
	_, err := s.Heartbeat(late, store.Beat{ID: "a", TTL: time.Second})
	require.True(t, countsAsFailure(err), "no answer in time")
	client.Close()
	_, err = s.Heartbeat(t.Context(), store.Beat{ID: "a", TTL: time.Second})
	require.True(t, countsAsFailure(err), "no connection")
	for _, err := range []error{
		errors.New("any"), errConnecting, &policy.FieldError{}, ErrKeyTooLong, ErrCrossSlot, ErrForeignValue,
		store.ErrDisagrees, store.ErrContended, store.ErrUnchecked, ErrFull, ErrReadOnly, ErrEvictionPolicy, store.ErrTooOld,
		store.ErrNoReplicas, store.ErrUnsaved, store.ErrNoRoll,
	} {
		require.False(t, countsAsFailure(err), err)
	}
}

func TestContextOfTheCaller(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := open(t, on(redis, funnel(2, 1, time.Hour)))
		mine := errors.New("mine")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(mine)
		_, err := l.Take(ctx, "a", 1)
		require.Equal(t, mine, err)
		_, err = l.Reserve(ctx, "a", 1, 0)
		require.Equal(t, mine, err)
		_, err = l.Refund(ctx, "a", 1)
		require.Equal(t, mine, err)
		_, err = l.Reset(ctx, "a")
		require.Equal(t, mine, err)
		require.False(t, l.Choke(ctx, "a"))
		require.EqualValues(t, 2, take(t, l, "a", 0).Remaining)
	})
}

// A cancelled call is no outage, even if cancelled because of an outage that was reported.
func TestOutageAsTheCauseOfAContext(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, funnel(2, 1, time.Hour))
		down, l := open(t, c), open(t, on(storetest.New(), c.Policy))
		r, err := down.Reserve(t.Context(), "a", 1, 0)
		require.NoError(t, err)
		redis.Set(gone)
		_, reset := down.Reset(t.Context(), "a")
		for _, cause := range []error{reset, r.Cancel(t.Context()), take(t, down, "a", 1).Err(), down.Health()} {
			require.ErrorIs(t, cause, ErrOutage)
			require.False(t, errors.As(cause, new(noAnswer)), "it stays inside: %v", cause)
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(cause)
			_, err := l.Take(ctx, "a", 1)
			require.Equal(t, cause, err)
			_, err = TakeAll(ctx, l.Claim("a", 1))
			require.Equal(t, cause, err)
		}
		require.Zero(t, l.Stats().Local)
	})
}

func TestClose(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		for _, outage := range []Fallback{FallbackShare, FallbackOpen, FallbackClosed} {
			c := on(redis, funnel(2, 1, time.Hour))
			c.Outage = outage
			l, err := New(c)
			require.NoError(t, err)
			slow := make(chan error)
			go func() {
				_ = l.Wait(t.Context(), "a", 2)
				slow <- l.Wait(t.Context(), "a", 1)
			}()
			eventually(t, func() bool { return take(t, l, "a", 0).ResetAfter > 150*time.Minute }, "it waits")
			require.NoError(t, l.Close())
			require.NoError(t, l.Close())
			require.ErrorIs(t, <-slow, engine.ErrClosed)
			require.ErrorIs(t, l.Health(), engine.ErrClosed)
			_, err = l.Take(t.Context(), "a", 1)
			require.ErrorIs(t, err, engine.ErrClosed)
			_, err = TakeAll(t.Context(), l.Claim("a", 1))
			require.ErrorIs(t, err, engine.ErrClosed)
			require.False(t, l.Choke(t.Context(), "a"))
			_, err = l.Ask(t.Context(), "a", 1)
			require.ErrorIs(t, err, engine.ErrClosed)
			_, err = l.Hold(t.Context(), limits.Call[string]{Key: "a", N: 1})
			require.ErrorIs(t, err, engine.ErrClosed)
			require.Equal(t, 1, open(t, c).Stats().Servers, "the other has left")
		}
	})
}

func TestClosedMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		down := errors.New("down")
		failure := noAnswer{cause: down}
		for _, outage := range []Fallback{FallbackShare, FallbackOpen, FallbackClosed} {
			c := on(redis, funnel(2, 1, time.Hour))
			c.Outage = outage
			l, other := open(t, c), open(t, c)
			ask := func(limiters ...*Limiter) error {
				var parts []part
				for _, l := range limiters {
					parts = append(parts, part{l.Claim("a", 1), l.own.Load()})
				}
				return takeAllWithout(parts, make([]taken, len(parts)), failure)
			}
			take(t, l, "a", 0)
			require.NoError(t, ask(other, l))
			a, err := l.refundWithout(l.own.Load(), "a", 1, failure)
			require.NoError(t, err)
			require.ErrorIs(t, a.Err(), down)

			require.NoError(t, l.Close())
			got, err := l.takeWithout(l.own.Load(), "a", 1, 0, failure)
			require.ErrorIs(t, err, engine.ErrClosed)
			require.Zero(t, got)
			a, err = l.refundWithout(l.own.Load(), "a", 1, failure)
			require.ErrorIs(t, err, engine.ErrClosed)
			require.Zero(t, a)
			require.ErrorIs(t, ask(other, l), engine.ErrClosed)
			require.Zero(t, l.Stats().Admitted+l.Stats().Refused)
			if outage == FallbackOpen { // all let it pass
				c.Outage = FallbackShare
				share := open(t, c)
				take(t, share, "a", 0)
				require.ErrorIs(t, ask(share, l), engine.ErrClosed)
				require.Zero(t, share.local.Peek("a", 0).ResetAfter, "it comes back")
			}
		}
	})
}

func TestCallersClientStaysOpen(t *testing.T) {
	c := at(shared.Addr(), funnel(2, 1, time.Hour))
	c.Client, c.Redis = shared.Client(t), rueidis.ClientOption{}
	l, err := New(c)
	require.NoError(t, err)
	require.Equal(t, limits.SourceRedis, take(t, l, "a", 1).Source())
	require.NoError(t, l.Close())
	require.NoError(t, c.Client.Do(t.Context(), c.Client.B().Ping().Build()).Error())
}

func TestOwnClientIsClosed(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	l, err := New(at(redis.Addr(), funnel(2, 1, time.Hour)))
	require.NoError(t, err)
	require.Equal(t, limits.SourceRedis, take(t, l, "a", 1).Source())
	connections := func() int {
		reply := redis.Do(t, "CLIENT", "LIST", "TYPE", "normal")
		list, err := reply.ToString()
		require.NoError(t, err)
		return strings.Count(list, "\n")
	}
	require.Equal(t, 2, connections(), "the limiter's and the one that asks")
	require.NoError(t, l.Close())
	require.Equal(t, 1, connections())
}

func TestConfiguration(t *testing.T) {
	good := at(shared.Addr(), funnel(2, 1, time.Hour))
	for _, c := range []struct {
		change func(*Config)
		field  string
	}{
		{func(c *Config) { c.Redis = rueidis.ClientOption{} }, "Redis"},
		{func(c *Config) { c.Client = shared.Client(t) }, "Redis"},
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
	_, err := SlidingLog(0, time.Second)
	require.ErrorContains(t, err, "SlidingLog: limit is 0")
}

func TestWords(t *testing.T) {
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
			out, err := TakeAll(t.Context(), claims...)
			require.NoError(t, err)
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

func TestViaAnotherLimiter(t *testing.T) {
	inBubbleOf(t, shared, func(t *testing.T, line *redistest.Line) {
		line.Set(gone)
		open := func(c Config) *Limiter {
			l, err := New(c)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, l.Close()) })
			return l
		}
		c := over(line, funnel(10, 1, time.Hour))
		c.Servers = 1
		first := open(c)
		c = over(line, policy.Must(policy.FixedWindow(5, time.Hour)))
		c.Redis, c.Via, c.Servers = rueidis.ClientOption{}, first, 1
		second := open(c)
		c.Name, c.Via = name(), second
		third := open(c)
		for range 2 {
			for _, l := range []*Limiter{first, second, third} {
				eventually(t, func() bool { return errors.Is(l.Health(), ErrOutage) }, "Redis is away")
			}
			line.Set(well)
			for _, l := range []*Limiter{first, second, third} {
				eventually(t, func() bool { return l.Health() == nil }, "Redis is back")
			}
			out, err := TakeAll(t.Context(), first.Claim("a", 1), second.Claim("a", 1), third.Claim("a", 1))
			require.NoError(t, err)
			require.True(t, out.Allowed)
			require.Equal(t, limits.SourceRedis, out.Answers[2].Source())
			line.Set(gone)
		}
		for _, bad := range []func(c *Config){
			func(c *Config) { c.Redis.InitAddress = []string{shared.Addr()} },
			func(c *Config) { c.Client = first.remote.Load().client },
		} {
			c := c
			bad(&c)
			_, err := New(c)
			require.ErrorContains(t, err, "Via")
		}
	})
}
