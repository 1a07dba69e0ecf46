package engine

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/limits"
)

// Promise: Calls on known keys allocate nothing.
func TestKnownKeyAllocatesNothing(t *testing.T) {
	type pair struct {
		tenant int
		user   string
	}
	allocatesNothing(t, "client-1", "client-2", "client-3")
	allocatesNothing(t, 1, 2, 3)
	allocatesNothing(t, netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.1"), netip.Addr{})
	allocatesNothing(t, pair{1, "a"}, pair{2, "b"}, pair{3, "c"})
}

func allocatesNothing[K comparable](t *testing.T, passing, refused, blocked K) {
	t.Helper()
	e := open[K](t, Config{
		Policy: funnel(100_000, 1, time.Hour), OpenTimeout: time.Minute,
		Penalty: Penalty{Refusals: 1024, Within: time.Hour, For: 1, Forget: time.Hour},
	})
	other := funnel(150_000, 1, time.Hour)
	var held [10]Reservation[K]
	next := 0
	require.True(t, e.Choke(passing))
	require.True(t, e.Take(refused, 100_000).Allowed)
	require.NoError(t, e.Block(blocked, time.Hour))
	settled(t, e)
	settled(t, e.blocks.Load().Engine)
	must.Await(t, func() bool { return e.Peek(refused, 0).Remaining == 0 }, "it is at its limit")
	var l limits.Limiter[K] = e
	ask := func(key K) func() { return func() { _, _ = l.Admit(t.Context(), key, 1) } }
	hold := func(patience time.Duration) func() {
		return func() {
			g, _ := l.Hold(t.Context(), limits.Call[K]{Key: passing, N: 3, Patience: patience})
			_ = g.Settle(t.Context(), 1)
		}
	}
	// The race detector allocates in calls through an interface.
	if testenv.Race {
		ask, hold = func(K) func() { return func() {} }, func(time.Duration) func() { return func() {} }
	}
	for name, call := range map[string]func(){
		"Admit, admitted": ask(passing), "Admit, refused": ask(refused),
		"Hold and Settle": hold(0), "Hold, may wait": hold(time.Second),
		"ChangeLimit": func() {
			_ = e.ChangeLimit(passing, nil, other)
			_ = e.ChangeLimit(passing, other, nil)
		},
		"Choke, blocked":  func() { e.Choke(blocked) },
		"Take, blocked":   func() { e.Take(blocked, 2) },
		"Peek, blocked":   func() { e.Peek(blocked, 0) },
		"Blocked":         func() { e.Blocked(blocked) },
		"Choke, admitted": func() { e.Choke(passing) },
		"Choke, refused":  func() { e.Choke(refused) },
		"Take, admitted":  func() { e.Take(passing, 2) },
		"Take, refused":   func() { e.Take(refused, 2) },
		"Take, never":     func() { e.Take(refused, -1) },
		"Peek":            func() { e.Peek(passing, 0) },
		"Peek, refused":   func() { e.Peek(refused, 1) },
		"TakeUpTo":        func() { e.TakeUpTo(passing, 2) },
		"TakeUpTo, none":  func() { e.TakeUpTo(refused, 2) },
		"TakeWith":        func() { e.TakeWith(other, passing, 2) },
		"TakeWith, never": func() { e.TakeWith(pacer{1, 1}, passing, 2) },
		"Refund":          func() { e.Refund(passing, 2) },
		"Refund, charge":  func() { e.Refund(passing, -2) },
		"Reset":           func() { e.Reset(passing) },
		"Reserve": func() {
			r := e.Reserve(passing, 2, time.Hour)
			r.Cancel()
		},
		"Reserve, refused": func() {
			r := e.Reserve(refused, 2, time.Hour)
			r.Cancel()
		},
		"Reserve, a part kept": func() {
			r := e.Reserve(passing, 2, time.Hour)
			r.Keep(1)
		},
		"Acquire": func() {
			r, _ := e.Acquire(context.Background(), passing, 2, time.Hour)
			r.Cancel()
		},
		"Wait": func() { _ = e.Wait(context.Background(), passing, 2) },
		"Cancel, not the last": func() {
			held[next%10].Cancel()
			held[next%10] = e.Reserve(passing, 3, 0)
			next++
		},
		"Allow":    func() { e.Allow(passing) },
		"Limit":    func() { e.Limit() },
		"LimitFor": func() { e.LimitFor(passing) },
		"Len":      func() { e.Len() },
	} {
		assert.Zero(t, testing.AllocsPerRun(1000, call), "%s, %T", name, passing)
	}
	assert.False(t, e.Choke(refused), "the calls measured as refused were not")
}

// A flood of such keys is recognized by type, without a panic, which allocates.
func TestKeysThatCannotBeComparedAllocateNothing(t *testing.T) {
	e := open[any](t, Config{Policy: funnel(1, 1, time.Hour)})
	for _, key := range []any{[]int{1}, map[string]int{}, func() {}, struct{ s []int }{}} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { e.Choke(key) }), "%T", key)
	}
	assert.Zero(t, e.Len())
}
