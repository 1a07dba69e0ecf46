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

	"github.com/ral-limiter/ral/fleet/internal/lease/plan"
	"github.com/ral-limiter/ral/internal/testkit/must"
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
		leasing := must.Get(plan.New(limit, 0))
		m := newMemory(leasing)
		w := sharp(m)
		c := Config{Plan: leasing, Bank: w, seed: 1, Timeout: 20 * time.Millisecond, always: true}
		for _, f := range more {
			f(&c)
		}
		l := must.Get(newLeases(c))
		defer func() {
			require.NoError(t, l.Close(context.Background()))
			// The wires are empty by then.
			time.Sleep(3 * time.Hour)
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
	return must.Get(l.Take("key", n, budget, nil))
}

// warm makes calls that must pass, 100µs apart.
func warm(t *testing.T, l *Leases, calls int) {
	t.Helper()
	for range calls {
		require.True(t, take(t, l, 1).Allowed)
		time.Sleep(100 * time.Microsecond)
	}
}

func thousand() policy.Policy { return policy.Must(policy.Funnel(1000, 1000, time.Second)) }

func TestRefusalIsRemembered(t *testing.T) {
	in(t, policy.Must(policy.FixedWindow(10, 10*time.Second)), func(t *testing.T, l *Leases, _ *memory, _ *wire) {
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
		assert.Eventually(t, func() bool { return take(t, l, 5).Allowed }, 5*time.Second, 10*time.Millisecond)
		require.False(t, take(t, l, 6).Allowed)
		before = l.Stats()
		require.False(t, take(t, l, 7).Allowed)
		require.Equal(t, before.Exchanges, l.Stats().Exchanges, "seven do not fit where six do not")
		require.True(t, take(t, l, 5).Allowed, "five do")
	})
}

func TestBadNumberIsNeverAdmitted(t *testing.T) {
	in(t, policy.Must(policy.FixedWindow(10, time.Second)), func(t *testing.T, l *Leases, _ *memory, _ *wire) {
		for range 2 {
			for _, n := range []int64{-1, 11, math.MinInt64, math.MaxInt64} {
				assert.Equal(t, policy.Decision{Limit: 10, RetryAfter: policy.Never}, take(t, l, n))
			}
			d := take(t, l, 0)
			assert.True(t, d.Allowed)
			assert.EqualValues(t, 10, d.Limit)
			take(t, l, 10)
			// Calls are refused from here on.
			take(t, l, 1)
		}
		assert.LessOrEqual(t, l.Stats().Exchanges, uint64(3))
	})
}

// Calls get an error within their budget, and held leases last until their end.
func TestHeldLeasesOutliveAFailedBank(t *testing.T) {
	in(t, policy.Must(policy.FixedWindow(100_000, time.Hour)), func(t *testing.T, l *Leases, _ *memory, w *wire) {
		warm(t, l, 1000)
		w.change(time.Millisecond, func() fault { return fault{lost: true} })
		held := take(t, l, 1).Remaining
		for range held {
			require.True(t, must.Get(l.Take("key", 1, 0, nil)).Allowed, "it was paid")
		}
		begun := time.Now()
		_, err := l.Take("key", 1, budget, nil)
		assert.ErrorIs(t, err, ErrLate)
		assert.Equal(t, budget, time.Since(begun))
		_, err = l.Take("key", 1, time.Second, nil)
		assert.ErrorIs(t, err, ErrUnavailable)
		assert.ErrorIs(t, err, errWire)
		assert.NoError(t, l.Health())

		done := make(chan struct{})
		close(done)
		_, err = l.Take("key", 1, time.Hour, done)
		assert.ErrorIs(t, err, ErrLate)

		w.change(time.Millisecond, nil)
		time.Sleep(l.config.Timeout)
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
		assert.True(t, must.Get(l.Take("key", 5, 0, nil)).Allowed)
		assert.EqualValues(t, 5, m.payment("key"))
	})
}

// Units of a closing server come back. Those of a dead server drain in a term, or return with the
// next window.
// Promise: A dead server's funnel units are free after a term.
func TestLeasesComeBack(t *testing.T) {
	for _, limit := range []policy.Policy{
		policy.Must(policy.Funnel(10_000, 1000, time.Second)), policy.Must(policy.FixedWindow(10_000, 5*time.Second)), policy.Must(policy.SlidingWindow(10_000, 5*time.Second)),
	} {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprint(limit, dies), func(t *testing.T) {
				in(t, limit, func(t *testing.T, l *Leases, m *memory, _ *wire) {
					funnel := l.plan.Drains()
					warm(t, l, 2000)
					time.Sleep(2 * time.Millisecond)
					used, held := int64(2000), l.words.Peek("key", 0).Remaining
					if a := l.book.accounts["key"]; a.Next.Live(time.Now()) {
						held += a.Next.Units
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

// Keys that the book has no room for get ErrBusy, and none passes unpaid.
func TestBookIsBounded(t *testing.T) {
	const most = 8
	in(t, policy.Must(policy.FixedWindow(1, time.Hour)), func(t *testing.T, l *Leases, m *memory, _ *wire) {
		for i := range 100 {
			for _, allowed := range []bool{true, false} {
				require.Equal(t, allowed, must.Get(l.Take(fmt.Sprint(i), 1, budget, nil)).Allowed)
			}
			require.LessOrEqual(t, l.Stats().Keys, most)
			require.LessOrEqual(t, l.words.Len(), most)
		}
		time.Sleep(2 * time.Minute)
		assert.Zero(t, l.Stats().Keys)
		assert.Zero(t, l.words.Len())
		assert.Equal(t, 100, m.keys())

		var all sync.WaitGroup
		var passed, busy atomic.Int64
		for i := range 100 {
			all.Go(func() {
				d, err := l.Take(fmt.Sprint("another ", i), 1, budget, nil)
				switch {
				case errors.Is(err, ErrBusy):
					busy.Add(1)
				case assert.NoError(t, err) && d.Allowed:
					passed.Add(1)
				}
			})
		}
		all.Wait()
		assert.EqualValues(t, most, passed.Load())
		assert.EqualValues(t, 100-most, busy.Load())
		assert.Equal(t, 100+most, m.keys())
	}, func(c *Config) { c.MaxKeys = most })
}

// Calls that wait get an error. After too many restarts calls fail at once, and Health says why.
func TestDeadOwnerFailsWaitingCalls(t *testing.T) {
	for _, point := range []string{"exchange: begin", "exchange: answered"} {
		var armed atomic.Int64
		in(t, thousand(), func(t *testing.T, l *Leases, _ *memory, _ *wire) {
			warm(t, l, 10)
			armed.Store(1)
			_, err := l.Take("other", 1, budget, nil)
			require.ErrorIs(t, err, ErrUnavailable)
			require.ErrorIs(t, err, errDied)
			require.True(t, must.Get(l.Take("other", 1, budget, nil)).Allowed)
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
			begun := time.Now()
			_, err = l.Take("third", 1, time.Hour, nil)
			require.ErrorIs(t, err, ErrUnavailable)
			require.Zero(t, time.Since(begun))
		}, func(c *Config) {
			c.fault = func(p string) {
				if p == point && armed.Add(-1) >= 0 {
					panic("injected")
				}
			}
		})
	}
}

func TestRestOfALeaseIsNotProlonged(t *testing.T) {
	in(t, thousand(), func(t *testing.T, l *Leases, _ *memory, _ *wire) {
		require.True(t, take(t, l, 1).Allowed)
		now := time.Now()
		l.mu.Lock()
		a := l.book.accounts["key"]
		l.install(a, plan.Hold{Units: 1, Sent: now, End: now.Add(100 * time.Millisecond)})
		a.Next = plan.Hold{Units: 50, Sent: now, End: now.Add(200 * time.Millisecond)}
		l.mu.Unlock()
		require.EqualValues(t, 51, l.Held("key"))
		require.True(t, take(t, l, 2).Allowed)
		assert.LessOrEqual(t, l.Held("key"), int64(49))
		time.Sleep(150 * time.Millisecond)
		assert.LessOrEqual(t, l.Held("key"), int64(48))
	})
}

// Each call is counted once, and so is each unit.
func TestEachCallAndUnitIsCountedOnce(t *testing.T) {
	in(t, policy.Must(policy.FixedWindow(500, time.Hour)), func(t *testing.T, l *Leases, m *memory, _ *wire) {
		var admitted, refused atomic.Uint64
		var all sync.WaitGroup
		for _, n := range []int64{1, 2, 3, 1, 2, 501} {
			all.Go(func() {
				for range 200 {
					if take(t, l, n).Allowed {
						admitted.Add(1)
					} else {
						refused.Add(1)
					}
					time.Sleep(time.Duration(100+n) * time.Microsecond)
				}
			})
		}
		all.Wait()
		// A look is not counted.
		take(t, l, 0)
		s := l.Stats()
		assert.Equal(t, []uint64{admitted.Load(), refused.Load()}, []uint64{s.Admitted, s.Refused})
		assert.EqualValues(t, m.payment("key"), s.Leased)
		assert.Greater(t, s.Admitted, uint64(200))
		assert.Greater(t, s.Refused, uint64(400))
	})
}

func TestForgetDropsLeaseAndRefusal(t *testing.T) {
	in(t, policy.Must(policy.FixedWindow(10_000, time.Hour)), func(t *testing.T, l *Leases, m *memory, _ *wire) {
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
	in(t, policy.Must(policy.FixedWindow(1, time.Hour)), func(t *testing.T, l *Leases, m *memory, _ *wire) {
		require.True(t, take(t, l, 1).Allowed)
		require.False(t, take(t, l, 1).Allowed)
		delete(m.words, "key")
		l.Forget("key")
		assert.True(t, take(t, l, 1).Allowed, "the refusal is remembered")
	})
}

// Waiting calls get ErrClosed too, and nothing is leased.
func TestCloseEndsWaitingCalls(t *testing.T) {
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

// An answer arrives when the lease that it grants has ended. No call uses its units, and the next
// answer in time serves the call that waits.
// Promise: Units of a lease are never used after its end, also by calls that waited for it.
func TestNoCallIsServedFromAnEndedLease(t *testing.T) {
	for _, limit := range []policy.Policy{thousand(), policy.Must(policy.FixedWindow(1000, time.Second)), policy.Must(policy.SlidingWindow(1000, time.Second))} {
		in(t, limit, func(t *testing.T, l *Leases, _ *memory, w *wire) {
			w.change(3*time.Second, nil)
			_, err := l.Take("key", 5, 4*time.Second, nil)
			require.ErrorIs(t, err, ErrLate, "%v", limit)
			require.Positive(t, l.Stats().Lapsed)
			w.change(time.Millisecond, nil)
			d, err := l.Take("key", 5, 4*time.Second, nil)
			require.NoError(t, err)
			require.True(t, d.Allowed)
		}, func(c *Config) { c.Timeout = time.Minute })
	}
}

// Each first call of a key finds no lease, and is admitted by the bank. Callers look at the counts
// while the others call.
// Promise: In leased mode no call counts as refused that was not.
func TestStatsCountNoRefusalThatWasNone(t *testing.T) {
	in(t, thousand(), func(t *testing.T, l *Leases, _ *memory, _ *wire) {
		var all sync.WaitGroup
		for caller := range 4 {
			all.Go(func() {
				for i := range 500 {
					assert.True(t, must.Get(l.Take(fmt.Sprint(caller, " ", i), 1, time.Second, nil)).Allowed)
					assert.Zero(t, l.Stats().Refused)
				}
			})
		}
		all.Wait()
		assert.EqualValues(t, 2000, l.Stats().Admitted)
		assert.Zero(t, l.Stats().Refused)
	})
}
