package soak

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/race"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/test/torture/internal/fault"
)

var (
	lasting = flag.Duration("for", 0, "how long TestSoak goes on; 0 is the short part")
	seed    = flag.Uint64("seed", 1, "the seed of the workloads; 0 is another one each time")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	goleak.VerifyTestMain(m)
}

// A million keys and 16 goroutines, with a fault every 100 ms in every other period. Checked:
//
//  1. no key passes more often than its limit allows;
//  2. no key is forgiven, and no call is answered without a record;
//  3. a key takes as much memory in the end as in the beginning; afterwards all keys leave, and
//     memory is given back;
//  4. in the long part: throughput is at least 0.9 of the throughput without faults.
func TestSoak(t *testing.T) {
	load := Load{Seed: *seed, Keys: 1_000_000, Callers: 16, Period: time.Second, Every: 100 * time.Millisecond}
	rounds := 2
	if race.Enabled {
		load.Keys, rounds, load.Period = 20_000, 1, 500*time.Millisecond
	}
	if *lasting > 0 {
		load.Period = 5 * time.Second
		rounds = max(int(*lasting/(2*load.Period)), 3)
	}
	s, err := Start(load)
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	s.Run(false) // to warm up
	var periods []Period
	for range rounds {
		for _, faulty := range []bool{true, false} {
			p := s.Run(faulty)
			periods = append(periods, p)
			require.NoError(t, s.Judge(), "go test ./soak -run TestSoak -for %v -seed %d", *lasting, *seed)
			say := t.Logf
			if *lasting > 0 {
				say = func(format string, args ...any) { fmt.Fprintf(os.Stderr, "soak: "+format+"\n", args...) }
			}
			say("faults %2d: %8d calls a second, longest on the wall %8v, %4d MiB in use, %d keys",
				p.Faults, p.Calls, p.Longest.Round(10*time.Microsecond), p.Heap>>20, p.Keys)
		}
	}
	stats, ratio := s.Stats(), Ratio(periods)
	t.Logf("throughput with faults is %.3f of that without; %d restarts, %d evictions; seed %d",
		ratio, stats.Restarts, stats.Evicted, *seed)

	assert.Positive(t, stats.Restarts)
	assert.Greater(t, s.Watched(), int64(watchedKeys*capacity), "the watched keys are not at their limit: the check sees nothing")
	first, last := periods[0], periods[len(periods)-1]
	// While the index is rebuilt, parts of it exist twice, and there is garbage.
	assert.LessOrEqual(t, last.PerKey(), max(first.PerKey()*5/4, 110), "keys take more and more memory")
	left, took := s.Rest(2 * time.Minute)
	t.Logf("%v after the last call %d keys are left, and %d MiB of %d", took.Round(time.Millisecond), left.Keys, left.Heap>>20, last.Heap>>20)
	assert.Zero(t, left.Keys, "they do not leave")
	assert.LessOrEqual(t, left.Heap, last.Heap/10+8<<20, "memory is held on to")
	if *lasting > 0 {
		assert.GreaterOrEqual(t, ratio, 0.9)
	}
}

// The time of a call in a bubble is the time that Ral made it wait. Checked, with a fault every 100
// ms, in a table with room for all and in a full table:
//
//  1. a call on a known key does not wait at all;
//  2. a call on a new key waits OpenTimeout at most, and not at all if there is room;
//  3. some wait: the check sees something.
func TestNoCallWaitsBeyondItsLimit(t *testing.T) {
	const callers, known, timeout = 16, 500, 10 * time.Millisecond
	// Each known key is called 13 times a second on average and drains 5 units, so that it always
	// owes: otherwise it could be evicted.
	const drains = 5
	lasts := 20 * time.Second // of virtual time
	if race.Enabled {
		lasts /= 4
	}
	for name, most := range map[string]int{"room": 1 << 20, "full": 2 * known} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sabotage := &fault.Switch{Stall: stall}
				e, err := engine.New[uint64](engine.Config{
					Policy:  sabotage.Wrap(policy.Must(policy.Funnel(capacity, drains, time.Second))),
					MaxKeys: most, OpenTimeout: timeout, Restarts: 1 << 30, Idle: idle,
				})
				require.NoError(t, err)
				defer e.Close()
				for range capacity {
					for key := range uint64(known) {
						e.Choke(key)
					}
				}
				var fresh atomic.Uint64
				fresh.Store(1 << 32)
				var waited atomic.Int64
				begin := time.Now()
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						dice := rand.New(rand.NewPCG(*seed, uint64(i)))
						for n := 0; time.Since(begin) < lasts; n++ {
							called := time.Now()
							e.Choke(dice.Uint64N(known))
							if took := time.Since(called); took > 0 {
								t.Errorf("a call on a known key waited %v", took)
							}
							if n%4 == 0 {
								e.Choke(fresh.Add(1))
								took := time.Since(called)
								if took > timeout || most > 2*known && took > 0 {
									t.Errorf("a call on a new key waited %v", took)
								}
								if took > 0 {
									waited.Add(1)
								}
							}
							time.Sleep(time.Duration(1+dice.IntN(4)) * time.Millisecond)
						}
					})
				}
				all.Go(func() {
					for n := 0; time.Since(begin) < lasts; n++ {
						time.Sleep(100 * time.Millisecond)
						sabotage.Arm(fault.Panic + fault.Kind(n%3))
					}
				})
				all.Wait()
				require.NoError(t, e.Health())
				assert.Greater(t, sabotage.Fired(), int64(lasts/(200*time.Millisecond)), "seed %d", *seed)
				assert.LessOrEqual(t, e.Len(), most)
				if most == 2*known {
					assert.Positive(t, waited.Load(), "no call waited: the check sees nothing")
				}
			})
		})
	}
}
