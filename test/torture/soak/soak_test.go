package soak

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ral-limiter/ral/internal/testkit/testenv"
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
	if testenv.Race || testing.Short() {
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
	assert.Zero(t, left.Keys, "idle keys do not leave")
	assert.LessOrEqual(t, left.Heap, last.Heap/10+8<<20, "memory is held on to")
	if *lasting > 0 {
		assert.GreaterOrEqual(t, ratio, 0.9)
	}
}
