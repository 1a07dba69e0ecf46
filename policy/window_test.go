package policy_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// step takes so much at a time, with patience, and states the answer. The limit is not in it; at
// most one of wait and retry is.
type step struct {
	at       time.Duration
	take     int64
	patience time.Duration

	allowed   bool
	remaining int64
	wait      time.Duration
	retry     time.Duration
	reset     time.Duration
}

const (
	passes  = true
	refused = false
)

// follow takes the steps with a key, from word on.
func follow(t *testing.T, p policy.Policy, limit int64, word uint64, steps []step) uint64 {
	t.Helper()
	for i, s := range steps {
		next, got := p.Take(word, policy.Instant(s.at), s.take, s.patience)
		want := policy.Decision{
			Allowed: s.allowed, Limit: limit, Remaining: s.remaining,
			Wait: s.wait, RetryAfter: s.retry, ResetAfter: s.reset,
		}
		require.Equal(t, want, got, "step %d, at %v take %d", i, s.at, s.take)
		if !s.allowed || s.take == 0 {
			require.Equal(t, word, next, "step %d takes nothing, so the word must stay", i)
		}
		word = next
	}
	return word
}

type windowPolicy struct {
	name string
	make func(limit int64, per time.Duration) (policy.Policy, error)
	// refuses returns the field that must be refused, or "".
	refuses func(limit int64, per time.Duration) string
	of      func(limit int64, per time.Duration) subject
	says    string // what String begins with
	// locks returns the longest time for which a word counts after its last turn.
	locks func(limit int64, per time.Duration) time.Duration
}

var windowPolicies = []windowPolicy{
	{"FixedWindow", policy.FixedWindow,
		refusesOf(time.Millisecond, func(limit int64, _ time.Duration) bool { return limit > 1_000_000 }),
		fixedWindowOf, "window %d/",
		func(limit int64, per time.Duration) time.Duration {
			m := newCounter(limit, per)
			return time.Duration(m.length + m.step)
		}},
	{"SlidingWindow", policy.SlidingWindow,
		refusesOf(1, func(limit int64, per time.Duration) bool { return limit >= 1<<slidingFigures(per) }),
		slidingWindowOf, "sliding %d/",
		func(_ int64, per time.Duration) time.Duration { return 2 * per }},
	{"AtMost", policy.AtMost,
		refusesOf(time.Millisecond, func(limit int64, per time.Duration) bool { return ringParts(limit, per) == 0 }),
		atMostOf, "at most %d/",
		func(limit int64, per time.Duration) time.Duration {
			m := newRing(limit, per)
			return time.Duration((m.parts + 2) * m.part)
		}},
	{"AlignedWindow", policy.AlignedWindow,
		refusesOf(time.Millisecond, func(limit int64, per time.Duration) bool { return limit > alignedFull(per) }),
		alignedOf, "window %d/",
		func(_ int64, per time.Duration) time.Duration { return 2 * per }},
}

// refusesOf returns windowPolicy.refuses: per if that is below least or too long, limit if it is
// below 1 or does not fit.
func refusesOf(
	least time.Duration, noRoom func(limit int64, per time.Duration) bool,
) func(limit int64, per time.Duration) string {
	return func(limit int64, per time.Duration) string {
		switch {
		case limit < 1:
			return "limit"
		case per < least || per > longestWindow:
			return "per"
		case noRoom(limit, per):
			return "limit"
		}
		return ""
	}
}

// constructs makes a limit of any figures. It is kept, or refused with an error that helps.
func (w windowPolicy) constructs(t *testing.T, limit int64, per time.Duration) {
	t.Helper()
	p, err := w.make(limit, per)
	want := w.refuses(limit, per)
	if err == nil {
		if want != "" {
			t.Fatalf("%v is kept, want %s refused", p, want)
		}
		s := w.of(limit, per)
		if got := p.String(); !strings.HasPrefix(got, fmt.Sprintf(w.says, limit)) {
			t.Errorf("%s(%d, %d) is a %q", w.name, limit, per, got)
		}
		newTrial(t, s).do(action{now: 1, n: limit})
		return
	}
	var field *policy.FieldError
	if !errors.As(err, &field) || p != nil {
		t.Fatalf("%s(%d, %d) = %v, %v", w.name, limit, per, p, err)
	}
	value := map[string]any{"limit": limit, "per": per}[field.Field]
	if field.Of != w.name || field.Field != want || field.Value != value || field.Want == "" {
		t.Fatalf("%s(%d, %d): %v; want %q refused", w.name, limit, per, err, want)
	}
	// The error names constructors that accept the limit.
	if want == "limit" && limit > 0 && w.name != "AlignedWindow" {
		_, aligned := policy.AlignedWindow(limit, per)
		_, funnel := policy.Funnel(limit, limit, per)
		if strings.Contains(field.Want, "; AlignedWindow holds this limit") != (aligned == nil) ||
			strings.Contains(field.Want, fmt.Sprintf("; Funnel(%d, %[1]d, %v) is a bucket of this rate", limit, per)) != (funnel == nil) {
			t.Errorf("%v: AlignedWindow says %v, Funnel %v", err, aligned, funnel)
		}
	}
	// A limit that is documented as the highest is the highest.
	var most int64
	if _, err := fmt.Sscanf(field.Want, "at most %d:", &most); err == nil {
		if w.refuses(most, per) != "" || w.refuses(most+1, per) == "" || limit <= most {
			t.Errorf("%s(%d, %d): %v; is it?", w.name, limit, per, err)
		}
	}
}

func (w windowPolicy) fuzzConstructor(f *testing.F) {
	const ms, s = int64(time.Millisecond), int64(time.Second)
	for _, seed := range [][2]int64{
		{1, s}, {0, s}, {-1, s}, {math.MinInt64, s}, {math.MaxInt64, s}, {1, 0}, {1, -1}, {1, 1}, {3, 1}, {4, 1}, {1, math.MaxInt64}, {1, math.MinInt64},
		{1, ms - 1}, {1, ms}, {2047, ms}, {2048, ms}, {4095, ms}, {4096, ms}, {1_000_000, ms}, {1_000_001, ms},
		{1_000_000, s}, {131071, s}, {131072, s}, {65535, s}, {65536, s}, {127, s}, {128, s}, {7, s}, {8, s}, {2, s},
		{1_000_000, int64(longestWindow)}, {1, int64(longestWindow)}, {1, int64(longestWindow) + 1}, {1 << 29, int64(longestWindow)}, {1 << 28, int64(longestWindow)},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, limit, per int64) { w.constructs(t, limit, time.Duration(per)) })
}

func FuzzFixedWindowConstructor(f *testing.F)   { windowPolicies[0].fuzzConstructor(f) }
func FuzzSlidingWindowConstructor(f *testing.F) { windowPolicies[1].fuzzConstructor(f) }
func FuzzAtMostConstructor(f *testing.F)        { windowPolicies[2].fuzzConstructor(f) }
func FuzzAlignedWindowConstructor(f *testing.F) { windowPolicies[3].fuzzConstructor(f) }

func TestWindowConstructorsRandomly(t *testing.T) {
	for _, w := range windowPolicies {
		t.Run(w.name, func(t *testing.T) {
			s := &script{rng: rand.New(rand.NewPCG(1, 2))}
			for range 2000 {
				w.constructs(t, s.between(math.MinInt64, math.MaxInt64), time.Duration(s.between(0, int64(longestWindow)+1)))
				w.constructs(t, s.between(0, 1<<30), time.Duration(s.between(1, int64(longestWindow))))
			}
		})
	}
}

// The answers about any word keep to the laws among themselves.
func TestWindowsOfAnyWord(t *testing.T) {
	for _, w := range windowPolicies {
		t.Run(w.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 4))
			for range 20_000 / raceFactor {
				per := time.Duration(rng.Int64N(int64(longestWindow)) >> rng.UintN(34))
				limit := 1 + rng.Int64N(1_000_000)>>rng.UintN(20)
				if w.refuses(limit, per) != "" {
					continue
				}
				s := w.of(limit, per)
				word := min(rng.Uint64()>>(1+rng.UintN(63)), policy.MaxWord)
				about := int64(min(max(s.FreshAt(word), 1), s.end))
				now := policy.Instant(about - rng.Int64N(about)>>rng.UintN(62) + rng.Int64N(int64(per)+2)>>rng.UintN(34))
				c := action{now: now, n: 1 + rng.Int64N(limit), patience: time.Duration(rng.Int64N(math.MaxInt64) >> rng.UintN(63))}
				trial := newTrial(t, s)
				trial.doing, trial.before, trial.word = c, word, word
				next, d := s.Take(word, c.now, c.n, c.patience)
				trial.sane(c, next, d)
				trial.delays(c, d)
				trial.remaining(c, next, d)
				trial.fresh(c, next, d)
				trial.backwards(c)
				s.extreme(t, word, now, c.n, c.patience)
				s.extremeRefund(t, word, now, c.n)
				s.extremeRefund(t, word, now, -c.n)
			}
		})
	}
}

// If a limit follows another, nothing is forgiven, promised turns are kept free, and no key is
// refused for longer than the new limit would refuse it.
func TestWindowsAreCarried(t *testing.T) {
	for _, w := range windowPolicies {
		t.Run(w.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(5, 6))
			limits := []int64{1, 2, 3, 5, 7, 20, 31, 100}
			pers := []time.Duration{time.Millisecond, 300 * time.Millisecond, time.Second, time.Second + 7, time.Minute, time.Hour}
			carried, ahead := 0, 0
			for range 20_000 / raceFactor {
				pick := func() (policy.Policy, int64, time.Duration) {
					limit, per := limits[rng.IntN(len(limits))], pers[rng.IntN(len(pers))]
					p, err := w.make(limit, per)
					require.NoError(t, err)
					return p, limit, per
				}
				old, oldLimit, oldPer := pick()
				p, limit, per := pick()
				var word uint64
				now := policy.Instant(1 + rng.Int64N(int64(time.Hour)))
				turn := now // the latest that was promised
				for range rng.IntN(6) {
					now += policy.Instant(rng.Int64N(int64(oldPer)) >> rng.UintN(20))
					next, d := old.Take(word, now, 1+rng.Int64N(oldLimit), time.Duration(rng.Int64N(4*int64(oldPer))-int64(oldPer)))
					if d.Allowed {
						word, turn = next, max(turn, now+policy.Instant(d.Wait))
					}
				}
				now += policy.Instant(rng.Int64N(2*int64(oldPer)) >> rng.UintN(20))
				next, ok := p.(policy.Relative).Carry(old, word, now)
				about := fmt.Sprintf("%v, carried at %d from %v, %d, turn %d: %d", p, now, old, word, turn, next)
				require.True(t, ok, about)
				require.LessOrEqual(t, next, uint64(policy.MaxWord), about)
				if oldPer == per && oldLimit == limit {
					require.Equal(t, word, next, about)
				}
				_, was := old.Take(word, now, 0, 0)
				_, is := p.Take(next, now, 0, 0)
				if was.ResetAfter == 0 {
					require.Zero(t, is.ResetAfter, about)
					require.Equal(t, limit, is.Remaining, about)
					continue
				}
				carried++
				used := oldLimit - was.Remaining
				require.LessOrEqual(t, is.Remaining, max(limit-used, 0), about)
				if now <= turn {
					ahead++
					_, d := p.Take(next, now, 1, math.MaxInt64)
					if used >= limit {
						require.GreaterOrEqual(t, now+policy.Instant(d.Wait), turn, about)
					}
				}
				if oldPer != per {
					latest := max(now, turn) + policy.Instant(w.locks(limit, per))
					require.LessOrEqual(t, p.FreshAt(next), latest, about)
				}
			}
			require.Greater(t, carried, 3000/raceFactor)
			require.Greater(t, ahead, 1000/raceFactor)
		})
	}
}

// Units that count are kept: all if they leave with their window or part, otherwise up to the
// limit.
func TestWindowsAreCarriedUpToTheLimit(t *testing.T) {
	const now = policy.Instant(100*time.Second + 7)
	for _, w := range windowPolicies {
		old, err := w.make(50, time.Second)
		require.NoError(t, err)
		p, err := w.make(10, time.Minute)
		require.NoError(t, err)
		word, _ := old.Take(0, now, 50, 0)
		next, ok := p.(policy.Relative).Carry(old, word, now)
		require.True(t, ok)
		full, _ := p.Take(0, now, 10, 0)
		if w.name == "SlidingWindow" {
			assert.Equal(t, full, next, "%v to %v", old, p)
			back, _ := old.(policy.Relative).Carry(p, next, now)
			_, d := old.Take(back, now, 0, 0)
			assert.EqualValues(t, 40, d.Remaining, "the rest was forgotten")
			continue
		}
		assert.LessOrEqual(t, starts(p, next, now, 10), starts(p, full, now, 10)+100_000, "%v to %v: a step of a fixed window", old, p)
		back, _ := old.(policy.Relative).Carry(p, next, now)
		_, d := old.Take(back, now, 0, 0)
		assert.Zero(t, d.Remaining, "%v and back", p)
	}
}

// A word may be newer than the change, or by a clock ahead of it. It is carried from no earlier
// than its window or part began.
func TestWindowsThatOpenAfterTheChangeAreCarried(t *testing.T) {
	const began = policy.Instant(100*time.Second + 1) // a fixed window may open there; others begin a nanosecond before
	for _, w := range windowPolicies {
		for _, turns := range []int64{0, 1} {
			old, err := w.make(3, time.Second)
			require.NoError(t, err)
			word, _ := old.Take(0, began, 3, 0)
			turn := began - 1
			if turns > 0 {
				next, d := old.Take(word, began, 1, time.Minute)
				require.Positive(t, d.Wait)
				word, turn = next, began+policy.Instant(d.Wait)
			}
			for _, per := range []time.Duration{time.Millisecond, 5 * time.Second} {
				p, err := w.make(3, per)
				require.NoError(t, err)
				for _, before := range []time.Duration{0, 1, time.Millisecond, time.Second, 10 * time.Second, 100 * time.Second} {
					next, ok := p.(policy.Relative).Carry(old, word, began-policy.Instant(before))
					require.True(t, ok)
					// A fixed window may have opened up to a step, here 100µs, before it starts.
					assert.GreaterOrEqual(t, p.FreshAt(next), turn+policy.Instant(per-100*time.Microsecond), "%v to %v, %v before", old, p, before)
					_, d := p.Take(next, turn, 0, 0)
					assert.Less(t, d.Remaining, int64(3), "%v to %v, %v before", old, p, before)
				}
			}
		}
	}
}

func TestWindowsAtTheEndOfTime(t *testing.T) {
	const nineYears = policy.Instant(9 * year)
	for _, w := range windowPolicies[:2] {
		for _, per := range []time.Duration{1, time.Millisecond, 32769 * time.Microsecond, time.Second - 1, time.Second, longestWindow} {
			if w.refuses(3, per) != "" {
				continue
			}
			p, err := w.make(3, per)
			require.NoError(t, err)
			word, d := p.Take(0, nineYears, 3, 0)
			require.True(t, d.Allowed)
			assert.Less(t, nineYears, p.FreshAt(word), "%v", p)
			assert.LessOrEqual(t, d.ResetAfter, w.locks(3, per))

			word, _ = p.Take(0, math.MaxInt64, 3, 0)
			_, d = p.Take(word, math.MaxInt64, 1, math.MaxInt64)
			assert.Equal(t, policy.Never, d.RetryAfter)
		}
	}
}

// A carried word fits even if time stands still sooner for a limit.
func TestWindowsAreCarriedAtTheEndOfTime(t *testing.T) {
	pers := []time.Duration{time.Millisecond, time.Second, time.Hour, longestWindow}
	for _, w := range windowPolicies {
		for _, oldPer := range pers {
			for _, per := range pers {
				old, err := w.make(3, oldPer)
				require.NoError(t, err)
				p, err := w.make(3, per)
				require.NoError(t, err)
				for _, now := range []policy.Instant{math.MaxInt64, policy.Instant(12 * year)} {
					word, _ := old.Take(0, now, 3, 0)
					if next, d := old.Take(word, now, 3, math.MaxInt64); d.Allowed {
						word = next
					}
					next, ok := p.(policy.Relative).Carry(old, word, now)
					require.True(t, ok)
					require.LessOrEqual(t, next, uint64(policy.MaxWord), "%v to %v", old, p)
					_, d := p.Take(next, now, 0, 0)
					require.Zero(t, d.Remaining, "%v to %v", old, p)
				}
			}
		}
	}
}

// Promise: Only policies of one family follow each other.
func TestWindowFamilies(t *testing.T) {
	funnel := policy.Must(policy.Funnel(3, 1, time.Second))
	for i, w := range windowPolicies {
		of := func(limit int64, per time.Duration) policy.Policy {
			p, err := w.make(limit, per)
			require.NoError(t, err)
			return p
		}
		p := of(3, time.Second).(policy.Relative)
		assert.True(t, p.Reads(of(3, time.Second)), w.name)
		assert.True(t, p.Reads(of(100, time.Second)), w.name)
		assert.False(t, p.Reads(of(3, time.Second+1)), w.name)
		for j, other := range windowPolicies {
			stranger, err := other.make(3, time.Second)
			require.NoError(t, err)
			_, ok := p.Carry(stranger, 77, 1)
			assert.Equal(t, i == j, ok, "%s, %s", w.name, other.name)
			assert.Equal(t, i == j, p.Reads(stranger), "%s, %s", w.name, other.name)
		}
		_, ok := p.Carry(funnel, 77, 1)
		assert.False(t, ok)
		assert.False(t, p.Reads(funnel))
	}
}

// rateOf takes all units singly, and comes back when told. It returns the time of so many
// limits after the first.
func rateOf(t *testing.T, p policy.Policy, limit, limits int64, patient bool) time.Duration {
	t.Helper()
	const start = policy.Instant(12_345_678_901)
	now, turn := start, start
	var word uint64
	step := int64(1)
	if limit >= 100 && limit%10 == 0 {
		step = limit / 10
	}
	for taken := int64(0); taken <= limits*limit; {
		n := min(step, limits*limit+1-taken)
		patience := time.Duration(0)
		if patient {
			patience = math.MaxInt64
		}
		next, d := p.Take(word, now, n, patience)
		if d.Allowed {
			word, turn = next, now+policy.Instant(d.Wait)
			taken += n
		} else {
			require.NotEqual(t, policy.Never, d.RetryAfter)
			now += policy.Instant(d.RetryAfter)
		}
	}
	return time.Duration(turn - start)
}
