package fleet

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Three servers and an engine get the same calls: looks, takes of one key and of several, blocks,
// penalties, returns. They answer, explain and count alike.
// Promise: Decisions, blocks and counts match an engine's to the microsecond.
// Promise: While Redis decides, an explanation and `Peek` are an engine's.
// Promise: Exactly `Refusals` over all servers block a key, once.
// Promise: A `Block` of 0 lifts blocks and keeps used units.
func TestAgreesWithAnEngine(t *testing.T) {
	all := blockable(t)
	for seed := range uint64(24) {
		p := all[seed%uint64(len(all))]
		if p == all[1] {
			// An engine has no log.
			continue
		}
		inBubble(t, func(t *testing.T, redis *storetest.Redis) {
			r := rand.New(rand.NewPCG(seed, 77))
			rule := anyPenalty(r)
			var clock atomic.Int64
			c := on(redis, p)
			c.Penalty, c.clock = rule, clock.Load
			servers := []*Limiter{open(t, c), open(t, c), open(t, c)}
			e := must.Get(engine.New[string](engine.Config{Name: c.Name, Policy: p, Penalty: rule, Clock: func() policy.Instant {
				return policy.Instant(max(clock.Load()*1000, 1))
			}}))
			defer e.Close()
			// The store is full.
			clock.Store(int64(100 * time.Hour / time.Microsecond))
			ctx := t.Context()
			for step := range 200 {
				key, l := fmt.Sprint(r.IntN(3)), servers[r.IntN(len(servers))]
				where := fmt.Sprintf("%v %+v seed %d step %d", p, rule, seed, step)
				switch r.IntN(14) {
				case 0, 1:
					clock.Add(r.Int64N(3e6))
				case 2:
					// The clock goes to the end of a block, or to just before it.
					if left := e.Blocked(key); left > 0 {
						clock.Add(max(left.Microseconds()-r.Int64N(2), 0))
					}
				case 3:
					// A time of 0 lifts a block.
					d := time.Duration(r.IntN(3)*r.IntN(5e6)) * time.Microsecond
					require.NoError(t, l.Block(ctx, key, d))
					require.NoError(t, e.Block(key, d))
				case 4:
					if r.IntN(4) == 0 {
						must.Get(l.Reset(ctx, key))
						e.Reset(key)
					}
				case 5:
					n := 1 + r.Int64N(3)
					require.Equal(t, e.Refund(key, n), must.Get(l.Refund(ctx, key, n)).Decision, where)
				case 6, 7:
					var claims []Claim
					var inProcess []engine.Claim
					// The units of one key add up, too.
					for range 1 + r.IntN(4) {
						key, n := fmt.Sprint(r.IntN(3)), []int64{0, 1, 1, 2, 3, -1, math.MaxInt64}[r.IntN(7)]
						claims, inProcess = append(claims, l.Claim(key, n)), append(inProcess, e.Claim(key, n))
					}
					want := engine.TakeAll(inProcess...)
					got := must.Get(TakeAll(ctx, claims...))
					require.Equal(t, want.Allowed, got.Allowed, where)
					// Of a queue, the two tell when another unit than the last can leave.
					if p == all[4] {
						break
					}
					require.Equal(t, []any{want.RetryAfter, want.Binding}, []any{got.RetryAfter, got.Binding}, where)
					for i := range claims {
						require.Equal(t, want.Decisions[i], got.Answers[i].Decision, where)
					}
				default:
					// n may exceed each limit.
					n := r.Int64N(8) - 1
					require.Equal(t, e.Peek(key, n), must.Get(l.Peek(ctx, key, n)).Decision, where)
					was, want, got := e.Blocked(key) > 0, e.Take(key, n), take(t, l, key, n)
					require.Equal(t, want, got.Decision, where)
					require.Equal(t, was, errors.Is(got.Err(), limits.ErrBlocked), where)
					require.True(t, got.Exact())
				}
				require.Equal(t, e.Blocked(key), must.Get(servers[r.IntN(len(servers))].Blocked(ctx, key)), where)
				requireSameExplanation(t, e.Explain(key), explain(t, l, key), where)
			}
			counted, sum := e.Stats(), [4]uint64{}
			for _, l := range servers {
				s := l.Stats()
				for i, n := range []uint64{s.Admitted, s.Refused, s.Blocked, s.Penalties} {
					sum[i] += n
				}
			}
			require.Equal(t, [4]uint64{counted.Admitted, counted.Refused, counted.Blocked, counted.Penalties}, sum)
			require.Positive(t, counted.Refused)
		})
	}
}

func anyPenalty(r *rand.Rand) (rule engine.Penalty) {
	if r.IntN(4) == 0 {
		return rule
	}
	rule = engine.Penalty{Refusals: 1 + r.IntN(4), Within: time.Duration(1+r.IntN(3e6)) * time.Microsecond, For: time.Duration(1+r.IntN(2e6)) * time.Microsecond}
	rule.Max = rule.For * time.Duration(1+r.IntN(9))
	if r.IntN(2) == 0 {
		rule.Forget = rule.Within + time.Duration(r.IntN(20e6))*time.Microsecond
	}
	return rule
}

func requireSameExplanation(t *testing.T, want, got limits.Explanation, where string) {
	t.Helper()
	require.Equal(t, limits.SourceRedis, got.Source())
	require.True(t, got.Exact())
	require.Equal(t, want.Blocked > 0, errors.Is(got.Err(), limits.ErrBlocked))
	if want.Used > 0 || want.Blocked > 0 {
		require.True(t, got.Known, where)
	}
	got.Provenance, want.Provenance, got.Known, want.Known = nil, nil, false, false
	require.Equal(t, want, got, where)
	require.Equal(t, want.String(), got.String())
}
