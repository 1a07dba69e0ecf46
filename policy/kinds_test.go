package policy_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
)

var kinds = []*kind{&funnels, &fixedWindows, &slidingWindows, &atMosts, &queues, &burstys, &warmingUps, &aligneds, &inFlights, &highWindows}

// Promise: A call succeeds at `RetryAfter`, not a nanosecond sooner.
// Promise: Exactly from `FreshAt` on, a word means an unused key.
// Promise: Exactly `Remaining` can be taken; `ResetAfter` ends the debt.
// Promise: `Choke` answers as `Take` of 1.
// Promise: `Funnel`: at most capacity + count·t/per in any time t.
// Promise: `FixedWindow`: at most limit·(1 + ⌈t/per⌉) in any time t.
// Promise: `AlignedWindow` and `CalendarWindow`: at most limit·(1 + ⌈t/per⌉); no window exceeds limit.
// Promise: `SlidingWindow`: at most limit + limit·t/per in any time t.
// Promise: `Queue`: calls leave evenly spaced.
// Promise: `Bursty`: all takes except the last are at most maxBurst + count·t/per.
// Promise: `WarmingUp`: all takes except the last are at most count·t/per.
// Promise: Undone takes return the units that constructors document.
func TestEveryPolicyKeepsTheLaws(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { k.random(t, 0, rounds(5000)) })
	}
}

// rounds returns fewer than n under the race detector, and under -short.
func rounds(n uint64) uint64 {
	if n /= raceFactor; testing.Short() {
		n /= 4
	}
	return n
}

func FuzzFunnel(f *testing.F)        { funnels.fuzz(f) }
func FuzzFixedWindow(f *testing.F)   { fixedWindows.fuzz(f) }
func FuzzHighWindow(f *testing.F)    { highWindows.fuzz(f) }
func FuzzSlidingWindow(f *testing.F) { slidingWindows.fuzz(f) }
func FuzzAtMost(f *testing.F)        { atMosts.fuzz(f) }
func FuzzAlignedWindow(f *testing.F) { aligneds.fuzz(f) }
func FuzzQueue(f *testing.F)         { queues.fuzz(f) }
func FuzzBursty(f *testing.F)        { burstys.fuzz(f) }
func FuzzWarmingUp(f *testing.F)     { warmingUps.fuzz(f) }
func FuzzInFlight(f *testing.F)      { inFlights.fuzz(f) }

func (k *kind) fuzz(f *testing.F) {
	addScripts(f)
	// Every window of the calls is examined, so they must be few.
	const calls = 48
	f.Fuzz(func(t *testing.T, data []byte) { k.run(t, &script{data: data}, calls) })
}

// anyWord asks a limit for anything at any time with any word. It keeps to the laws and does not
// panic.
func (k *kind) anyWord(t *testing.T, s *script) {
	limit := k.read(s)
	word, now := min(s.number(), policy.MaxWord), policy.Instant(s.number())
	n, patience := int64(s.number()), time.Duration(s.number())
	taken, instant, undone := min(s.number(), policy.MaxWord), policy.Instant(s.number()), int64(s.number())
	// The instant lies about the time of the word.
	if s.byte()&1 == 1 {
		now = shift(min(limit.FreshAt(word), limit.end), s.between(0, 2*int64(limit.period))-int64(limit.period))
	}

	if fresh := limit.FreshAt(word); fresh < 0 || word == 0 && fresh != 0 {
		t.Fatalf("%v: FreshAt(%d) = %d, want 0 or more, and 0 for a new key", limit, word, fresh)
	}
	for _, n := range []int64{n, -n, 0, 1, limit.limit} {
		for _, patience := range []time.Duration{patience, 0, math.MaxInt64} {
			limit.extreme(t, word, now, n, patience)
		}
		limit.extremeRefund(t, word, now, n)
	}
	next := limit.Policy.(policy.Refunder).Cancel(word, taken, instant, now, n, undone)
	if next > policy.MaxWord || limit.FreshAt(next) > limit.FreshAt(word) {
		t.Fatalf("%v: Cancel(%d, %d, %d, %d, %d, %d) = %d, which counts for longer", limit, word, taken, instant, now, n, undone, next)
	}
	if !limit.forgets {
		return
	}
	// The answers of a window about any word keep to the laws among themselves.
	c := action{now: now, n: 1 + int64(uint64(n)%uint64(limit.limit)), patience: max(patience, 0)}
	trial := newTrial(t, limit)
	trial.doing, trial.before, trial.word = c, word, word
	next, decision := limit.Take(word, c.now, c.n, c.patience)
	trial.sane(c, next, decision)
	trial.delays(c, decision)
	trial.remaining(c, next, decision)
	trial.fresh(c, next, decision)
	trial.backwards(c)
}

// Promise: No word or argument makes a policy mint units.
func FuzzAnyWord(f *testing.F) {
	addScripts(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &script{data: data}
		kinds[int(s.byte())%len(kinds)].anyWord(t, s)
	})
}

// Promise: At the end of time nothing is minted; refusals say `Never`.
func TestNoWordMintsUnits(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			for seed := range rounds(2000) {
				k.anyWord(t, &script{rng: rand.New(rand.NewPCG(seed, 4))})
			}
		})
	}
}

// Calls go through the interfaces, as in package cell.
func TestDecisionsAllocateNothing(t *testing.T) {
	for _, pair := range [][2]string{
		{"funnel 10, 700000/s", "funnel 7, 1/m"}, {"queue 10, 700000/s", "queue 20, 600000/s"}, {"bursty 700000/s, 10", "bursty 600000/s, 20"},
		{"warming up 100/s over 10s, cold 3", "warming up 70/s over 10s, cold 2"}, {"window 5/s", "window 3/m"}, {"window 2M/m", "window 500M/d"}, {"sliding 5/s", "sliding 3/m"},
		{"at most 5/s", "at most 3/m"}, {"window 5/s aligned", "window 3/m aligned"}, {"in flight 5, 1s at most", "in flight 3, 1m at most"},
	} {
		limit, other := policy.Must(policy.Parse(pair[0])), policy.Must(policy.Parse(pair[1]))
		now := policy.Instant(1_234_567_890_123)
		used, _ := limit.Take(0, now, 3, 0)
		full, _ := limit.Take(0, now, limit.Limit(), 0)
		more, _ := limit.Take(used, now, 1, math.MaxInt64)
		ahead, _ := limit.Take(full, now, limit.Limit(), math.MaxInt64)
		choker, relative := limit.(policy.Choker), limit.(policy.Relative)
		refunder, ok := limit.(policy.Refunder)
		if !ok {
			refunder = occupier{limit}
		}
		for name, call := range map[string]func(){
			"Take, never used":      func() { limit.Take(0, now, 1, 0) },
			"Take":                  func() { limit.Take(used, now, 1, 0) },
			"Take, later":           func() { limit.Take(used, now+1000, 1, 0) },
			"Take, of a full key":   func() { limit.Take(full, now, 1, 0) },
			"Take, refused forever": func() { limit.Take(used, now, math.MaxInt64, 0) },
			"Take, with patience":   func() { limit.Take(full, now, 1, math.MaxInt64) },
			"Take, just looking":    func() { limit.Take(full, now, 0, 0) },
			"Choke, never used":     func() { choker.Choke(0, now) },
			"Choke":                 func() { choker.Choke(used, now) },
			"Choke, later":          func() { choker.Choke(used, now+1000) },
			"Choke, of a full key":  func() { choker.Choke(full, now) },
			"FreshAt":               func() { limit.FreshAt(full) },
			"Refund":                func() { refunder.Refund(used, now, 1) },
			"Refund, of a turn":     func() { refunder.Refund(ahead, now, 5) },
			"Refund, a charge":      func() { refunder.Refund(full, now, math.MinInt64) },
			"Cancel":                func() { refunder.Cancel(more, used, 0, now, 1, 0) },
			"Cancel, the last":      func() { refunder.Cancel(used, used, 0, now, 1, 0) },
			"Cancel, of a turn":     func() { refunder.Cancel(ahead, ahead, 0, now, 5, 0) },
			"Reads":                 func() { relative.Reads(other) },
			"Carry":                 func() { relative.Carry(other, full, now) },
			"RedisCell":             func() { _ = policy.Decision{Limit: 1}.RedisCell() },
		} {
			assert.Zero(t, testing.AllocsPerRun(100, call), fmt.Sprint(limit, ": ", name))
		}
	}
}
