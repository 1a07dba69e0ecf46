package policy_test

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// changing is a family of limits that follow each other (SetPolicy).
type changing struct {
	name string
	// pick returns a limit that holds at least so many units.
	pick func(rng *rand.Rand, least int64) policy.Policy
	// holds returns the largest number of units that count under a limit.
	holds func(policy.Policy) int64
	// owes is set if the last waiting call may have taken several units, and is followed by their
	// time.
	owes bool
	// rounds returns how much later a call may start after a change, as words are rounded up.
	rounds func(policy.Policy) time.Duration
}

var paces = []struct {
	count int64
	per   time.Duration
}{{1000, 1000}, {1000, 7000}, {1000, 3000}, {3, 70_000}, {1, time.Millisecond}, {7, time.Second}, {10, time.Second}, {1000, time.Second}, {1, time.Minute}}

var changings = []changing{
	{"Funnel", func(rng *rand.Rand, least int64) policy.Policy {
		pace := paces[rng.IntN(len(paces))]
		return policy.Must(policy.Funnel(least+rng.Int64N(9)*rng.Int64N(9), pace.count, pace.per))
	}, policy.Policy.Limit, false, tick},
	{"Queue", func(rng *rand.Rand, least int64) policy.Policy {
		pace := paces[rng.IntN(len(paces))]
		return policy.Must(policy.Queue(least-1+rng.Int64N(9)*rng.Int64N(9), pace.count, pace.per))
	}, policy.Policy.Limit, true, tick},
	{"Bursty", func(rng *rand.Rand, least int64) policy.Policy {
		pace := paces[rng.IntN(len(paces))]
		return policy.Must(policy.Bursty(pace.count, pace.per, least+rng.Int64N(9)*rng.Int64N(9)))
	}, policy.StoreOf, true, tick},
	{"WarmingUp", func(rng *rand.Rand, _ int64) policy.Policy {
		pace := paces[5+rng.IntN(3)]
		return policy.Must(policy.WarmingUp(pace.count, pace.per, time.Duration(1+rng.IntN(9))*time.Second, 1+2*rng.Float64()))
	}, func(policy.Policy) int64 { return 1 }, true, func(p policy.Policy) time.Duration {
		return p.(policy.Windowed).Window()/time.Duration(p.Limit())/8 + 1
	}},
	{"FixedWindow", windowsOf(policy.FixedWindow, time.Millisecond), policy.Policy.Limit, false,
		func(policy.Policy) time.Duration { return 100 * time.Microsecond }},
	{"SlidingWindow", windowsOf(policy.SlidingWindow, time.Microsecond), policy.Policy.Limit, false, tick},
	{"AtMost", windowsOf(policy.AtMost, time.Millisecond), policy.Policy.Limit, false, aPart},
	// A promised turn may lie within a window of the next limit. One more window may be full.
	{"AlignedWindow", alignedToAnything, policy.Policy.Limit, false, func(p policy.Policy) time.Duration {
		// 31 days are less than 13/12 of a mean month.
		return p.(policy.Windowed).Window() * 13 / 12
	}},
}

func tick(policy.Policy) time.Duration { return 1 }

func aPart(p policy.Policy) time.Duration { return p.(policy.Windowed).Window() }

func allOf(p policy.Policy, at policy.Instant) uint64 {
	word, _ := p.Take(0, at, p.Limit(), 0)
	return word
}

func windowsOf(construct func(int64, time.Duration) (policy.Policy, error), shortest time.Duration) func(*rand.Rand, int64) policy.Policy {
	pers := []time.Duration{1009, 20_000, time.Millisecond, 7 * time.Millisecond, 600 * time.Millisecond, time.Second, 2 * time.Second, time.Minute}
	return func(rng *rand.Rand, least int64) policy.Policy {
		for {
			p, err := construct(least+rng.Int64N(9)*rng.Int64N(9), max(shortest, pers[rng.IntN(len(pers))]))
			if err == nil {
				return p
			}
		}
	}
}

// past is the state of a key before its limit changes.
type past struct {
	word uint64
	// now is the instant of the change.
	now policy.Instant
	// turn is the last start that was promised.
	turn policy.Instant
	// period is in nanoseconds: the time of ten units, or of the limit if that is less.
	period int64
}

// drawPast lets up to six calls take from a key under p.
func drawPast(rng *rand.Rand, limit policy.Policy) (h past) {
	h.period = int64(limit.(policy.Windowed).Window())/limit.Limit()*min(limit.Limit(), 10) + 2
	h.now = policy.Instant(1 + rng.Int64N(4*h.period))
	for range 1 + rng.IntN(6) {
		h.now += policy.Instant(rng.Int64N(h.period) >> rng.UintN(10))
		next, d := limit.Take(h.word, h.now, 1+rng.Int64N(min(limit.Limit(), 10)), time.Duration(rng.Int64N(4*h.period)))
		if d.Allowed {
			h.word, h.turn = next, max(h.turn, h.now+policy.Instant(d.Wait))
		}
	}
	h.now += policy.Instant(rng.Int64N(h.period) >> rng.UintN(10))
	return h
}

// starts returns the earliest instant at which a call for n units would start.
func starts(limit policy.Policy, word uint64, now policy.Instant, n int64) policy.Instant {
	_, decision := limit.Take(word, now, n, math.MaxInt64)
	// A queue is full until there is room to wait in.
	if !decision.Allowed {
		now += policy.Instant(decision.RetryAfter)
		_, decision = limit.Take(word, now, n, math.MaxInt64)
	}
	return now + policy.Instant(decision.Wait)
}

// Changing a limit and changing it back, by way of others that hold as much, forgives nothing and
// hands no promised turn out twice: no call starts sooner, then or later, and no more pass at
// once.
// Promise: Changing a limit and back starts no call sooner.
func TestChangingAndChangingBackForgivesNothing(t *testing.T) {
	for _, c := range changings {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			used, ahead := 0, 0
			for range 20_000 / raceFactor {
				limit := c.pick(rng, 1+rng.Int64N(5))
				h := drawPast(rng, limit)
				word, now, turn := h.word, h.now, h.turn
				about := fmt.Sprintf("%d at %d under %v, turn %d", word, now, limit, turn)

				from, carried := limit, word
				for range 1 + rng.IntN(3) {
					other := c.pick(rng, c.holds(limit))
					next, ok := other.(policy.Relative).Carry(from, carried, now)
					require.True(t, ok)
					about += fmt.Sprintf(", %v: %d", other, next)
					from, carried = other, next
				}
				back, ok := limit.(policy.Relative).Carry(from, carried, now)
				require.True(t, ok)
				about += fmt.Sprintf(", and back: %d", back)
				if turn > now {
					ahead++
				}
				if limit.FreshAt(word) > now {
					used++
				}
				for range 8 {
					instant := now + policy.Instant(rng.Int64N(4*h.period)>>rng.UintN(20))
					n := 1 + rng.Int64N(min(limit.Limit(), 10))
					if was, is := starts(limit, word, instant, n), starts(limit, back, instant, n); is < was {
						require.Fail(t, "a call starts sooner after the changes", "%s: %d units asked for at %d start at %d, want %d or later", about, n, instant, is, was)
					}
					_, was := limit.Take(word, instant, 0, 0)
					_, is := limit.Take(back, instant, 0, 0)
					if is.Remaining > was.Remaining {
						require.Fail(t, "more units remain after the changes", "%s: at %d there are %d, want at most %d", about, instant, is.Remaining, was.Remaining)
					}
				}
			}
			assert.Greater(t, used, 5000/raceFactor)
			assert.Greater(t, ahead, 2000/raceFactor)
		})
	}
}

// After a change no call waits longer than under the new limit alone, if as much as that holds
// had been taken when the last promised turn came, or else at the change. Where units take time
// after their call, it counts from when the old limit would have let the next start. A lowered
// SlidingWindow of the same period may count more units than it holds, until the window after
// theirs ends.
// Promise: A change locks out no key longer than the new limit would.
func TestAChangeLocksOutNoLongerThanTheNewLimit(t *testing.T) {
	for _, c := range changings {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 4))
			lowered, ahead := 0, 0
			for range 20_000 / raceFactor {
				limit := c.pick(rng, 1+rng.Int64N(9))
				h := drawPast(rng, limit)
				word, now, turn := h.word, h.now, h.turn
				turn = max(turn, now)
				other := c.pick(rng, 1+rng.Int64N(9))
				next, ok := other.(policy.Relative).Carry(limit, word, now)
				require.True(t, ok)
				about := fmt.Sprintf("%d at %d under %v, turn %d, %v: %d", word, now, limit, turn, other, next)
				if turn > now {
					ahead++
				}
				if c.owes {
					turn = max(turn, starts(limit, word, now, 1))
				}
				full := allOf(other, turn)
				for range 4 {
					n := 1 + rng.Int64N(min(other.Limit(), 10))
					latest := starts(other, full, turn, n) + policy.Instant(c.rounds(other))
					if c.holds(limit) > c.holds(other) {
						lowered++
						if c.name == "SlidingWindow" && limit.(policy.Relative).Reads(other) {
							latest = max(latest, limit.FreshAt(word))
						}
					}
					if at := starts(other, next, now, n); at > latest {
						require.Fail(t, "a call waits too long after the change", "%s: %d units start at %d, want by %d", about, n, at, latest)
					}
				}
			}
			assert.Greater(t, ahead, 2000/raceFactor)
			if c.name != "WarmingUp" {
				assert.Greater(t, lowered, 5000/raceFactor)
			}
		})
	}
}

// Units above a lowered limit are no promised turns at a change of period, if all are of a
// window.
func TestLoweredSlidingWindowPromisesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	lowered := 0
	for range 20_000 / raceFactor {
		per := int64(20 + rng.IntN(int(time.Second)))
		limit := 2 + rng.Int64N(99)
		p := policy.Must(policy.SlidingWindow(limit, time.Duration(per)))
		low := policy.Must(policy.SlidingWindow(1+rng.Int64N(limit), time.Duration(per)))
		other := policy.Must(policy.SlidingWindow(1+rng.Int64N(limit), time.Duration(20+rng.IntN(int(time.Second)))))
		began := per * (1 + rng.Int64N(100))
		now := policy.Instant(began)
		var word uint64
		for range 1 + rng.IntN(5) {
			now += (policy.Instant(began+per) - now) / policy.Instant(1+rng.IntN(8)+1)
			word, _ = p.Take(word, now, 1+rng.Int64N(limit), 0)
		}
		kept, ok := low.(policy.Relative).Carry(p, word, now)
		require.True(t, ok)
		next, ok := other.(policy.Relative).Carry(low, kept, now)
		require.True(t, ok)
		_, was := p.Take(word, now, 0, 0)
		used := limit - was.Remaining
		_, is := other.Take(next, now, 0, 0)
		require.Equal(t, max(other.Limit()-used, 0), is.Remaining, "%d at %d of %v, %v, %v", word, now, p, low, other)
		full, _ := other.Take(0, now, other.Limit(), 0)
		for n := range other.Limit() {
			require.LessOrEqual(t, starts(other, next, now, n+1), starts(other, full, now, n+1), "%d at %d of %v, %v, %v", word, now, p, low, other)
		}
		if used > low.Limit() {
			lowered++
		}
	}
	assert.Greater(t, lowered, 2000/raceFactor)
}

// Promise: Only policies of one family follow each other.
func TestOnlyAFamilyReadsAndCarriesItsWords(t *testing.T) {
	// alike reads the words of limit.
	rows := []struct{ family, limit, alike string }{
		{"funnel", "funnel 10, 1/s", "funnel 3, 700/s"},
		{"queue", "queue 10, 1/s", "queue 0, 700/s"},
		{"bursty", "bursty 1/s, 10", "bursty 700/s, 0"},
		{"warming up", "warming up 2/s over 4s, cold 3", "warming up 4/2s over 4s, cold 3"},
		{"warming up", "warming up 2/s over 5s, cold 3", ""},
		{"warming up", "warming up 2/s over 4s, cold 4", ""},
		{"warming up", "warming up 3/s over 4s, cold 3", ""},
		{"warming up", "warming up 2/s over 4s, cold 1", ""},
		{"window", "window 3/s", "window 1000000/s"},
		{"window", "window 3/1000000001ns", ""},
		// The finer of two counts ends with the bits of the period in microseconds, which are 20
		// from 2^19 microseconds on. Above it steps are coarser.
		{"window", "window 1/ms", "window 1023/ms"},
		{"window", "window 1024/ms", "window 2000/ms"},
		{"window", "window 1/524287999ns", "window 524287/524287999ns"},
		{"window", "window 524288/524287999ns", "window 1000000/524287999ns"},
		{"window", "window 1/524288us", "window 1000000/524288us"},
		{"sliding", "sliding 3/s", "sliding 100/s"},
		{"sliding", "sliding 3/1000000001ns", ""},
		{"at most", "at most 3/s", "at most 2000/s"},
		{"at most", "at most 3/1000000001ns", ""},
		{"aligned", "window 3/s aligned", "window 100/s aligned"},
		{"aligned", "window 3/d aligned", ""},
		{"aligned", "window 3/day in UTC", "window 5/day in UTC"},
		{"aligned", "window 3/week in UTC", ""},
		{"aligned", "window 3/month in UTC", "window 5/month from 31 in UTC"},
		{"aligned", "window 3/month from 20 in Europe/Berlin", "window 3/month from 5 in Europe/Berlin"},
		{"aligned", "window 3/day in Europe/Berlin", ""},
	}
	for i, row := range rows {
		for j, other := range rows {
			limit, q := policy.Must(policy.Parse(row.limit)), policy.Must(policy.Parse(cmp.Or(other.alike, other.limit)))
			assert.Equal(t, i == j, limit.(policy.Relative).Reads(q), "%v reads %v", limit, q)
			never, ok := limit.(policy.Relative).Carry(q, 0, policy.Instant(time.Hour+1))
			assert.Zero(t, never, "%v carries a key over that was never used", limit)
			assert.Equal(t, row.family == other.family, ok, "%v carries over from %v", limit, q)
			for _, word := range []uint64{0, 1, 17, 1 << 40, 1<<62 + 5, policy.MaxWord} {
				assert.True(t, i != j || limit.FreshAt(word) == q.FreshAt(word), "%v, %v", limit, q)
			}
		}
	}
}

// carries has a limit follow another. A word carried within the family is valid, and keeps units
// that count; strangers are told apart.
func carries(t *testing.T, from, to *kind, s *script) {
	t.Helper()
	old, limit := from.read(s), to.read(s)
	// An engine has a single zero.
	if model, ok := old.oracle.(*fromTo); ok && from == to {
		limit.Policy = limit.Policy.(policy.Anchored).Anchor(time.Unix(0, model.zero))
	}
	reader, follower := old.Policy.(policy.Relative), limit.Policy.(policy.Relative)
	word, now := min(s.number(), policy.MaxWord), policy.Instant(s.number())
	next, ok := follower.Carry(old.Policy, word, now)
	switch {
	case ok != (from == to || from.carriesFixed() && to.carriesFixed()):
		t.Fatalf("Carry of %v from %v returns %t, want %t", limit, old, ok, !ok)
	case reader.Reads(limit.Policy) != follower.Reads(old.Policy) || follower.Reads(old.Policy) && !ok:
		t.Fatalf("%v and %v do not agree on whether they read each other's words", limit, old)
	case !follower.Reads(limit.Policy):
		t.Fatalf("%v does not read its own words", limit)
	case next > policy.MaxWord:
		t.Fatalf("%v: Carry(%v, %d, %d) = %d, above MaxWord", limit, old, word, now, next)
	case !ok:
		return
	}
	limit.chokes(t, next, now)
	if same, _ := reader.Carry(old.Policy, word, now); same != word {
		t.Fatalf("%v: Carry of its own word %d at %d = %d, want the word", old, word, now, same)
	}
	word, now = 0, 1
	for range 4 {
		now += policy.Instant(s.number() % uint64(2*min(old.period, maxWindow)))
		if next, d := old.Take(word, now, 1+int64(s.number()%uint64(old.limit)), time.Duration(s.number())); d.Allowed {
			word = next
		}
	}
	now += policy.Instant(s.number() % uint64(2*min(old.period, maxWindow)))
	if now > min(old.end, limit.end)-policy.Instant(maxWindow) {
		// Time is about to stand still for one of the two.
		return
	}
	next, _ = follower.Carry(old.Policy, word, now)
	_, was := old.Take(word, now, 0, 0)
	_, is := limit.Take(next, now, 0, 0)
	if _, never := limit.Take(0, now, 0, 0); was.ResetAfter == 0 && is != never {
		t.Fatalf("%v: Carry(%v, %d, %d) = %d: %+v, but the key was as good as new", limit, old, word, now, next, is)
	}
	// Remaining counts no units.
	if limit.credit || limit.queues > 0 {
		return
	}
	if used := min(was.Limit-was.Remaining, is.Limit); is.Remaining > is.Limit-used {
		t.Fatalf("%v: Carry(%v, %d, %d) = %d: more units remain: %+v, and before %+v", limit, old, word, now, next, is, was)
	}
}

// carriesFixed reports whether the limits are fixed windows, which are a family whatever their layout.
func (k *kind) carriesFixed() bool { return k == &fixedWindows || k == &highWindows }

func TestCarriedUnitsCount(t *testing.T) {
	for i, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			for seed := range uint64(1000 / raceFactor) {
				carries(t, k, k, &script{rng: rand.New(rand.NewPCG(seed, uint64(i)))})
				if k == &highWindows {
					carries(t, &fixedWindows, k, &script{rng: rand.New(rand.NewPCG(seed, 100))})
					carries(t, k, &fixedWindows, &script{rng: rand.New(rand.NewPCG(seed, 101))})
				}
			}
		})
	}
}

func FuzzCarry(f *testing.F) {
	addScripts(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &script{data: data}
		from := kinds[int(s.byte())%len(kinds)]
		carries(t, from, kinds[int(s.byte())%len(kinds)], s)
	})
}

// Each call brings its own limit, with a bucket filled to match the time until the key drains.
// Promise: Alternating funnels on a key share time.
func TestFunnelsTakeTurnsOnOneWord(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 500 {
		var limits []subject
		for range 3 {
			limits = append(limits, funnels.read(&script{rng: rng}))
		}
		var word uint64
		now, empty := policy.Instant(1), new(big.Rat)
		for range 30 {
			l := limits[rng.IntN(len(limits))]
			now += policy.Instant(rng.Int64N(int64(l.period)) >> rng.UintN(30))
			n := 1 + rng.Int64N(l.limit)>>rng.UintN(40)
			patience := time.Duration(rng.Int64N(int64(l.period)) * rng.Int64N(2))
			model := l.oracle.(*bucket)
			model.empty = empty
			next, got := l.Take(word, now, n, patience)
			require.Equal(t, model.take(now, n, patience), got, "%v: Take(%d, %d, %d, %d)", l, word, now, n, patience)
			word, empty = next, model.empty
		}
	}
}

// Of ordinary limits the debt is never less, in time or in units, and more only by rounding. The key
// is as cold, in proportion, except for a few levels.
func TestWarmingUpCarriesDebtAndColdness(t *testing.T) {
	for _, from := range warmingUpLimits[:8] {
		limit := policy.Must(policy.WarmingUp(from.count, from.per, from.warmup, from.coldFactor))
		for _, to := range warmingUpLimits[:8] {
			other := policy.Must(policy.WarmingUp(to.count, to.per, to.warmup, to.coldFactor))
			if other.(policy.Relative).Reads(limit) {
				continue
			}
			dearer, _ := new(big.Rat).Quo(unitTime(to.count, to.per), unitTime(from.count, from.per)).Float64()
			debt := func(p policy.Policy, word uint64, now policy.Instant) float64 {
				return max(float64(policy.ReadWarmingUp(p, word).Due)/16-float64(now), 0)
			}
			// left returns the time in which the store grows back.
			left := func(p policy.Policy, word uint64, now policy.Instant) float64 {
				_, d := p.Take(word, now, 0, 0)
				return float64(d.ResetAfter) - debt(p, word, now)
			}
			old, grid := policy.ReadWarmingUp(limit, 0), policy.ReadWarmingUp(other, 0)
			levels := 2/float64(old.Levels) + 4/float64(grid.Levels)
			for n := int64(1); n < 40; n += 6 {
				word, _ := limit.Take(0, 1, n, 0)
				for _, part := range []float64{0, 0.5, 1.5} {
					now := policy.Instant(1 + part*debt(limit, word, 1))
					next, ok := other.(policy.Relative).Carry(limit, word, now)
					require.True(t, ok)
					before := debt(limit, word, now)
					all, _ := other.Take(0, now, other.Limit(), 0)
					want := max(before, min(before*dearer, debt(other, all, now)))
					about := fmt.Sprintf("%d of %v, then %v at %d", n, limit, other, now)
					assert.InDelta(t, want, debt(other, next, now), float64(grid.Unit)/16+1, about)
					assert.InDelta(t, left(limit, word, now)/float64(from.warmup), left(other, next, now)/float64(to.warmup), levels, about)
				}
			}
		}
	}
}

// A word may be newer than the change, or by a clock ahead of it. It is carried from no earlier
// than its window or part began.
func TestWindowsThatOpenAfterTheChangeAreCarried(t *testing.T) {
	// A fixed window may open at began. The other windows begin a nanosecond before.
	const began = policy.Instant(100*time.Second + 1)
	for _, windows := range windowPolicies {
		for _, turns := range []int64{0, 1} {
			old := must.Get(windows.make(3, time.Second))
			word, _ := old.Take(0, began, 3, 0)
			turn := began - 1
			if turns > 0 {
				next, d := old.Take(word, began, 1, time.Minute)
				require.Positive(t, d.Wait)
				word, turn = next, began+policy.Instant(d.Wait)
			}
			for _, per := range []time.Duration{time.Millisecond, 5 * time.Second} {
				limit := must.Get(windows.make(3, per))
				for _, before := range []time.Duration{0, 1, time.Millisecond, time.Second, 10 * time.Second, 100 * time.Second} {
					next, ok := limit.(policy.Relative).Carry(old, word, began-policy.Instant(before))
					require.True(t, ok)
					// A fixed window may have opened up to a step, here 100µs, before it starts.
					assert.GreaterOrEqual(t, limit.FreshAt(next), turn+policy.Instant(per-100*time.Microsecond), "%v to %v, %v before", old, limit, before)
					_, d := limit.Take(next, turn, 0, 0)
					assert.Less(t, d.Remaining, int64(3), "%v to %v, %v before", old, limit, before)
				}
			}
		}
	}
}

// A turn that the new limit's words cannot say is carried to their last window, years ahead.
func TestTurnsAfterTheLastWindowAreCarriedToIt(t *testing.T) {
	for _, windows := range windowPolicies {
		old := policy.Must(windows.make(3, maxWindow))
		// layout is the layout of an AtMost.
		for _, layout := range []uint64{0, 1, 2, 3} {
			word := policy.MaxWord&^3 - 64 + layout
			for _, per := range []time.Duration{time.Millisecond, time.Second + 1, time.Hour} {
				limit := policy.Must(windows.make(3, per))
				next, ok := limit.(policy.Relative).Carry(old, word, 1)
				require.True(t, ok && next <= policy.MaxWord, "%v to %v: %d", old, limit, next)
				_, d := limit.Take(next, 1, 1, 0)
				assert.Greater(t, d.RetryAfter, 8*year, "%v to %v: %d", old, limit, next)
			}
		}
	}
}

// Units in a bucket or a queue, missing in a store or owed to it take their time under the next
// limit.
//
// Promise: A changed limit forgives nothing and keeps promised turns.
func TestUnitsTakeTheirTimeUnderTheNextLimit(t *testing.T) {
	const s, ms, late = time.Second, time.Millisecond, policy.Instant(time.Hour)
	for _, c := range []struct {
		name, from, to string
		now            policy.Instant
		// used is taken at once.
		used int64
		// turns is the number of calls of one unit that wait behind the used units.
		turns int
		// after is the time from the takes to the change.
		after time.Duration
		// wait is the wait of the next call, and reset is the time until nothing is used.
		wait, reset time.Duration
	}{
		{"slower, with half a unit drained", "funnel 3, 1/s", "funnel 3, 1/m", late, 2, 0, s / 2, 0, 90 * s},
		{"less room than was used", "funnel 10, 1/s", "funnel 2, 1/s", late, 7, 0, 0, s, 2 * s},
		{"faster, and more room", "funnel 10, 1/s", "funnel 12, 2/s", late, 10, 0, 0, 0, 5 * s},
		// The bucket is full at the last turn.
		{"turns, and faster", "funnel 1, 1/s", "funnel 1, 10/s", late, 1, 2, 0, 2100 * time.Millisecond, 2100 * time.Millisecond},
		{"turns, and more room", "funnel 1, 1/s", "funnel 4, 1/s", late, 1, 2, 0, 3 * s, 6 * s},
		{"turns, slower and more room", "funnel 1, 1/s", "funnel 10, 10/m", late, 1, 2, 0, 8 * s, 62 * s},
		{"an interval that is no whole nanosecond", "funnel 3, 3/s", "funnel 3, 7/s", late, 1, 0, 0, 0, 142_857_143},
		// 64 sixteenths of a nanosecond are left, 1.016 units.
		{"a part of a unit, rounded up", "funnel 20, 16000/63us", "funnel 20, 1000/us", late, 16, 0, 59, 0, 2},

		{"a longer queue", "queue 9, 1/s", "queue 19, 1/s", late, 4, 0, s / 2, 7 * s / 2, 7 * s / 2},
		{"a shorter queue", "queue 9, 1/s", "queue 2, 1/s", late, 4, 0, s, 3 * s, 3 * s},
		// The fourth leaves in 3 s, and the next may a tenth of a second later.
		{"a faster queue", "queue 9, 1/s", "queue 99, 10/s", late, 4, 0, 0, 3100 * time.Millisecond, 3100 * time.Millisecond},
		{"a faster queue, and the last has left", "queue 9, 1/s", "queue 99, 10/s", late, 4, 0, 3500 * time.Millisecond, 50 * time.Millisecond, 50 * time.Millisecond},
		{"a slower queue", "queue 9, 1/s", "queue 9, 1/10s", late, 4, 0, s, 30 * s, 30 * s},
		// The new queue holds two and the unit that leaves.
		{"a slower and shorter queue", "queue 9, 1/s", "queue 2, 1/10s", late, 8, 0, 0, 30 * s, 30 * s},

		{"what is missing is missing in a larger store", "bursty 1/s, 9", "bursty 1/s, 19", late, 4, 0, s, 0, 3 * s},
		{"and in a smaller one", "bursty 1/s, 9", "bursty 1/s, 3", late, 4, 0, s, 0, 3 * s},
		{"as far as it goes", "bursty 1/s, 9", "bursty 1/s, 3", late, 8, 0, s, 0, 3 * s},
		{"faster", "bursty 1/s, 9", "bursty 10/s, 9", late, 4, 0, 0, 0, 400 * time.Millisecond},
		// No call overtakes the calls that may be waiting.
		{"faster, owing", "bursty 1/s, 9", "bursty 10/s, 99", late, 14, 0, 0, 5 * s, 5*s + 9900*time.Millisecond},
		{"slower, owing", "bursty 10/s, 9", "bursty 1/s, 9", late, 14, 0, 0, 5 * s, 14 * s},
		// The store is still filling up for the first time.
		{"early, not used", "bursty 1/s, 9", "bursty 1/s, 99", 1, 0, 0, 3 * s, 0, 0},
		{"early", "bursty 1/s, 9", "bursty 1/s, 99", 1, 2, 0, 3 * s, 0, 98 * s},
		{"early, owing", "bursty 1/s, 9", "bursty 1/s, 2", 1, 5, 0, 3 * s, 2 * s, 4 * s},

		// Above a million units a second a window has coarser steps. It keeps its end.
		{"a window of coarser steps", "window 1000/ms", "window 1024/ms", 5_000_001, 1000, 0, ms / 2, 0, ms / 2},
		{"a window of finer steps", "window 2000/ms", "window 1000/ms", 5_000_001, 1500, 0, ms / 2, ms / 2, ms / 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to := policy.Must(policy.Parse(c.from)), policy.Must(policy.Parse(c.to))
			word, _ := from.Take(0, c.now, c.used, 0)
			for range c.turns {
				word, _ = from.Take(word, c.now, 1, time.Hour)
			}
			then := c.now + policy.Instant(c.after)
			word, ok := to.(policy.Relative).Carry(from, word, then)
			require.True(t, ok)
			_, d := to.Take(word, then, 0, 0)
			assert.Equal(t, c.reset, d.ResetAfter)
			assert.Equal(t, then+policy.Instant(c.wait), starts(to, word, then, 1))
		})
	}
}
