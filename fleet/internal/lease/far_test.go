package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/race"
	"github.com/ral-limiter/ral/policy"
)

// farRate is the limit's rate a second, and the unit of the load.
const farRate = 1000

// farRun is servers far from the bank, and their calls.
type farRun struct {
	limit  policy.Policy
	term   time.Duration
	trip   time.Duration
	budget time.Duration
	load   load
	times  float64 // the limit's rate
	length time.Duration
}

type farOutcome struct {
	calls, admitted, late int
	p50, p99, longest     time.Duration // waits of calls
	usable                float64       // admitted part of the limit
	lapsed                float64       // lapsed part of the leased units
	commands              float64       // Redis commands a call
}

// run makes calls at random, independently of the answers.
func (f farRun) run(t *testing.T) (out farOutcome) {
	synctest.Test(t, func(t *testing.T) {
		plan, err := NewPlan(f.limit, f.term)
		require.NoError(t, err)
		m := newMemory(plan)
		var mu sync.Mutex
		var waits []time.Duration
		var all sync.WaitGroup
		var stats Stats
		commands := int64(0)
		start := time.Now()
		for i := range servers {
			all.Go(func() {
				var calls sync.WaitGroup
				bank := &counting{Bank: &wire{bank: m, trip: func() time.Duration { return f.trip }}}
				l, err := New(Config{
					Plan: plan, Bank: bank, Servers: func() int { return servers }, seed: uint64(i + 1), Timeout: 8 * f.budget,
				})
				require.NoError(t, err)
				rng := rand.New(rand.NewPCG(uint64(i), 7))
				for next := time.Duration(0); next < f.length; {
					next += time.Duration(rng.ExpFloat64() * float64(time.Second) / (f.times * farRate))
					if rng.Float64() >= f.load(i, next) {
						continue
					}
					time.Sleep(next - time.Since(start))
					calls.Go(func() {
						at := time.Now()
						d, err := takeFrom(l, "key", 1, f.budget)
						mu.Lock()
						defer mu.Unlock()
						waits = append(waits, time.Since(at))
						switch {
						case errors.Is(err, ErrLate), errors.Is(err, errWire):
							out.late++
						case err != nil:
							t.Error(err)
						case d.Allowed:
							out.admitted++
						}
					})
				}
				calls.Wait()
				s := l.Stats()
				mu.Lock()
				stats.Leased += s.Leased
				stats.Lapsed += s.Lapsed
				commands += bank.commands.Load()
				mu.Unlock()
				require.NoError(t, l.Close(context.Background()))
			})
		}
		all.Wait()
		time.Sleep(time.Hour) // until the wires are empty
		slices.Sort(waits)
		out.calls, out.p50, out.p99, out.longest = len(waits), waits[len(waits)/2], waits[len(waits)*99/100], waits[len(waits)-1]
		has := farRate * f.length.Seconds()
		if plan.Policy != f.limit {
			has += float64(f.limit.Limit())
		}
		out.usable = float64(out.admitted) / has
		out.lapsed = float64(stats.Lapsed) / max(float64(stats.Leased), 1)
		out.commands = float64(commands) / float64(out.calls)
	})
	return out
}

// Four servers far from the bank nearly always answer at once and use nearly all of the limit,
// under any load. -v prints the table of docs/fleet.md, also for near banks.
//
// Promise: Calls on leases wait little with Redis 100 ms away.
func TestLeasesFromAFarBank(t *testing.T) {
	one(t)
	trips := []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond}
	if testing.Short() || !testing.Verbose() {
		trips = trips[2:]
	}
	if race.Enabled {
		t.Log("the shares and waits are asserted without the race detector") // there is nothing to race
	}
	for _, limit := range []policy.Policy{
		must(policy.Funnel(10*farRate, farRate, time.Second)), must(policy.FixedWindow(10*farRate, 10*time.Second)),
	} {
		for _, trip := range trips {
			for _, l := range loads {
				f := farRun{limit: limit, trip: trip, budget: 3 * trip, load: l.load, length: 20 * time.Second}
				if race.Enabled {
					f.length = time.Second
				}
				f.times = 0.9
				calm := f.run(t)
				f.times = times
				busy := f.run(t)
				t.Logf("| %v | %v | %s | %v, %v, %v | %.1f%% | %.1f%% | %.3f, %.3f |", limit, trip, l.name,
					calm.p50.Round(time.Millisecond/10), calm.p99.Round(time.Millisecond/10), calm.longest.Round(time.Millisecond/10),
					100*calm.lapsed, 100*busy.usable, calm.commands, busy.commands)
				assert.Zero(t, calm.late+busy.late, "calls that waited for three round trips")
				if race.Enabled {
					continue
				}
				assert.Equal(t, calm.calls, calm.admitted)
				assert.Zero(t, calm.p50)
				assert.Less(t, calm.p99, 2*trip)
				assert.Less(t, calm.lapsed, 0.1)
				assert.GreaterOrEqual(t, busy.usable, min(l.aim+0.07, 0.94)) // 0.92 if the load shifts
			}
		}
	}
}
