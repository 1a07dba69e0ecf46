package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// blockable are limits of all kinds, with the same clock of a test's.
func blockable(t testing.TB) []policy.Policy {
	t.Helper()
	log, err := SlidingLog(5, 3*time.Second)
	require.NoError(t, err)
	return []policy.Policy{
		funnel(5, 2, time.Second), log,
		policy.Must(policy.FixedWindow(5, 2*time.Second)), policy.Must(policy.SlidingWindow(5, 2*time.Second)),
		policy.Must(policy.Queue(3, 2, time.Second)), policy.Must(policy.Bursty(2, time.Second, 3)),
	}
}

// A random history over several servers is that of one engine with the same Penalty: each
// decision, each block, and what Stats count.
func TestBlocksAgreeWithAnEngine(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			compareWithEngine(t, rand.New(rand.NewPCG(seed, 77)))
		})
	}
}

func compareWithEngine(t *testing.T, r *rand.Rand) {
	all := blockable(t)
	p := all[r.IntN(len(all))]
	for p == all[1] { // an engine has no log
		p = all[r.IntN(len(all))]
	}
	rule := Penalty{}
	if r.IntN(4) > 0 {
		rule = Penalty{Refusals: 1 + r.IntN(4), Within: time.Duration(1+r.IntN(3e6)) * time.Microsecond, For: time.Duration(1+r.IntN(2e6)) * time.Microsecond}
		rule.Max = rule.For * time.Duration(1+r.IntN(9))
		if r.IntN(2) == 0 {
			rule.Forget = rule.Within + time.Duration(r.IntN(20e6))*time.Microsecond
		}
	}
	var clock atomic.Int64
	c := at(shared.Addr(), p)
	c.Penalty, c.clock = rule, clock.Load
	var servers []*Limiter
	for range 3 {
		servers = append(servers, open(t, c))
	}
	e, err := engine.New[string](engine.Config{Policy: p, Penalty: rule, Clock: func() policy.Instant {
		return policy.Instant(max(clock.Load()*1000, 1))
	}})
	require.NoError(t, err)
	defer e.Close()
	clock.Store(int64(100 * time.Hour / time.Microsecond)) // a store is full
	refused := 0
	for step := range 300 {
		key, l := fmt.Sprint(r.IntN(3)), servers[r.IntN(len(servers))]
		at := fmt.Sprintf("%v %+v step %d", p, rule, step)
		switch r.IntN(14) {
		case 0, 1:
			clock.Add(r.Int64N(3e6))
		case 2:
			if left := e.Blocked(key); left > 0 { // to the end of a block, or just before
				clock.Add(max(left.Microseconds()-r.Int64N(2), 0))
			}
		case 3:
			d := time.Duration(1+r.IntN(5e6)) * time.Microsecond
			require.NoError(t, l.Block(t.Context(), key, d))
			require.NoError(t, e.Block(key, d))
		case 4:
			if r.IntN(4) == 0 {
				_, err := l.Reset(t.Context(), key)
				require.NoError(t, err)
				e.Reset(key)
			}
		case 5:
			n := 1 + r.Int64N(3)
			got, err := l.Refund(t.Context(), key, n)
			require.NoError(t, err)
			require.Equal(t, e.Refund(key, n), got.Decision, at)
		case 6:
			other, n := "3", 1+r.Int64N(3)
			want := engine.TakeAll(e.Claim(key, n), e.Claim(other, n))
			got, err := TakeAll(t.Context(), n, l.Claim(key), l.Claim(other))
			require.NoError(t, err)
			require.Equal(t, want.Allowed, got.Allowed, at)
			if p != all[4] { // of a queue, the two tell when another unit than the last can leave
				require.Equal(t, want.RetryAfter, got.RetryAfter, at)
			}
		default:
			n := r.Int64N(6)
			was := e.Blocked(key) > 0
			want := e.Take(key, n)
			got := take(t, l, key, n)
			require.Equal(t, want, got.Decision, at)
			require.Equal(t, was, errors.Is(got.Cause, ErrBlocked), at)
			require.True(t, got.Promised)
			if !want.Allowed {
				refused++
			}
		}
		left, err := servers[r.IntN(len(servers))].Blocked(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, e.Blocked(key), left, at)
	}
	require.Positive(t, refused)
}

// Of callers that race on several servers, exactly as many are refused by the limit as block
// the key, all later ones by the block, and one block is made.
func TestRefusalsOfAllServersBlockExactly(t *testing.T) {
	const capacity, refusals, callers, each = 50, 7, 16, 10
	for _, p := range []policy.Policy{funnel(capacity, 1, time.Hour), policy.Must(SlidingLog(capacity, time.Hour))} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			c := at(shared.Addr(), p)
			c.Penalty = Penalty{Refusals: refusals, Within: time.Hour, For: time.Hour}
			var servers []*Limiter
			for range 4 {
				servers = append(servers, open(t, c))
			}
			for round := range 5 {
				key := fmt.Sprint(round)
				var admitted, counted, blocked atomic.Int64
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						for range each {
							a, err := servers[i%len(servers)].Take(context.Background(), key, 1)
							switch {
							case err != nil || a.Source != SourceRedis:
								t.Errorf("%+v, %v", a, err)
							case a.Allowed:
								admitted.Add(1)
							case errors.Is(a.Cause, ErrBlocked):
								blocked.Add(1)
							default:
								counted.Add(1)
							}
						}
					})
				}
				all.Wait()
				require.EqualValues(t, capacity, admitted.Load())
				require.EqualValues(t, refusals, counted.Load())
				require.EqualValues(t, callers*each-capacity-refusals, blocked.Load())
			}
			var sum Stats
			for _, l := range servers {
				s := l.Stats()
				sum.Admitted, sum.Refused, sum.Blocked, sum.Penalties = sum.Admitted+s.Admitted, sum.Refused+s.Refused, sum.Blocked+s.Blocked, sum.Penalties+s.Penalties
			}
			assert.Equal(t, Stats{Admitted: 5 * capacity, Refused: 5 * (callers*each - capacity), Blocked: 5 * (callers*each - capacity - refusals), Penalties: 5}, sum)
		})
	}
}

// From when Block has returned every verb refuses the key on another server, and a key beside
// it is not touched. When the block ends, to the microsecond, all pass again.
func TestBlockedKeyIsRefusedByEveryVerbOfTheFleet(t *testing.T) {
	for _, p := range blockable(t) {
		for _, chosen := range []bool{false, true} {
			t.Run(fmt.Sprint(p, " chosen ", chosen), func(t *testing.T) {
				t.Parallel()
				var clock atomic.Int64
				clock.Store(time.Hour.Microseconds())
				c := at(shared.Addr(), p)
				c.clock = clock.Load
				if chosen {
					c.PolicyFor = func(string) policy.Policy { return p }
				}
				a, b := open(t, c), open(t, c)
				besides := 0
				beside := func() string { besides++; return fmt.Sprint("beside ", besides) }
				verbs := map[string]func(key string) (Answer, error){
					"Choke": func(key string) (Answer, error) {
						return Answer{Decision: policy.Decision{Allowed: b.Choke(t.Context(), key)}}, nil
					},
					"Take":     func(key string) (Answer, error) { return b.Take(t.Context(), key, 1) },
					"TakeWith": func(key string) (Answer, error) { return b.TakeWith(t.Context(), p, key, 1) },
					"Peek":     func(key string) (Answer, error) { return b.Peek(t.Context(), key) },
					"Take of nothing": func(key string) (Answer, error) {
						return b.TakeWith(t.Context(), nil, key, 0)
					},
					"Reserve": func(key string) (Answer, error) {
						r, err := b.Reserve(t.Context(), key, 1, time.Second)
						return r.Answer, err
					},
					"Acquire": func(key string) (Answer, error) {
						r, err := b.Acquire(t.Context(), key, 1, 0)
						if !r.Allowed {
							require.ErrorIs(t, err, ErrDeadline)
							err = nil
						}
						return r.Answer, err
					},
					"Acquire of nothing": func(key string) (Answer, error) {
						r, err := b.Acquire(t.Context(), key, 0, time.Hour)
						if !r.Allowed {
							require.ErrorIs(t, err, ErrDeadline)
							err = nil
						}
						return r.Answer, err
					},
					"Hold": func(key string) (Answer, error) {
						g, err := b.Hold(t.Context(), limits.Call[string]{Key: key, N: 1, NoWait: true})
						return Answer{Decision: g.Decision, Cause: g.Cause(), Source: g.Source(), Promised: g.Promised()}, err
					},
					"Ask": func(key string) (Answer, error) {
						a, err := b.Ask(t.Context(), key, 1)
						return Answer{Decision: a.Decision, Cause: a.Cause(), Source: a.Source(), Promised: a.Promised()}, err
					},
					"TakeAll": func(key string) (Answer, error) {
						out, err := TakeAll(t.Context(), 1, b.Claim(beside()), b.Claim(key))
						require.Equal(t, out.Allowed, out.Answers[1].Allowed)
						return out.Answers[1], err
					},
					"AskAll": func(key string) (Answer, error) {
						out, err := limits.AskAll(t.Context(), 0, limits.For(b, limits.Call[string]{Key: beside(), N: 1}), limits.For(b, limits.Call[string]{Key: key, N: 1}))
						a := out.Answers[1]
						require.Equal(t, out.Allowed, a.Allowed)
						return Answer{Decision: a.Decision, Cause: a.Cause(), Source: a.Source(), Promised: a.Promised()}, err
					},
				}
				for name, verb := range verbs {
					key := "key of " + name
					require.NoError(t, a.Block(t.Context(), key, 2*time.Hour))
					got, err := verb(key)
					require.NoError(t, err, name)
					require.False(t, got.Allowed, name)
					if name != "Choke" {
						assert.Equal(t, policy.Decision{Limit: got.Limit, RetryAfter: 2 * time.Hour, ResetAfter: 2 * time.Hour}, got.Decision, name)
						assert.Equal(t, SourceRedis, got.Source, name)
						assert.True(t, got.Promised, name)
						assert.ErrorIs(t, got.Cause, ErrBlocked, name)
					}
					got, err = verb(key + " or another")
					require.NoError(t, err, name)
					require.True(t, got.Allowed, name)
				}
				clock.Add(2*time.Hour.Microseconds() - 1)
				for name, verb := range verbs {
					got, err := verb("key of " + name)
					require.NoError(t, err, name)
					require.False(t, got.Allowed, name)
				}
				clock.Add(1)
				for name, verb := range verbs {
					got, err := verb("key of " + name)
					require.NoError(t, err, name)
					require.True(t, got.Allowed, name)
				}
			})
		}
	}
}
