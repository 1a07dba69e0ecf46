package engine_test

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Under each limit. Without the memory of takes each call would cost the key its duration.
//
// Promise: Grants settled with 0 lock out no other call.
func TestCallsGivenBackLockOutNoOthers(t *testing.T) {
	for _, text := range []string{
		"funnel 50, 10/s", "window 50/s", "sliding 50/s", "at most 50/s", "window 50/m aligned",
	} {
		synctest.Test(t, func(t *testing.T) {
			e, err := engine.New[string](engine.Config{Policy: policy.Must(policy.Parse(text))})
			require.NoError(t, err)
			defer e.Close()
			full := e.Peek("key", 0).Remaining
			const callers = 16
			done := make(chan int)
			for i := range callers {
				go func() {
					refused := 0
					time.Sleep(time.Duration(i) * 7 * time.Millisecond)
					for call := range 200 {
						g, err := e.Hold(t.Context(), limits.Call[string]{Key: "key", N: 1})
						assert.NoError(t, err)
						if !g.Allowed {
							refused++
						}
						time.Sleep(time.Duration(50+(i*call)%100) * time.Millisecond)
						assert.NoError(t, g.Settle(t.Context(), 0))
					}
					done <- refused
				}()
			}
			refused := 0
			for range callers {
				refused += <-done
			}
			assert.Zero(t, refused, text)
			assert.Equal(t, full, e.Peek("key", 0).Remaining, text)
		})
	}
}

// A brief claim on a key that another claim of the call takes from as well is remembered with it.
//
// Promise: A TakeAll of claims that are not brief is given back exactly, however late.
func TestOnlyBriefClaimsAreNotRemembered(t *testing.T) {
	for name, c := range map[string]struct {
		claims func(e *engine.Engine[string], n int64) []engine.Claim
		left   int64
	}{
		"whole": {func(e *engine.Engine[string], n int64) []engine.Claim { return []engine.Claim{e.Claim("k", n)} }, 9},
		"brief": {func(e *engine.Engine[string], n int64) []engine.Claim { return []engine.Claim{e.Claim("k", n).Brief()} }, 8},
		"both": {func(e *engine.Engine[string], n int64) []engine.Claim {
			return []engine.Claim{e.Claim("k", n-1).Brief(), e.Claim("k", 1)}
		}, 9},
	} {
		var now policy.Instant
		e, err := engine.New[string](engine.Config{
			Policy: policy.Must(policy.Funnel(10, 1, time.Hour)), Clock: func() policy.Instant { return now + 1 },
		})
		require.NoError(t, err)
		other, err := engine.New[string](engine.Config{Policy: policy.Must(policy.Funnel(1000, 1, time.Hour))})
		require.NoError(t, err)
		// Known keys are taken from in a way of their own.
		require.True(t, e.Choke("k") && other.Choke("o"))
		take := func(n int64) engine.Outcome {
			out := engine.TakeAll(append(c.claims(e, n), other.Claim("o", n))...)
			require.True(t, out.Allowed, name)
			return out
		}
		one, five, three := take(1), take(5), take(3)
		five.Cancel()
		again := take(3)
		one.Cancel()
		three.Cancel()
		again.Cancel()
		assert.Equal(t, c.left, e.Peek("k", 0).Remaining, name)
		require.NoError(t, e.Close())
		require.NoError(t, other.Close())
	}
}

// held returns the bytes in use once garbage is collected.
func held() int64 {
	var m runtime.MemStats
	runtime.GC()
	// The second collection frees what weak pointers and caches let go.
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// In all, the keys take 24 MB.
//
// Promise: Takes that may be given back keep no keys that have left the table.
func TestReservationsKeepNoKeys(t *testing.T) {
	e, err := engine.New[string](engine.Config{Policy: policy.Must(policy.Parse("funnel 10, 1/h")), MaxKeys: 100})
	require.NoError(t, err)
	defer e.Close()
	before := held()
	for i := range 3000 {
		key := strconv.Itoa(i) + strings.Repeat("x", 8<<10)
		r := e.Reserve(key, 1, 0)
		require.True(t, r.Allowed)
		r.Cancel()
	}
	assert.Less(t, held()-before, int64(5<<20))
	runtime.KeepAlive(e)
}

// In all, 400,000 takes were remembered, of 56 bytes each.
//
// Promise: Takes that may be given back are forgotten with their reservations.
func TestReservationsKeepNoTakes(t *testing.T) {
	e, err := engine.New[int](engine.Config{Policy: policy.Must(policy.Parse("funnel 1000, 1/h"))})
	require.NoError(t, err)
	defer e.Close()
	const keys, each = 4096, 100
	before := held()
	all := make([]engine.Reservation[int], 0, each)
	for key := range keys {
		for range each {
			r := e.Reserve(key, 2, 0)
			require.True(t, r.Allowed)
			all = append(all, r)
		}
		for i := range all {
			all[i].Keep(1)
		}
		require.EqualValues(t, 1000-each, e.Peek(key, 0).Remaining)
		clear(all)
		all = all[:0]
	}
	assert.Less(t, held()-before, int64(5<<20))
	runtime.KeepAlive(e)
}
