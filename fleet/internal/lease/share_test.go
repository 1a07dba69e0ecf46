package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/lease/plan"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
)

const servers = 4

// load returns a server's part of the calls at a time. The parts add up to 1.
type load func(server int, at time.Duration) float64

var loads = []struct {
	name string
	load load
	aim  float64
}{
	{"even", func(int, time.Duration) float64 { return 0.25 }, 0.95},
	{"skewed", func(server int, _ time.Duration) float64 { return [servers]float64{0.85, 0.05, 0.05, 0.05}[server] }, 0.90},
	// The busy server changes each second.
	{"shifting", func(server int, at time.Duration) float64 {
		if int(at/time.Second)%servers == server {
			return 0.85
		}
		return 0.05
	}, 0.85},
}

// times is the load in units of the limit's rate.
const times = 3

// loadRun is servers of a limit, and their calls.
type loadRun struct {
	limit policy.Policy
	// rate is the units of the limit in a second.
	rate int64
	// trip is the time to the bank and back.
	trip   time.Duration
	budget time.Duration
	load   load
	// times is the load as a multiple of the limit's rate.
	times  float64
	length time.Duration
}

type loadOutcome struct {
	calls, late int
	// each has the admitted calls of each server.
	each     [servers]int64
	admitted int64
	// p50, p99 and longest are the waits of calls.
	p50, p99, longest time.Duration
	// usable is the admitted part of the limit.
	usable float64
	// lapsed is the lapsed part of the leased units.
	lapsed float64
	// commands is the number of Redis commands a call.
	commands float64
}

// run makes calls at random, independently of the answers.
func (r loadRun) run(t *testing.T) (out loadOutcome) {
	synctest.Test(t, func(t *testing.T) {
		leasing := must.Get(plan.New(r.limit, 0))
		m := newMemory(leasing)
		var mu sync.Mutex
		var waits []time.Duration
		var all sync.WaitGroup
		var stats Stats
		commands := int64(0)
		start := time.Now()
		for i := range servers {
			all.Go(func() {
				var calls sync.WaitGroup
				bank := &counting{Bank: &wire{bank: m, trip: func() time.Duration { return r.trip }}}
				l := must.Get(newLeases(Config{
					Plan: leasing, Bank: bank, Servers: func() int { return servers }, seed: uint64(i + 1), Timeout: 8 * r.budget,
				}))
				rng := rand.New(rand.NewPCG(uint64(i), 7))
				for next := time.Duration(0); next < r.length; {
					next += time.Duration(rng.ExpFloat64() * float64(time.Second) / (r.times * float64(r.rate)))
					if rng.Float64() >= r.load(i, next) {
						continue
					}
					time.Sleep(next - time.Since(start))
					calls.Go(func() {
						begun := time.Now()
						d, err := takeFrom(l, "key", 1, r.budget)
						mu.Lock()
						defer mu.Unlock()
						waits = append(waits, time.Since(begun))
						switch {
						case errors.Is(err, ErrLate), errors.Is(err, errWire):
							out.late++
						case err != nil:
							t.Error(err)
						case d.Allowed:
							out.each[i]++
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
		// The wires are empty by then.
		time.Sleep(time.Hour)
		slices.Sort(waits)
		out.calls, out.p50, out.p99, out.longest = len(waits), waits[len(waits)/2], waits[len(waits)*99/100], waits[len(waits)-1]
		has := float64(r.rate) * r.length.Seconds()
		if leasing.Policy != r.limit {
			has += float64(r.limit.Limit())
		}
		out.usable = float64(out.admitted) / has
		out.lapsed = float64(stats.Lapsed) / max(float64(stats.Leased), 1)
		out.commands = float64(commands) / float64(out.calls)
	})
	return out
}

// The part of the limit that four servers use under three times its load: of capacity + rate*T, or
// of the windows' limits.
// Promise: Nearly the whole limit is usable, however load falls.
func TestNearlyTheWholeLimitIsUsable(t *testing.T) {
	one(t)
	for _, rate := range []int64{10, 100, 1000, 10_000} {
		if (testenv.Race || testing.Short()) && rate > 100 {
			// There is nothing to race, and the test takes long.
			continue
		}
		r := loadRun{rate: rate, trip: 600 * time.Microsecond, budget: 50 * time.Millisecond, times: times, length: 20 * time.Second}
		if rate >= 1000 {
			r.length = 10 * time.Second
		}
		for _, r.limit = range []policy.Policy{
			policy.Must(policy.Funnel(rate, rate, time.Second)), policy.Must(policy.FixedWindow(rate, time.Second)), policy.Must(policy.SlidingWindow(rate, time.Second)),
		} {
			for _, l := range loads {
				t.Run(fmt.Sprintf("%v, %s", r.limit, l.name), func(t *testing.T) {
					r.load = l.load
					out := r.run(t)
					t.Logf("%5.1f%% used, by %d calls; %.3f commands a call; each server %d", 100*out.usable, out.calls, out.commands, out.each)
					aim := l.aim
					if r.limit.(shape.Shaped).Shape().Kind == shape.SlidingWindow && rate == 10 {
						// In exact mode, too, the previous window is rounded up to whole units.
						aim = 0.89
					}
					assert.GreaterOrEqual(t, out.usable, aim)
					assert.Zero(t, out.late)
					// Of few calls, chance has more come to some servers.
					if l.name == "even" && rate > 10 {
						assert.GreaterOrEqual(t, float64(slices.Min(out.each[:])), 0.75*float64(out.admitted)/servers, "an even load is not served evenly")
					}
				})
			}
		}
	}
}

// Four servers far from the bank nearly always answer at once and use nearly all of the limit,
// under any load. -v prints the table of docs/fleet.md, also for near banks.
// Promise: Calls on leases wait little with Redis 100 ms away.
func TestLeasesFromAFarBank(t *testing.T) {
	one(t)
	trips := []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond}
	if testing.Short() || !testing.Verbose() {
		trips = trips[2:]
	}
	if testenv.Race {
		// The detector finds nothing to race here.
		t.Log("the shares and waits are asserted without the race detector")
	}
	const rate = 1000
	for _, limit := range []policy.Policy{
		policy.Must(policy.Funnel(10*rate, rate, time.Second)), policy.Must(policy.FixedWindow(10*rate, 10*time.Second)),
	} {
		for _, trip := range trips {
			for _, l := range loads {
				r := loadRun{limit: limit, rate: rate, trip: trip, budget: 3 * trip, load: l.load, length: 20 * time.Second}
				if testenv.Race {
					r.length = time.Second
				}
				r.times = 0.9
				calm := r.run(t)
				r.times = times
				busy := r.run(t)
				t.Logf("| %v | %v | %s | %v, %v, %v | %.1f%% | %.1f%% | %.3f, %.3f |", limit, trip, l.name,
					calm.p50.Round(time.Millisecond/10), calm.p99.Round(time.Millisecond/10), calm.longest.Round(time.Millisecond/10),
					100*calm.lapsed, 100*busy.usable, calm.commands, busy.commands)
				assert.Zero(t, calm.late+busy.late, "calls that waited for three round trips")
				if testenv.Race {
					continue
				}
				assert.EqualValues(t, calm.calls, calm.admitted)
				assert.Zero(t, calm.p50)
				assert.Less(t, calm.p99, 2*trip)
				assert.Less(t, calm.lapsed, 0.1)
				// The share is 0.92 if the load shifts.
				assert.GreaterOrEqual(t, busy.usable, min(l.aim+0.07, 0.94))
			}
		}
	}
}

// hoard leases the whole limit to some servers, and keeps them waiting for another key, so that
// none gives units back. After some terms it uses all units of the servers and the bank at one
// instant. It returns the units used, and fails if they exceed the limit.
func hoard(t *testing.T, limit policy.Policy, terms float64) (used int64) {
	synctest.Test(t, func(t *testing.T) {
		leasing := must.Get(plan.New(limit, 0))
		// Leases last as long as they may.
		leasing = must.Get(plan.New(limit, leasing.Term))
		m := newMemory(leasing)
		var log audit
		var all []*Leases
		for range servers {
			w := sharp(m)
			w.change(time.Minute, nil)
			l := must.Get(newLeases(Config{Plan: leasing, Bank: w, Timeout: time.Minute, seed: 1, always: true}))
			go func() { _, _ = l.Take("other", 1, budget, nil) }()
			all = append(all, l)
		}
		synctest.Wait()
		start := time.Now()
		for _, l := range all {
			l.mu.Lock()
			a, _ := l.book.open("key", start)
			ask := Ask{Key: "key", Need: 1, Most: leasing.Limit() / servers}
			l.answer(a, start, ask, m.lease(ask))
			l.mu.Unlock()
		}
		time.Sleep(time.Duration(terms * float64(leasing.Term)))
		for _, l := range all {
			for {
				d, ok := l.Try("key", 1)
				if !ok || !d.Allowed {
					break
				}
				used++
			}
		}
		used += m.lease(Ask{Key: "key", Need: 1, Most: leasing.Limit()}).Granted
		log.add("key", m.now(), used)
		assert.NoError(t, log.fault(limit.(shape.Shaped).Shape(), m), "after %v terms", terms)
		for _, l := range all {
			l.Kill()
		}
		// The wires are empty by then.
		time.Sleep(time.Hour)
	})
	return used
}

// Leased units and units drained since, used at one instant, keep the limit. Shortly before leases
// of a funnel end this uses all of its capacity: longer leases would exceed it.
func TestHoardedLeasesKeepTheLimit(t *testing.T) {
	one(t)
	for _, limit := range []policy.Policy{
		policy.Must(policy.Funnel(1000, 1000, time.Second)),
		policy.Must(policy.Funnel(400, 2000, time.Second)),
		policy.Must(policy.Funnel(2000, 100, time.Second)),
		policy.Must(policy.FixedWindow(1000, 10*time.Second)),
		policy.Must(policy.SlidingWindow(1000, 10*time.Second)),
	} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			s, most := limit.(shape.Shaped).Shape(), int64(0)
			for _, terms := range []float64{0.5, 0.998, 1, 1.01, 1.1, 1.25, 1.5, 2, 3, 3.9, 5, 10, 100} {
				used := hoard(t, limit, terms)
				if most = max(most, used); terms > 1 && s.Kind == shape.Funnel {
					assert.LessOrEqual(t, used, s.Capacity-s.Capacity/100, "after %v terms leases are still of use", terms)
				}
			}
			if s.Kind == shape.Funnel {
				assert.GreaterOrEqual(t, most, s.Capacity*99/100, "this tries too little")
			}
		})
	}
}
