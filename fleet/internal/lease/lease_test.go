package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const budget = 5 * time.Millisecond

func sharp(m *memory) *wire {
	return &wire{bank: m, trip: func() time.Duration { return time.Millisecond }}
}

func in(t *testing.T, limit policy.Policy, f func(t *testing.T, l *Leases, m *memory, w *wire), more ...func(*Config)) {
	one(t)
	synctest.Test(t, func(t *testing.T) {
		plan, err := NewPlan(limit, 0)
		require.NoError(t, err)
		m := newMemory(plan)
		w := sharp(m)
		c := Config{Plan: plan, Bank: w, seed: 1, Timeout: 20 * time.Millisecond, always: true}
		for _, f := range more {
			f(&c)
		}
		l, err := New(c)
		require.NoError(t, err)
		defer func() {
			require.NoError(t, l.Close(context.Background()))
			time.Sleep(3 * time.Hour) // until the wires are empty
		}()
		f(t, l, m, w)
	})
}

func (m *memory) remaining(key string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, d := m.plan.Policy.Take(m.words[key], m.now(), 0, 0)
	return d.Remaining
}

func take(t *testing.T, l *Leases, n int64) policy.Decision {
	t.Helper()
	d, err := l.Take("key", n, budget, nil)
	require.NoError(t, err)
	return d
}

// warm makes calls that must pass, 100µs apart.
func warm(t *testing.T, l *Leases, calls int) {
	t.Helper()
	for range calls {
		require.True(t, take(t, l, 1).Allowed)
		time.Sleep(100 * time.Microsecond)
	}
}

func thousand() policy.Policy { return must(policy.Funnel(1000, 1000, time.Second)) }

// Calls on a key in use do not wait, and a round trip brings many units. Unused units lapse.
func TestLeasesAreRenewedAheadOfNeed(t *testing.T) {
	in(t, must(policy.FixedWindow(100_000, time.Hour)), func(t *testing.T, l *Leases, _ *memory, _ *wire) {
		warm(t, l, 1000)
		before, start, waited := l.Stats(), time.Now(), 0
		for range 10_000 {
			at := time.Now()
			require.True(t, take(t, l, 1).Allowed)
			if time.Since(at) > 0 {
				waited++
			}
			time.Sleep(100 * time.Microsecond)
		}
		assert.Zero(t, waited, "calls that waited, of 10000 in %v", time.Since(start))
		asked := l.Stats().Exchanges - before.Exchanges
		assert.Less(t, asked, uint64(50), "round trips for 10000 calls")

		time.Sleep(time.Hour)
		at := time.Now()
		require.True(t, take(t, l, 1).Allowed)
		assert.Equal(t, time.Millisecond, time.Since(at), "the lease outlived its term")
	})
}

// A call does not predict another.
func TestFirstCallLeasesItsUnits(t *testing.T) {
	in(t, thousand(), func(t *testing.T, l *Leases, m *memory, _ *wire) {
		d := take(t, l, 3)
		assert.True(t, d.Allowed)
		assert.EqualValues(t, 875, d.Limit)
		assert.EqualValues(t, 3, m.payment("key"))
		for i := range 100 {
			_, err := l.Take(fmt.Sprint(i), 1, budget, nil)
			require.NoError(t, err)
			assert.EqualValues(t, 1, m.payment(fmt.Sprint(i)))
		}
	})
}

func TestRefusalIsRemembered(t *testing.T) {
	in(t, must(policy.FixedWindow(10, 10*time.Second)), func(t *testing.T, l *Leases, _ *memory, _ *wire) {
		warm(t, l, 10)
		before := l.Stats()
		for range 10_000 {
			d := take(t, l, 1)
			require.False(t, d.Allowed)
			require.Positive(t, d.RetryAfter)
			require.EqualValues(t, 10, d.Limit)
			require.LessOrEqual(t, d.RetryAfter, 5*time.Second)
			time.Sleep(100 * time.Microsecond)
		}
		assert.LessOrEqual(t, l.Stats().Exchanges-before.Exchanges, uint64(4), "round trips in a second for a key at its limit")
		time.Sleep(9 * time.Second)
		assert.Eventually(t, func() bool { return take(t, l, 1).Allowed }, 5*time.Second, 10*time.Millisecond)
	})
}

func TestRefusalOfManyIsNotOneOfFewer(t *testing.T) {
	in(t, must(policy.FixedWindow(10, 10*time.Second)), func(t *testing.T, l *Leases, _ *memory, _ *wire) {
		require.True(t, take(t, l, 5).Allowed)
		require.False(t, take(t, l, 6).Allowed)
		before := l.Stats().Exchanges
		require.False(t, take(t, l, 7).Allowed)
		require.Equal(t, before, l.Stats().Exchanges, "seven do not fit where six do not")
		require.True(t, take(t, l, 5).Allowed)
		require.False(t, take(t, l, 1).Allowed)
	})
}

func TestBadNumbers(t *testing.T) {
	in(t, must(policy.FixedWindow(10, time.Second)), func(t *testing.T, l *Leases, _ *memory, _ *wire) {
		for range 2 {
			for _, n := range []int64{-1, 11, math.MinInt64, math.MaxInt64} {
				d := take(t, l, n)
				assert.False(t, d.Allowed)
				assert.Equal(t, policy.Never, d.RetryAfter)
				assert.EqualValues(t, 10, d.Limit)
			}
			d := take(t, l, 0)
			assert.True(t, d.Allowed)
			assert.EqualValues(t, 10, d.Limit)
			take(t, l, 10)
			take(t, l, 1) // refused from here on
		}
		assert.LessOrEqual(t, l.Stats().Exchanges, uint64(3))
	})
}

func TestManyCallersAskOnce(t *testing.T) {
	in(t, thousand(), func(t *testing.T, l *Leases, _ *memory, _ *wire) {
		var all sync.WaitGroup
		var passed atomic.Int64
		for range 900 {
			all.Go(func() {
				d, err := l.Take("key", 1, budget, nil)
				assert.NoError(t, err)
				if d.Allowed {
					passed.Add(1)
				}
			})
		}
		all.Wait()
		assert.InDelta(t, 875, passed.Load(), 3, "a unit drains with each exchange on the way")
		assert.LessOrEqual(t, l.Stats().Exchanges, uint64(3))
	})
}

// Calls get an error within their budget, and held leases last until their end.
func TestBankFails(t *testing.T) {
	in(t, must(policy.FixedWindow(100_000, time.Hour)), func(t *testing.T, l *Leases, _ *memory, w *wire) {
		warm(t, l, 1000)
		w.change(time.Millisecond, func() fault { return fault{lost: true} })
		held := take(t, l, 1).Remaining
		for range held {
			d, err := l.Take("key", 1, 0, nil)
			require.NoError(t, err)
			require.True(t, d.Allowed, "it was paid")
		}
		at := time.Now()
		_, err := l.Take("key", 1, budget, nil)
		assert.ErrorIs(t, err, ErrLate)
		assert.Equal(t, budget, time.Since(at))
		_, err = l.Take("key", 1, time.Second, nil)
		assert.ErrorIs(t, err, ErrUnavailable)
		assert.ErrorIs(t, err, errWire)
		assert.NoError(t, l.Health())

		done := make(chan struct{})
		close(done)
		_, err = l.Take("key", 1, time.Hour, done)
		assert.ErrorIs(t, err, ErrLate)

		w.change(time.Millisecond, nil)
		time.Sleep(l.timeout)
		warm(t, l, 1000)
	})
}

func TestLateAnswerIsUsed(t *testing.T) {
	in(t, thousand(), func(t *testing.T, l *Leases, m *memory, w *wire) {
		w.change(10*time.Millisecond, nil)
		_, err := l.Take("key", 5, budget, nil)
		require.ErrorIs(t, err, ErrLate)
		time.Sleep(10 * time.Millisecond)
		assert.EqualValues(t, 5, m.payment("key"))
		d, err := l.Take("key", 5, 0, nil)
		require.NoError(t, err)
		assert.True(t, d.Allowed)
		assert.EqualValues(t, 5, m.payment("key"))
	})
}

func TestAnswerAfterTheLeaseEnded(t *testing.T) {
	in(t, thousand(), func(t *testing.T, l *Leases, m *memory, w *wire) {
		w.change(260*time.Millisecond, nil)
		_, err := l.Take("key", 5, time.Second, nil)
		assert.ErrorIs(t, err, ErrLate)
		assert.GreaterOrEqual(t, m.payment("key"), int64(15), "it goes on trying")
	}, func(c *Config) { c.Timeout = time.Minute })
}

// Units of a closing server come back. Those of a dead server drain in a term, or return with the
// next window.
//
// Promise: A dead server's funnel units are free after a term.
func TestLeasesComeBack(t *testing.T) {
	for _, limit := range []policy.Policy{
		must(policy.Funnel(10_000, 1000, time.Second)), must(policy.FixedWindow(10_000, 5*time.Second)), must(policy.SlidingWindow(10_000, 5*time.Second)),
	} {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprint(limit, dies), func(t *testing.T) {
				in(t, limit, func(t *testing.T, l *Leases, m *memory, _ *wire) {
					funnel := l.plan.shape.Kind == shape.Funnel
					warm(t, l, 2000)
					time.Sleep(2 * time.Millisecond)
					used, held := int64(2000), l.words.Peek("key", 0).Remaining
					if a := l.book.accounts["key"]; a.next.live(time.Now()) {
						held += a.next.units
					}
					require.Greater(t, held, int64(20), "there is nothing to come back")
					before := m.remaining("key")
					if dies {
						l.Kill()
						assert.Equal(t, before, m.remaining("key"))
						time.Sleep(l.plan.Term)
						if funnel {
							assert.GreaterOrEqual(t, m.remaining("key"), before+held)
						}
						time.Sleep(10 * time.Second)
						assert.EqualValues(t, l.Limit(), m.remaining("key"))
						return
					}
					require.NoError(t, l.Close(context.Background()))
					if !funnel {
						assert.Equal(t, l.Limit()-used, m.remaining("key"), "all that was not used came back")
						return
					}
					assert.Greater(t, m.remaining("key"), before+held/2)
				})
			})
		}
	}
}

func TestUnusedLeasesComeBack(t *testing.T) {
	in(t, must(policy.FixedWindow(10_000, time.Hour)), func(t *testing.T, l *Leases, m *memory, _ *wire) {
		warm(t, l, 2000)
		time.Sleep(l.plan.Term)
		assert.EqualValues(t, 8000, m.remaining("key"))
		assert.Zero(t, l.Stats().Keys)
	})
}

func TestBookIsBounded(t *testing.T) {
	in(t, must(policy.FixedWindow(1, time.Hour)), func(t *testing.T, l *Leases, m *memory, _ *wire) {
		for i := range 1000 {
			d, err := l.Take(fmt.Sprint(i), 1, budget, nil)
			require.NoError(t, err)
			require.True(t, d.Allowed)
			d, err = l.Take(fmt.Sprint(i), 1, budget, nil)
			require.NoError(t, err)
			require.False(t, d.Allowed)
			require.LessOrEqual(t, l.Stats().Keys, 64)
			require.LessOrEqual(t, l.words.Len(), 64)
		}
		time.Sleep(2 * time.Minute)
		assert.Zero(t, l.Stats().Keys)
		assert.Zero(t, l.words.Len())
		assert.Equal(t, 1000, m.keys())
	}, func(c *Config) { c.MaxKeys = 64 })
}

// No call passes unpaid, and calls without room get ErrBusy.
func TestMoreKeysAtOnceThanTheBookHolds(t *testing.T) {
	in(t, must(policy.FixedWindow(1, time.Hour)), func(t *testing.T, l *Leases, m *memory, _ *wire) {
		var all sync.WaitGroup
		var passed, busy atomic.Int64
		for i := range 100 {
			all.Go(func() {
				d, err := l.Take(fmt.Sprint(i), 1, budget, nil)
				switch {
				case errors.Is(err, ErrBusy):
					busy.Add(1)
				case assert.NoError(t, err) && d.Allowed:
					passed.Add(1)
				}
			})
		}
		all.Wait()
		assert.EqualValues(t, 8, passed.Load())
		assert.EqualValues(t, 92, busy.Load())
		assert.Equal(t, 8, m.keys())
	}, func(c *Config) { c.MaxKeys = 8 })
}

// Calls that wait get an error. After too many restarts calls fail at once, and Health says why.
func TestOwnerDies(t *testing.T) {
	for _, point := range []string{"exchange: begin", "exchange: answered"} {
		var armed atomic.Int64
		in(t, thousand(), func(t *testing.T, l *Leases, _ *memory, _ *wire) {
			warm(t, l, 10)
			armed.Store(1)
			_, err := l.Take("other", 1, budget, nil)
			require.ErrorIs(t, err, ErrUnavailable)
			require.ErrorIs(t, err, errDied)
			d, err := l.Take("other", 1, budget, nil)
			require.NoError(t, err)
			require.True(t, d.Allowed)
			require.NoError(t, l.Health())

			armed.Store(1000)
			for range 30 {
				_, err = l.Take("other", 1, budget, nil)
				if err == nil {
					_, err = l.Take(fmt.Sprint(time.Now().UnixNano()), 1, budget, nil)
				}
				require.ErrorIs(t, err, ErrUnavailable)
			}
			require.Error(t, l.Health())
			at := time.Now()
			_, err = l.Take("third", 1, time.Hour, nil)
			require.ErrorIs(t, err, ErrUnavailable)
			require.Zero(t, time.Since(at))
		}, func(c *Config) {
			c.fault = func(p string) {
				if p == point && armed.Add(-1) >= 0 {
					panic("injected")
				}
			}
		})
	}
}

func TestQuestionOutlivesTheOwner(t *testing.T) {
	var dies atomic.Bool
	in(t, thousand(), func(t *testing.T, l *Leases, m *memory, _ *wire) {
		dies.Store(true)
		var all sync.WaitGroup
		for _, key := range []string{"asked for", "queued"} {
			all.Go(func() {
				_, err := l.Take(key, 1, budget, nil)
				assert.ErrorIs(t, err, errDied)
			})
			synctest.Wait()
		}
		all.Wait()
		time.Sleep(budget)
		assert.EqualValues(t, 1, m.payment("queued"))
		assert.EqualValues(t, 1, m.keys(), "keys that the bank was asked for")
	}, func(c *Config) {
		c.Name = store.Short
		c.fault = func(point string) {
			if point == "exchange: begin" && dies.CompareAndSwap(true, false) {
				time.Sleep(time.Millisecond)
				panic("injected")
			}
		}
	})
}

func TestRestOfALeaseIsNotProlonged(t *testing.T) {
	in(t, thousand(), func(t *testing.T, l *Leases, _ *memory, _ *wire) {
		require.True(t, take(t, l, 1).Allowed)
		now := time.Now()
		l.mu.Lock()
		a := l.book.accounts["key"]
		l.install(a, hold{units: 1, sent: now, end: now.Add(100 * time.Millisecond)})
		a.next = hold{units: 50, sent: now, end: now.Add(200 * time.Millisecond)}
		l.mu.Unlock()
		require.EqualValues(t, 51, l.Held("key"))
		require.True(t, take(t, l, 2).Allowed)
		assert.LessOrEqual(t, l.Held("key"), int64(49))
		time.Sleep(150 * time.Millisecond)
		assert.LessOrEqual(t, l.Held("key"), int64(48))
	})
}

// Units left at the end of a lease are used later in the same window, or given back.
func TestWindowsLoseNothing(t *testing.T) {
	in(t, must(policy.FixedWindow(10_000, time.Hour)), func(t *testing.T, l *Leases, m *memory, _ *wire) {
		warm(t, l, 2000)
		l.mu.Lock()
		l.book.touch(l.book.accounts["key"], time.Now().Add(time.Hour)) // so not reclaimed
		l.mu.Unlock()
		time.Sleep(2 * l.plan.Term)
		require.Greater(t, m.payment("key"), int64(2000))
		require.Zero(t, l.Held("key"))
		require.True(t, take(t, l, 1).Allowed)
		require.NoError(t, l.Close(context.Background()))
		assert.EqualValues(t, 10_000-2001, m.remaining("key"))
		assert.Zero(t, l.Stats().Lapsed)
	})
}

func TestLeaseThatWaitedTooLongIsNotUsed(t *testing.T) {
	in(t, thousand(), func(t *testing.T, l *Leases, m *memory, _ *wire) {
		require.True(t, take(t, l, 1).Allowed)
		now := time.Now()
		l.mu.Lock()
		l.book.accounts["key"].next = hold{units: 50, sent: now, end: now.Add(50 * time.Millisecond)}
		l.mu.Unlock()
		time.Sleep(50 * time.Millisecond)
		assert.Zero(t, l.Held("key"))
		paid := m.payment("key")
		assert.True(t, take(t, l, 1).Allowed)
		assert.Greater(t, m.payment("key"), paid)
	})
}

// Each call is counted once.
func TestStats(t *testing.T) {
	in(t, must(policy.FixedWindow(500, time.Hour)), func(t *testing.T, l *Leases, m *memory, _ *wire) {
		var admitted, refused atomic.Uint64
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for range 200 {
					n := int64(1 + i%3)
					if i == 7 {
						n = 501
					}
					d, err := l.Take("key", n, budget, nil)
					assert.NoError(t, err)
					if d.Allowed {
						admitted.Add(1)
					} else {
						refused.Add(1)
					}
					time.Sleep(time.Duration(100+i) * time.Microsecond)
				}
			})
		}
		all.Wait()
		_, err := l.Take("key", 0, budget, nil)
		require.NoError(t, err)
		s := l.Stats()
		assert.Equal(t, admitted.Load(), s.Admitted)
		assert.Equal(t, refused.Load(), s.Refused)
		assert.EqualValues(t, m.payment("key"), s.Leased)
		assert.Greater(t, s.Admitted, uint64(200))
		assert.Greater(t, s.Refused, uint64(400))
	})
}

func TestHeldAndForget(t *testing.T) {
	in(t, must(policy.FixedWindow(10_000, time.Hour)), func(t *testing.T, l *Leases, m *memory, _ *wire) {
		assert.Zero(t, l.Held("key"))
		warm(t, l, 300)
		time.Sleep(2 * time.Millisecond)
		assert.Equal(t, m.payment("key")-300, l.Held("key"))
		require.Positive(t, l.Held("key"))
		l.Forget("key")
		l.Forget("unknown")
		assert.Zero(t, l.Held("key"))
		assert.True(t, take(t, l, 1).Allowed)
	})
	in(t, must(policy.FixedWindow(1, time.Hour)), func(t *testing.T, l *Leases, m *memory, _ *wire) {
		require.True(t, take(t, l, 1).Allowed)
		require.False(t, take(t, l, 1).Allowed)
		delete(m.words, "key")
		l.Forget("key")
		assert.True(t, take(t, l, 1).Allowed, "the refusal is remembered")
	})
}

func TestKeyThatCameOnceIsNotInTheEngine(t *testing.T) {
	in(t, thousand(), func(t *testing.T, l *Leases, _ *memory, _ *wire) {
		for i := range 100 {
			_, err := l.Take(fmt.Sprint(i), 1, budget, nil)
			require.NoError(t, err)
		}
		for range 10 {
			assert.Zero(t, l.words.Len())
			time.Sleep(l.plan.Term / 4)
		}
	})
}

// Waiting calls get ErrClosed too, and nothing is leased.
func TestClose(t *testing.T) {
	in(t, thousand(), func(t *testing.T, l *Leases, m *memory, w *wire) {
		warm(t, l, 100)
		w.change(time.Hour, nil)
		waits := make(chan error)
		go func() {
			_, err := l.Take("other", 1, time.Minute, nil)
			waits <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, l.Close(ctx))
		require.ErrorIs(t, <-waits, ErrClosed)
		_, err := l.Take("key", 1, budget, nil)
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, l.Health(), ErrClosed)
		require.NoError(t, l.Close(context.Background()))
	})
}

func TestWordThatWasEvicted(t *testing.T) {
	in(t, thousand(), func(t *testing.T, l *Leases, m *memory, _ *wire) {
		warm(t, l, 50)
		l.words.Reset("key")
		for range 100 {
			require.True(t, take(t, l, 1).Allowed)
		}
		assert.GreaterOrEqual(t, m.payment("key"), int64(150))
	})
}

// mumbling answers too little.
type mumbling struct{}

func (mumbling) Lease(context.Context, []Ask) []Grant { return nil }
func (mumbling) Return(context.Context, []Back) error { return nil }

func TestBankThatAnswersNothing(t *testing.T) {
	in(t, thousand(), func(t *testing.T, l *Leases, _ *memory, _ *wire) {
		_, err := l.Take("key", 1, budget, nil)
		assert.ErrorIs(t, err, ErrUnavailable)
		assert.NoError(t, l.Health())
	}, func(c *Config) { c.Bank = mumbling{} })
}

// Neither a lease nor a refusal allocates.
func TestHeldLeaseAllocatesNothing(t *testing.T) {
	l := rich(t)
	defer l.Close(context.Background())
	assert.Zero(t, testing.AllocsPerRun(10_000, func() {
		if d, err := l.Take("key", 1, budget, nil); err != nil || !d.Allowed {
			t.Error("there is no lease")
		}
	}))
	l.words.TakeWith(refusal{until: l.instant(time.Now().Add(time.Minute))}, "refused", 1)
	assert.Zero(t, testing.AllocsPerRun(10_000, func() {
		if d, err := l.Take("refused", 1, budget, nil); err != nil || d.Allowed {
			t.Error("it is not refused")
		}
	}))
}

// rich returns leases with the largest possible lease of "key", for a minute.
func rich(t testing.TB) *Leases {
	plan, err := NewPlan(must(policy.FixedWindow(1_000_000, time.Hour)), time.Minute)
	require.NoError(t, err)
	l, err := New(Config{Plan: plan, Bank: mumbling{}})
	require.NoError(t, err)
	refill(l)
	return l
}

func refill(l *Leases) {
	l.words.TakeWith(grant{until: l.instant(time.Now().Add(time.Minute)), units: maxUnits, mark: 1}, "key", 1)
}
