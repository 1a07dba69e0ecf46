package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/testkit/race"
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
	{"skewed", func(server int, _ time.Duration) float64 {
		return [servers]float64{0.85, 0.05, 0.05, 0.05}[server]
	}, 0.90},
	// The busy server changes each second.
	{"shifting", func(server int, at time.Duration) float64 {
		if int(at/time.Second)%servers == server {
			return 0.85
		}
		return 0.05
	}, 0.85},
}

// drive loads servers with calls, and returns their number and each server's admissions.
func drive(l load, perSecond float64, length time.Duration, take func(server int) bool) (calls, admitted int64, each [servers]int64) {
	var total, passed atomic.Int64
	var all [servers]atomic.Int64
	start := time.Now()
	done := make(chan struct{})
	// Each caller of a server returns at random after its answer. The others make up for the pace.
	callers := max(1, min(32, int(perSecond/20)))
	for i := range servers {
		for c := range callers {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(c+2)))
			go func() {
				defer func() { done <- struct{}{} }()
				next := time.Duration(0)
				for {
					next += time.Duration(rng.ExpFloat64() * float64(time.Second) * float64(callers) / perSecond)
					if next >= length {
						return
					}
					if rng.Float64() >= l(i, next) {
						continue
					}
					time.Sleep(next - time.Since(start))
					total.Add(1)
					if take(i) {
						passed.Add(1)
						all[i].Add(1)
					}
				}
			}()
		}
	}
	for range servers * callers {
		<-done
	}
	for i := range all {
		each[i] = all[i].Load()
	}
	return total.Load(), passed.Load(), each
}

// leased answers from servers with leases; exact asks the bank for each call.
func leased(t *testing.T, plan *Plan, m *memory) (take func(int) bool, stop func() Stats) {
	var all [servers]*Leases
	for i := range all {
		leases, err := New(Config{
			Plan: plan, Servers: func() int { return servers }, seed: uint64(i + 1),
			Bank: &wire{bank: m, trip: trips(rand.New(rand.NewPCG(uint64(i), 1)))},
		})
		require.NoError(t, err)
		all[i] = leases
	}
	return func(server int) bool {
			d, err := takeFrom(all[server], "key", 1, 50*time.Millisecond)
			assert.NoError(t, err)
			return d.Allowed
		}, func() (sum Stats) {
			for _, leases := range all {
				s := leases.Stats()
				sum.Exchanges += s.Exchanges
				sum.Lapsed += s.Lapsed
				sum.Returned += s.Returned
				require.NoError(t, leases.Close(context.Background()))
			}
			return sum
		}
}

func exact(m *memory) func(int) bool {
	return func(int) bool {
		time.Sleep(300 * time.Microsecond)
		g := m.lease(Ask{Key: "key", Need: 1, Most: 1})
		time.Sleep(300 * time.Microsecond)
		return g.Units > 0
	}
}

// times is the load in units of the limit's rate.
const times = 3

// The part of the limit that four servers use under three times its load: of capacity + rate*T, or
// of the windows' limits.
//
// Promise: Nearly the whole limit is usable, however load falls.
func TestUsableShare(t *testing.T) {
	one(t)
	for _, rate := range []int64{10, 100, 1000, 10_000} {
		if (race.Enabled || testing.Short()) && rate > 100 {
			continue // there is nothing to race, and it takes long
		}
		length := 20 * time.Second
		if rate >= 1000 {
			length = 10 * time.Second
		}
		for _, limit := range []policy.Policy{
			policy.Must(policy.Funnel(rate, rate, time.Second)),
			policy.Must(policy.FixedWindow(rate, time.Second)),
			policy.Must(policy.SlidingWindow(rate, time.Second)),
		} {
			for _, l := range loads {
				t.Run(fmt.Sprintf("%v, %s", limit, l.name), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						plan, err := NewPlan(limit, 0)
						require.NoError(t, err)
						m := newMemory(plan)
						take, stop := leased(t, plan, m)
						calls, admitted, each := drive(l.load, times*float64(rate), length, take)
						stats := stop()

						whole, direct := *plan, int64(-1)
						if whole.Policy = limit; testing.Verbose() {
							_, direct, _ = drive(l.load, times*float64(rate), length, exact(newMemory(&whole)))
						}

						most := float64(rate) * length.Seconds()
						if plan.Policy != limit {
							most += float64(rate)
						}
						share := float64(admitted) / most
						t.Logf("%v, %-8s: %5.1f%% (exact %5.1f%%) of %.0f used, by %d calls; %5.1f units a round trip, %d lapsed, %d returned; each server %d",
							limit, l.name, 100*share, 100*float64(direct)/most, most, calls,
							float64(admitted)/float64(stats.Exchanges), stats.Lapsed, stats.Returned, each)
						aim := l.aim
						if limit.(shape.Shaped).Shape().Kind == shape.SlidingWindow && rate == 10 {
							aim = 0.89 // as in exact mode: the previous window is rounded up to whole units
						}
						assert.GreaterOrEqual(t, share, aim)
						if l.name == "even" {
							assert.GreaterOrEqual(t, float64(slices.Min(each[:])), 0.75*float64(admitted)/servers, "an even load is not served evenly")
						}
					})
				})
			}
		}
	}
}
