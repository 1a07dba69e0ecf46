package cell

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/internal/testkit/race"
	"github.com/ral-limiter/ral/policy"
)

// Random calls on a few keys, blocks and resets. Each answer is the limit's by a word of its own,
// with the later end of the block that a penalty's word has.
func TestBlocksRandomly(t *testing.T) {
	for seed := range max(uint64(150/race.Slowdown), 20) {
		r := rand.New(rand.NewPCG(seed, 31))
		compareBlocks(t, r, eachLimit()[r.IntN(len(eachLimit()))])
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
			d.advance(max(left-time.Duration(r.IntN(2)), 0)) // the last nanosecond of the block, or the next
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
		switch r.IntN(4) {
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
		}
		require.Equal(t, want, got, "%v, %+v: %d units", limit, *rule, n)
	}
	require.EqualValues(t, blocked, d.control.Stats().Blocked)
	if rule.Counts() {
		require.EqualValues(t, penalties, blocks.refusals.Blocks.Load())
	}
}
