package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/lease/plan"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
)

// counting counts the Redis commands of a bank: one for each ask, and two for each return (read and
// swap).
type counting struct {
	Bank
	commands atomic.Int64
}

func (c *counting) Lease(ctx context.Context, asks []Ask) []Grant {
	c.commands.Add(int64(len(asks)))
	return c.Bank.Lease(ctx, asks)
}

func (c *counting) Return(ctx context.Context, backs []Back) error {
	c.commands.Add(2 * int64(len(backs)))
	return c.Bank.Return(ctx, backs)
}

// commandsOf makes calls for a key one by one, and returns their commands, admissions and final
// paid units.
func commandsOf(t *testing.T, limit policy.Policy, calls int, units int64, pause func() time.Duration) (commands, admitted, paid int64) {
	synctest.Test(t, func(t *testing.T) {
		leasing := must.Get(plan.New(limit, 0))
		m := newMemory(leasing)
		bank := &counting{Bank: sharp(m)}
		l := must.Get(newLeases(Config{Plan: leasing, Bank: bank, seed: 1, Timeout: 20 * time.Millisecond}))
		for range calls {
			time.Sleep(pause())
			if must.Get(takeFrom(l, "key", units, budget)).Allowed {
				admitted++
			}
		}
		// Unused units return or lapse meanwhile.
		time.Sleep(time.Minute)
		commands, paid = bank.commands.Load(), m.payment("key")
		require.NoError(t, l.Close(context.Background()))
	})
	return commands, admitted, paid
}

// Leases never cost Redis more commands than deciding each call, and far fewer for many calls.
// Promise: `Leased` costs Redis no more commands than `Exact`.
func TestFewCallsAreNotLeased(t *testing.T) {
	one(t)
	calls := 2000
	if testenv.Race || testing.Short() {
		// The calls do not overlap, so there is little to race.
		calls = 200
	}
	for _, limit := range []policy.Policy{
		// This limit admits all calls.
		policy.Must(policy.Funnel(100_000, 100_000, time.Second)),
		policy.Must(policy.SlidingWindow(1_000_000, time.Hour)),
		// This limit refuses most calls.
		policy.Must(policy.FixedWindow(20, time.Second)),
		policy.Must(policy.Funnel(10, 10, time.Second)),
	} {
		for _, each := range []float64{0.1, 0.5, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 64, 256} {
			rng := rand.New(rand.NewPCG(1, 2))
			commands, admitted, _ := commandsOf(t, limit, calls, 1, func() time.Duration {
				return time.Duration(rng.ExpFloat64() * float64(plan.DefaultTerm) / each)
			})
			t.Logf("%-40v %5.1f calls a term: %.3f commands a call, %d admitted", limit, each, float64(commands)/float64(calls), admitted)
			assert.LessOrEqual(t, commands, int64(calls), "%v, %v calls a term", limit, each)
			if each >= 32 {
				assert.LessOrEqual(t, commands, int64(calls)/2, "%v, %v calls a term", limit, each)
			}
		}
	}
	// Neither do bursts of any length, or calls of several units.
	worst := 0.0
	for burst := 1; burst <= 40; burst += 1 + testenv.RaceSlowdown/5 {
		for _, units := range []int64{1, 3} {
			n := 0
			commands, admitted, paid := commandsOf(t, policy.Must(policy.SlidingWindow(1_000_000, time.Hour)), 10*burst, units, func() time.Duration {
				if n++; n%burst == 0 {
					return time.Second
				}
				return time.Millisecond
			})
			assert.LessOrEqual(t, commands, int64(10*burst), "bursts of %d calls of %d units", burst, units)
			assert.EqualValues(t, 10*burst, admitted)
			assert.LessOrEqual(t, paid, units*admitted*5/4, "bursts of %d calls of %d units: too much lapses", burst, units)
			worst = max(worst, float64(paid)/float64(units*admitted)-1)
		}
	}
	t.Logf("at most %.0f%% more were paid than used", 100*worst)
}

func leaseAlways(always bool) func(*Config) { return func(c *Config) { c.always = always } }

// Promise: A hot key costs few commands, however many callers.
func TestLeasesGrowUnderManyCallers(t *testing.T) {
	for _, callers := range []int{1, 64, 256} {
		in(t, policy.Must(policy.FixedWindow(1_000_000, time.Hour)), func(t *testing.T, l *Leases, _ *memory, _ *wire) {
			const calls = 1 << 16
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for range calls / callers {
						d, err := takeFrom(l, "key", 1, time.Minute)
						assert.NoError(t, err)
						assert.True(t, d.Allowed)
					}
				})
			}
			all.Wait()
			assert.Less(t, l.Stats().Exchanges, uint64(40), "round trips for %d calls by %d callers", calls, callers)
		}, leaseAlways(false))
	}
}

// Only the hash of a long key is kept after the bank's answer. It finds, renews and returns the
// lease.
func TestLongKeysAreNotKept(t *testing.T) {
	in(t, policy.Must(policy.FixedWindow(10_000, time.Hour)), func(t *testing.T, l *Leases, m *memory, w *wire) {
		const keys, calls = 20, 200
		long := func(i int) string { return strings.Repeat("k", 1<<16) + fmt.Sprint(i) }
		requireShort := func(keys int) {
			t.Helper()
			if testenv.Race {
				// The detector does not know that the bubble is at rest.
				return
			}
			bytes := 0
			for _, a := range l.book.accounts {
				bytes += len(a.name)
			}
			for name := range l.words.All() {
				bytes += len(name)
			}
			require.LessOrEqual(t, bytes, 2*128*keys)
		}
		for range calls {
			for i := range keys {
				d, err := l.Take(long(i), 1, budget, nil)
				require.NoError(t, err)
				require.True(t, d.Allowed)
			}
			time.Sleep(100 * time.Microsecond)
		}
		// The last renewals are answered by then.
		time.Sleep(2 * time.Millisecond)
		assert.Equal(t, keys, l.Stats().Keys)
		requireShort(keys)
		for i := range keys {
			assert.Equal(t, m.payment(store.Short(long(i)))-calls, l.Held(long(i)))
		}
		w.change(time.Millisecond, func() fault { return fault{lost: true} })
		_, err := l.Take(long(keys), 1, time.Minute, nil)
		require.ErrorIs(t, err, errWire)
		// The names are also short for a key that the bank was asked about in vain.
		requireShort(keys + 1)
		w.change(time.Millisecond, nil)
		time.Sleep(2 * l.plan.Term)
		for i := range keys {
			assert.EqualValues(t, calls, m.payment(store.Short(long(i))), "all that was not used came back")
		}
	}, func(c *Config) { c.Name = store.Short })
}
