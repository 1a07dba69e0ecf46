package cell

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/internal/testkit/limitstest"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
)

// Random calls on a few keys, blocks and resets. Each answer is the limit's by a word of its own,
// with the later end of the block that a penalty's word has.
// Promise: Random calls get the policy's answers; the later block holds, up to `Max`, until `Reset`.
func TestBlocksRandomly(t *testing.T) {
	for seed := range max(uint64(150/testenv.RaceSlowdown), 20) {
		r := rand.New(rand.NewPCG(seed, 31))
		compareBlocks(t, r, limitstest.Policies()[r.IntN(len(limitstest.Policies()))])
	}
}

func compareBlocks(t *testing.T, r *rand.Rand, limit policy.Policy) {
	t.Helper()
	millis := func(most int) time.Duration { return time.Duration(1+r.IntN(most)) * time.Millisecond }
	rule := &penalty.Rule{}
	if r.IntN(4) > 0 {
		rule = &penalty.Rule{Refusals: int64(1 + r.IntN(4)), Within: millis(3000), For: millis(2000)}
		rule.Max = rule.For * time.Duration(1+r.IntN(9))
	}
	rule.FillIn()
	d := newDesk(t, limit, nil)
	blocks := d.blockBy(rule)
	type words struct{ limit, penalty uint64 }
	keys := map[string]*words{}
	blocked, penalties := 0, 0
	for range 150 {
		key, now := number(r.IntN(3)), d.instant()
		if keys[key] == nil {
			keys[key] = &words{}
		}
		k := keys[key]
		_, look := rule.Take(k.penalty, now, 0, 0)
		left := look.ResetAfter
		require.Equal(t, left, blocks.Blocked(key))
		switch r.IntN(12) {
		case 0, 1, 2:
			d.advance(millis(3000))
			continue
		case 3:
			lock := penalty.Lock{Rule: rule, For: millis(5000)}
			require.NoError(t, blocks.Block(lock, key))
			k.penalty, _ = lock.Take(k.penalty, now, 1, 0)
			continue
		case 4:
			if r.IntN(4) == 0 {
				d.Reset(key)
				*k = words{}
			}
			continue
		case 5:
			n := int64(r.IntN(3))
			k.limit = limit.(policy.Refunder).Refund(k.limit, now, n)
			_, want := limit.Take(k.limit, now, 0, 0)
			require.Equal(t, want, d.Refund(key, n), "%v", limit)
			continue
		case 6:
			// The instant is the last nanosecond of the block, or the next.
			d.advance(max(left-time.Duration(r.IntN(2)), 0))
			continue
		case 7:
			d.settle()
			blocks.settle()
		}
		n := int64(r.IntN(13))
		next, want := limit.Take(k.limit, now, n, 0)
		switch {
		case left > 0:
			if want.Allowed {
				_, want = limit.Take(k.limit, now, 0, 0)
			}
			want = policy.Decision{Limit: want.Limit, RetryAfter: max(want.RetryAfter, left), ResetAfter: max(want.ResetAfter, left)}
			var look policy.Decision
			d.Cell.Peek(key, n, &look)
			require.Equal(t, want, look, "%v: a look at %d units answers otherwise than a take", limit, n)
			level, _, _, _ := d.Known(key, d.hashOf(key), now)
			require.Nil(t, level, "an offer was made on a blocked key")
			if n > 0 {
				blocked++
			}
		case want.Allowed:
			k.limit = next
		case rule.Counts() && want.RetryAfter != policy.Never:
			var counted policy.Decision
			if k.penalty, counted = rule.Take(k.penalty, now, 1, 0); counted.Remaining == 0 {
				penalties++
			}
			want.RetryAfter, want.ResetAfter = max(want.RetryAfter, counted.ResetAfter), max(want.ResetAfter, counted.ResetAfter)
		}
		var got policy.Decision
		switch r.IntN(5) {
		case 0:
			if n == 1 {
				require.Equal(t, want.Allowed, d.Choke(key), "%v", limit)
				continue
			}
			fallthrough
		case 1:
			got = d.Take(key, n)
		case 2:
			got = d.Reserve(key, n, 0).Decision
		case 3:
			got = d.TakeWith(limit, key, n)
		case 4:
			// A queue delays.
			if _, err := d.Admit(key, n, &got); err != nil {
				got = d.Take(key, n)
			}
		}
		require.Equal(t, want, got, "%v, %+v: %d units", limit, *rule, n)
	}
	require.EqualValues(t, blocked, d.control.Stats().Blocked)
	if rule.Counts() {
		require.EqualValues(t, penalties, blocks.refusals.Blocks.Load())
	}
}

// A blocked key is charged as ever: a block forgives nothing.
func TestBlockedKeyIsCharged(t *testing.T) {
	rule := &penalty.Rule{}
	d := newDesk(t, funnel(10, 1, time.Hour), nil)
	blocks := d.blockBy(rule)
	require.True(t, d.Choke("a"))
	for _, key := range []string{"a", "new"} {
		require.NoError(t, blocks.Block(penalty.Lock{Rule: rule, For: time.Minute}, key))
		require.True(t, d.Refund(key, -3).Allowed, key)
		var got policy.Decision
		d.RefundWith(funnel(20, 2, time.Hour), key, -2, &got)
		require.True(t, got.Allowed, key)
		require.True(t, d.Unblock(key))
	}
	require.EqualValues(t, 5, d.Peek("a").Remaining, "1, 3 and 2 units must count under a limit that is twice as fast")
	require.EqualValues(t, 6, d.Peek("new").Remaining)
}

// Promise: A `Penalty` counts each refusal once.
func TestRefusalsAreCountedExactly(t *testing.T) {
	const callers, each = 16, 50
	rule := &penalty.Rule{Refusals: callers*each + 1, Within: time.Minute, For: time.Hour}
	rule.FillIn()
	for round := range 20 {
		d := newDesk(t, funnel(1, 1, time.Hour), nil)
		blocks := d.blockBy(rule)
		refuse := func(calls int) {
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					for range calls {
						assert.False(t, i%2 == 0 && d.Choke("k") || d.Take("k", 1).Allowed)
					}
				})
			}
			all.Wait()
		}
		require.True(t, d.Choke("k"))
		refuse(each / 2)
		require.Zero(t, blocks.Blocked("k"), "round %d: the key is blocked before its last refusal", round)
		refuse(each * 2)
		require.Equal(t, time.Hour, blocks.Blocked("k"), "round %d: the key must be blocked for an hour", round)
		require.EqualValues(t, 1, blocks.refusals.Blocks.Load(), "excess refusals must make a single block")
		require.Zero(t, blocks.refusals.Uncounted.Load())
	}
}

// lock returns a block of the key for d.
func lock(blocks *desk, key string, d time.Duration) error {
	return blocks.Block(penalty.Lock{Rule: &penalty.Rule{}, For: d}, key)
}

// Whatever the order of calls and blocks. Reset and Unblock let them go on.
// Promise: Queued calls await a block's end in order.
func TestCallsInLineWaitForTheEndOfABlock(t *testing.T) {
	for _, lifts := range []func(*Cell[string], string) bool{nil, (*Cell[string]).Reset, (*Cell[string]).Unblock} {
		synctest.Test(t, func(t *testing.T) {
			d := newTimedDesk(t, funnel(1, 1, time.Second), nil)
			blocks := d.blockBy(&penalty.Rule{})
			require.True(t, d.Choke("key"))
			ends := time.Now().Add(time.Minute)
			if lifts != nil {
				ends = time.Now().Add(30 * time.Second)
			}
			var served [5]chan time.Time
			wait := func(i int) {
				served[i] = make(chan time.Time, 1)
				d.wait(1, served[i])
			}
			for i := range 3 {
				wait(i)
			}
			require.NoError(t, lock(blocks, "key", time.Minute))
			// The call comes during the block.
			wait(3)
			time.Sleep(5 * time.Second)
			wait(4)
			time.Sleep(time.Until(ends) - 1)
			synctest.Wait()
			for i := range served {
				assert.Empty(t, served[i], "call %d came early", i)
			}
			if lifts != nil {
				time.Sleep(1)
				assert.True(t, lifts(d.Cell, "key"))
			}
			last := ends
			for i := range served {
				start := <-served[i]
				assert.False(t, start.Before(last), "call %d came before the one ahead of it", i)
				assert.True(t, i == 0 || start.Sub(last) >= time.Second, "call %d came sooner than the limit allows", i)
				last = start
			}
			assert.Less(t, last.Sub(ends), 6*time.Second)
		})
	}
}

// Without the patience for a block a call is told at once, and gives back its units.
func TestCallsThatCannotWaitForABlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTimedDesk(t, funnel(2, 1, time.Second), nil)
		blocks := d.blockBy(&penalty.Rule{})
		require.NoError(t, lock(blocks, "key", time.Minute))
		began := time.Now()
		_, err := d.Acquire(t.Context(), "key", 1, time.Minute-1)
		require.ErrorIs(t, err, ErrDeadline)
		late, end := context.WithTimeout(t.Context(), time.Minute-1)
		defer end()
		err = d.Wait(late, "key", 1)
		require.ErrorIs(t, err, ErrDeadline)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, d.Wait(t.Context(), "key", 0), ErrDeadline)
		assert.Equal(t, began, time.Now())
		r, err := d.Acquire(t.Context(), "key", 2, time.Minute)
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(began))
		assert.True(t, r.Allowed)

		// The block comes during the wait.
		began = time.Now()
		time.AfterFunc(1, func() { assert.NoError(t, lock(blocks, "key", time.Minute)) })
		_, err = d.Acquire(t.Context(), "key", 1, 2*time.Second)
		assert.ErrorIs(t, err, ErrDeadline)
		assert.Equal(t, 2*time.Second, time.Since(began))
		time.Sleep(time.Minute)
		assert.EqualValues(t, 2, d.Peek("key").Remaining)
	})
}
