package simulation

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ral-limiter/ral/internal/testkit/testenv"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "the seed that TestReplay runs, and tells all about")
	firstFlag = flag.Uint64("first", 1, "the first seed of TestSeeds and TestLong")
	seedsFlag = flag.Int("seeds", 100_000, "how many seeds TestSeeds runs, a tenth with -short, a twentieth under the race detector")
	forFlag   = flag.Duration("for", 0, "how long TestLong runs; give -timeout 0 as well")
)

// TestSeeds runs a number of seeds from -first on. The package comment lists the checks.
func TestSeeds(t *testing.T) {
	seeds := *seedsFlag
	if testing.Short() {
		seeds /= 10
	}
	if testenv.Race {
		seeds /= 20
	}
	s := newSeries(*firstFlag, *firstFlag+uint64(seeds), 0)
	s.run(t)
	s.report(t.Logf)
	if t.Failed() || seeds < 50_000 {
		return
	}
	for _, point := range points {
		assert.Positive(t, s.died[point], "no death at %q", point)
	}
	for _, how := range []string{"panic", "Goexit"} {
		assert.Positive(t, s.died[how], "no death by a %s", how)
	}
}

// TestLong runs seeds for as long as -for says. By default the first is taken from the time.
func TestLong(t *testing.T) {
	if *forFlag == 0 {
		t.Skip("asked for by -for")
	}
	first := *firstFlag
	if first == 1 {
		first = uint64(time.Now().UnixNano()) >> 8 << 32
	}
	s := newSeries(first, first+1<<32, *forFlag)
	stop := make(chan struct{})
	var shown sync.WaitGroup
	shown.Go(func() {
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				s.report(func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) })
			}
		}
	})
	s.run(t)
	close(stop)
	shown.Wait()
	s.report(t.Logf)
}

// TestReplay runs a seed again and logs each event.
func TestReplay(t *testing.T) {
	if *seedFlag == 0 {
		t.Skip("asked for by -seed")
	}
	s := newSeries(*seedFlag, *seedFlag+1, 0)
	s.log = func(line string) { fmt.Println(line) }
	s.run(t)
}

// A run depends only on its seed, not on earlier runs or the process.
func TestSameSeedSameRun(t *testing.T) {
	const first, seeds = 1, 400
	hashes := func(backwards bool) []string {
		all := make([]string, seeds)
		synctest.Test(t, func(t *testing.T) {
			for i := range seeds {
				if backwards {
					i = seeds - 1 - i
				}
				r := Run(first+uint64(i), nil)
				all[i] = fmt.Sprintf("%d %d %x", r.Seed, r.Steps, r.Hash)
			}
		})
		return all
	}
	// same compares run by run: a difference of all at once is too long to read.
	same := func(one, other []string, message string) {
		require.Len(t, other, len(one), message)
		for i := range one {
			require.Equal(t, one[i], other[i], message)
		}
	}
	if os.Getenv("RAL_SIMULATION_HASHES") != "" {
		fmt.Printf("<<%s>>", strings.Join(hashes(false), "\n"))
		return
	}
	one := hashes(false)
	same(one, hashes(true), "the same seeds in another order")

	command := exec.Command(os.Args[0], "-test.run=^TestSameSeedSameRun$")
	command.Env = append(os.Environ(), "RAL_SIMULATION_HASHES=1")
	out, err := command.Output()
	require.NoError(t, err)
	_, out, _ = bytes.Cut(out, []byte("<<"))
	out, _, _ = bytes.Cut(out, []byte(">>"))
	same(one, strings.Split(string(out), "\n"), "the same seeds in another process")

	different := map[string]bool{}
	for _, line := range one {
		different[line[strings.LastIndex(line, " "):]] = true
	}
	require.Len(t, different, seeds, "other seeds, other runs")
}

// series runs seeds on all processors, until the last, a failure, or the end of its time.
type series struct {
	next, end uint64
	begin     time.Time
	lasts     time.Duration // 0: until the last seed
	log       func(string)

	mu     sync.Mutex
	failed atomic.Bool
	seeds  uint64
	steps  uint64
	died   map[string]int
}

func newSeries(first, end uint64, lasts time.Duration) *series {
	return &series{next: first, end: end, begin: time.Now(), lasts: lasts, died: map[string]int{}}
}

// batch is the number of seeds that a worker takes at once, in a bubble.
const batch = 64

func (s *series) take() (first, end uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed.Load() || s.lasts > 0 && time.Since(s.begin) > s.lasts {
		return 0, 0
	}
	first = s.next
	s.next = min(s.next+batch, s.end)
	return first, s.next
}

func (s *series) run(t *testing.T) {
	// Each world has its own engine; collecting them would take most of the time.
	percent := debug.SetGCPercent(800)
	defer debug.SetGCPercent(percent)
	t.Run("workers", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i+1), func(t *testing.T) {
				t.Parallel()
				for {
					first, end := s.take()
					if first == end {
						return
					}
					synctest.Test(t, func(t *testing.T) { s.some(t, first, end) })
				}
			})
		}
	})
}

func (s *series) some(t *testing.T, first, end uint64) {
	for seed := first; seed < end && !s.failed.Load(); seed++ {
		r := Run(seed, s.log)
		s.note(r)
		if r.Failure == "" {
			continue
		}
		s.failed.Store(true)
		story := fmt.Sprintf("%s\n\n  To see it again, in torture/: go test ./simulation -run TestReplay -seed %d\n", r.Failure, seed)
		if r.Stuck {
			// Stuck goroutines would keep the bubble from ending.
			fmt.Fprintln(os.Stderr, story)
			os.Exit(1)
		}
		t.Error(story)
	}
}

func (s *series) note(r Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seeds++
	s.steps += uint64(r.Steps)
	for _, d := range r.Deaths {
		s.died[d.Point]++
		s.died[d.How]++
	}
}

func (s *series) report(printf func(format string, args ...any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := time.Since(s.begin)
	left := ""
	if s.lasts > 0 {
		left = fmt.Sprintf(", %v left", max(s.lasts-took, 0).Round(time.Second))
	}
	printf("%d seeds, %.0f a second, %d steps, %d deaths, next seed %d%s", s.seeds,
		float64(s.seeds)/took.Seconds(), s.steps, s.died["panic"]+s.died["Goexit"], s.next, left)
}
