package engine

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// refusalsOf returns the counts that add up to Refused.
func refusalsOf(s Stats) map[string]uint64 {
	return map[string]uint64{
		"OverLimit": s.OverLimit, "Blocked": s.Blocked, "Misfits": s.Misfits, "UnavailableRefused": s.UnavailableRefused,
		"FullRefused": s.FullRefused, "Crowded": s.Crowded, "Late": s.Late, "Cancelled": s.Cancelled,
	}
}

// Promise: Each refusal counts under a single reason.
func TestRefusalsAreCountedByReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{Policy: funnel(2, 1, time.Hour), MaxWaiting: 1, MaxKeys: 2, WhenFull: RefuseNew, WhenUnavailable: Refuse}
		e := open[any](t, config)
		admitting := config
		admitting.WhenFull, admitting.WhenUnavailable = AdmitNew, Admit
		a := open[any](t, admitting)
		closed := open[any](t, config)
		require.NoError(t, closed.Close())
		for _, of := range []*Engine[any]{e, a} {
			require.True(t, of.Take("used", 2).Allowed)
			require.True(t, of.Take("line", 2).Allowed)
		}
		synctest.Wait()
		window := policy.Must(policy.FixedWindow(2, time.Hour))
		ended, cancel := context.WithCancel(background)
		cancel()
		soon, stop := context.WithTimeout(background, time.Minute)
		defer stop()
		inLine, leave := context.WithCancel(background)
		left := make(chan error)
		go func() {
			_, err := e.Acquire(inLine, "line", 1, policy.Never)
			left <- err
		}()
		synctest.Wait()
		count := e.Stats()
		require.Equal(t, []any{1, uint64(0), uint64(0)}, []any{count.Waiting, count.Waits, count.Refused})
		wait := func(e *Engine[any], ctx context.Context, key any, n int64) func() bool {
			return func() bool { return e.Wait(ctx, key, n) == nil }
		}
		acquire := func(e *Engine[any], key any, n int64, patience time.Duration) func() bool {
			return func() bool {
				_, err := e.Acquire(background, key, n, patience)
				return err == nil
			}
		}
		take := func(e *Engine[any], key any, n int64) func() bool {
			return func() bool { return e.Take(key, n).Allowed }
		}
		for i, c := range []struct {
			of *Engine[any]
			// reason is empty for an allowed call.
			reason string
			call   func() bool
			// Growth of the calls without the key's word.
			full, unavailable uint64
		}{
			{e, "OverLimit", func() bool { return e.Choke("used") }, 0, 0},
			{e, "OverLimit", take(e, "used", 1), 0, 0},
			{e, "OverLimit", take(e, "used", 3), 0, 0},
			{e, "OverLimit", take(e, "used", -1), 0, 0},
			{e, "OverLimit", func() bool { a, err := e.Admit(background, "used", 1); return err != nil || a.Allowed }, 0, 0},
			{e, "OverLimit", func() bool { r := e.Reserve("used", 1, time.Minute); return r.Allowed }, 0, 0},
			{e, "OverLimit", func() bool { return TakeAll(e.Claim("used", 1)).Allowed }, 0, 0},
			{e, "OverLimit", wait(e, background, "used", 3), 0, 0},
			{e, "Misfits", func() bool { return e.TakeWith(window, "used", 1).Allowed }, 0, 0},
			{e, "FullRefused", take(e, "new", 1), 1, 0},
			{e, "FullRefused", func() bool { return e.Choke("new") }, 1, 0},
			{e, "FullRefused", acquire(e, "new", 1, time.Second), 1, 0},
			{a, "", take(a, "new", 1), 1, 0},
			{e, "UnavailableRefused", take(e, math.NaN(), 1), 0, 1},
			{e, "UnavailableRefused", acquire(e, []int{}, 1, time.Second), 0, 1},
			{a, "", take(a, math.NaN(), 1), 0, 1},
			{a, "OverLimit", take(a, math.NaN(), 3), 0, 0},
			{closed, "UnavailableRefused", take(closed, "new", 1), 0, 1},
			{closed, "Cancelled", wait(closed, background, "new", 1), 0, 0},
			{e, "Cancelled", wait(e, ended, "used", 1), 0, 0},
			{e, "Late", wait(e, soon, "used", 1), 0, 0},
			{e, "Late", acquire(e, "used", 1, time.Minute), 0, 0},
			{e, "Late", acquire(e, "used", 1, 0), 0, 0},
			{e, "Crowded", acquire(e, "line", 1, policy.Never), 0, 0},
			{e, "Crowded", func() bool {
				out, _ := AcquireAll(background, policy.Never, e.Claim("line", 1))
				return out.Allowed
			}, 0, 0},
			{e, "Crowded", func() bool {
				g, err := e.Hold(background, limits.Call[any]{Key: "line", N: 1, Patience: policy.Never})
				return err != nil || g.Allowed || !errors.Is(g.Err(), ErrCrowded)
			}, 0, 0},
			{e, "Blocked", func() bool { return e.Block("used", time.Hour) != nil || e.Choke("used") }, 0, 0},
			{e, "Blocked", take(e, "used", 1), 0, 0},
			{e, "Blocked", wait(e, soon, "used", 1), 0, 0},
		} {
			before, began := c.of.Stats(), time.Now()
			assert.Equal(t, c.reason == "", c.call(), "case %d", i)
			assert.Equal(t, began, time.Now(), "case %d: the call waited", i)
			after := c.of.Stats()
			want := refusalsOf(before)
			refused := uint64(0)
			if c.reason != "" {
				want[c.reason]++
				refused++
			}
			assert.Equal(t, want, refusalsOf(after), "case %d", i)
			assert.Equal(t, []uint64{before.Admitted + 1 - refused, before.Refused + refused}, []uint64{after.Admitted, after.Refused}, "case %d", i)
			assert.Equal(t, []uint64{before.Full + c.full, before.Unavailable + c.unavailable}, []uint64{after.Full, after.Unavailable}, "case %d", i)
			sum := uint64(0)
			for _, n := range refusalsOf(after) {
				sum += n
			}
			assert.Equal(t, sum, after.Refused, "case %d", i)
		}
		leave()
		require.ErrorIs(t, <-left, ErrCancelled)
		after := e.Stats()
		assert.EqualValues(t, []uint64{2, 1}, []uint64{after.Cancelled, after.Waits}, "the call in line must be counted, too")
		assert.Zero(t, after.Waiting)
	})
}

// Promise: `Stats.LongestWait` is the wait of the first call in any line, as long as it waits.
func TestLongestWaitIsOfTheFirstInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(1, 1, 10*time.Second)})
		longest := func(want time.Duration) {
			t.Helper()
			synctest.Wait()
			assert.Equal(t, want, e.Stats().LongestWait)
		}
		require.True(t, e.Choke("a"))
		longest(0)
		go func() { assert.NoError(t, e.Wait(background, "a", 1)) }()
		longest(0)
		time.Sleep(time.Second)
		longest(time.Second)
		ctx, cancel := context.WithCancel(background)
		go func() { assert.ErrorIs(t, e.Wait(ctx, "a", 1), ErrCancelled) }()
		time.Sleep(time.Second)
		require.True(t, e.Choke("b"))
		go func() { assert.NoError(t, e.Wait(background, "b", 1)) }()
		time.Sleep(time.Second)
		longest(3 * time.Second)
		time.Sleep(7500 * time.Millisecond)
		longest(9500 * time.Millisecond)
		cancel()
		longest(8500 * time.Millisecond)
		time.Sleep(2 * time.Second)
		longest(0)
	})
}

// Promise: `Stats` counts calls in line and, once they leave, their time.
func TestWaitsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(1, 1, time.Second)})
		counted := func(waiting int, waits uint64, waited time.Duration) {
			t.Helper()
			synctest.Wait()
			s := e.Stats()
			assert.Equal(t, []any{waiting, waits, waited}, []any{s.Waiting, s.Waits, s.WaitTime})
		}
		require.NoError(t, e.Wait(background, "key", 1))
		_, err := e.Acquire(background, "key", 1, time.Millisecond)
		require.ErrorIs(t, err, ErrDeadline)
		counted(0, 0, 0)
		go func() { assert.NoError(t, e.Wait(background, "key", 1)) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(background)
		go func() { assert.ErrorIs(t, e.Wait(ctx, "key", 1), ErrCancelled) }()
		go func() { assert.NoError(t, e.Wait(background, "other", 1)) }()
		counted(2, 0, 0)
		time.Sleep(time.Second)
		counted(1, 1, time.Second)
		time.Sleep(time.Second / 2)
		cancel()
		counted(0, 2, time.Second+time.Second*3/2)
		s := e.Stats()
		assert.Equal(t, []uint64{3, 2}, []uint64{s.Admitted, s.Refused})
	})
}

// Promise: `Stats` walks no keys.
func TestStatsGoesThroughNoKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		e := open[int](t, Config{Policy: &hooked{
			Policy: funnel(10, 1, time.Hour), take: func(*asked) { looks.Add(1) }, fresh: func() { looks.Add(1) },
		}})
		for key := range 1000 {
			require.True(t, e.Choke(key))
		}
		// The keys are filed and counted.
		time.Sleep(10 * time.Second)
		// A sweep may begin at the same instant.
		synctest.Wait()
		require.EqualValues(t, 1000, e.Stats().Keys)
		before := looks.Load()
		for range 10 {
			e.Stats()
		}
		assert.Equal(t, before, looks.Load())
		for range e.All() {
			break
		}
		assert.Greater(t, looks.Load(), before, "what goes through keys is counted")
	})
}

func TestStatsTextLeavesOutZeros(t *testing.T) {
	assert.Equal(t, "0 admitted, 0 refused, 0 of 0 keys", Stats{}.String())
	s := Stats{
		Name: "api", Admitted: 120, Refused: 30, Keys: 12, MaxKeys: 1000, OverLimit: 1, Blocked: 2, Waiting: 3, Misfits: 4,
		Unavailable: 5, Full: 6, Forgiven: 7, Restarts: 8, Dropped: 9, Abandoned: 10, Unsaved: 11,
	}
	assert.Equal(t, "api: 120 admitted, 30 refused, 12 of 1000 keys, 2 blocked, 3 waiting, 4 misfits, 5 unavailable, 6 full, "+
		"7 forgiven, 8 restarts, 9 dropped, 10 abandoned, 11 unsaved", s.String())
}
