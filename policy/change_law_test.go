package policy_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

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
}{{1, 1}, {1, 7}, {3, 9}, {3, 70_000}, {1, time.Millisecond}, {7, time.Second}, {10, time.Second}, {1000, time.Second}, {1, time.Minute}}

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
	{"SlidingWindow", windowsOf(policy.SlidingWindow, 1), policy.Policy.Limit, false, tick},
	{"AtMost", windowsOf(policy.AtMost, time.Millisecond), policy.Policy.Limit, false, aPart},
	// A promised turn may lie within a window of the next limit. One more window may be full.
	{"AlignedWindow", alignedToAnything, policy.Policy.Limit, false, func(p policy.Policy) time.Duration {
		return p.(policy.Windowed).Window() * 13 / 12 // 31 days are less than that many mean months
	}},
}

func tick(policy.Policy) time.Duration { return 1 }

func aPart(p policy.Policy) time.Duration { return p.(policy.Windowed).Window() }

func allOf(p policy.Policy, at policy.Instant) uint64 {
	word, _ := p.Take(0, at, p.Limit(), 0)
	return word
}

func windowsOf(of func(int64, time.Duration) (policy.Policy, error), shortest time.Duration) func(*rand.Rand, int64) policy.Policy {
	pers := []time.Duration{9, 20, time.Millisecond, 7 * time.Millisecond, 600 * time.Millisecond, time.Second, 2 * time.Second, time.Minute}
	return func(rng *rand.Rand, least int64) policy.Policy {
		for {
			p, err := of(least+rng.Int64N(9)*rng.Int64N(9), max(shortest, pers[rng.IntN(len(pers))]))
			if err == nil {
				return p
			}
		}
	}
}

// past is the state of a key before its limit changes.
type past struct {
	word   uint64
	now    policy.Instant // the instant of the change
	turn   policy.Instant // the last start that was promised
	period int64          // nanoseconds, the time of ten units, or of the limit if that is less
}

// drawPast lets up to six calls take from a key under p.
func drawPast(rng *rand.Rand, p policy.Policy) (h past) {
	h.period = int64(p.(policy.Windowed).Window())/p.Limit()*min(p.Limit(), 10) + 2
	h.now = policy.Instant(1 + rng.Int64N(4*h.period))
	for range 1 + rng.IntN(6) {
		h.now += policy.Instant(rng.Int64N(h.period) >> rng.UintN(10))
		next, d := p.Take(h.word, h.now, 1+rng.Int64N(min(p.Limit(), 10)), time.Duration(rng.Int64N(4*h.period)))
		if d.Allowed {
			h.word, h.turn = next, max(h.turn, h.now+policy.Instant(d.Wait))
		}
	}
	h.now += policy.Instant(rng.Int64N(h.period) >> rng.UintN(10))
	return h
}

// starts returns the earliest instant at which a call for n units would start.
func starts(p policy.Policy, word uint64, now policy.Instant, n int64) policy.Instant {
	_, d := p.Take(word, now, n, math.MaxInt64)
	if !d.Allowed { // a queue is full, until there is room to wait in
		now += policy.Instant(d.RetryAfter)
		_, d = p.Take(word, now, n, math.MaxInt64)
	}
	return now + policy.Instant(d.Wait)
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
				p := c.pick(rng, 1+rng.Int64N(5))
				h := drawPast(rng, p)
				word, now, turn := h.word, h.now, h.turn
				about := fmt.Sprintf("%d at %d under %v, turn %d", word, now, p, turn)

				from, carried := p, word
				for range 1 + rng.IntN(3) {
					q := c.pick(rng, c.holds(p))
					next, ok := q.(policy.Relative).Carry(from, carried, now)
					require.True(t, ok)
					about += fmt.Sprintf(", %v: %d", q, next)
					from, carried = q, next
				}
				back, ok := p.(policy.Relative).Carry(from, carried, now)
				require.True(t, ok)
				about += fmt.Sprintf(", and back: %d", back)
				if turn > now {
					ahead++
				}
				if p.FreshAt(word) > now {
					used++
				}
				for range 8 {
					at := now + policy.Instant(rng.Int64N(4*h.period)>>rng.UintN(20))
					n := 1 + rng.Int64N(min(p.Limit(), 10))
					if was, is := starts(p, word, at, n), starts(p, back, at, n); is < was {
						require.Fail(t, "sooner", "%s: %d at %d start at %d instead of %d", about, n, at, is, was)
					}
					_, was := p.Take(word, at, 0, 0)
					_, is := p.Take(back, at, 0, 0)
					if is.Remaining > was.Remaining {
						require.Fail(t, "more", "%s: at %d remain %d instead of %d", about, at, is.Remaining, was.Remaining)
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
				p := c.pick(rng, 1+rng.Int64N(9))
				h := drawPast(rng, p)
				word, now, turn := h.word, h.now, h.turn
				turn = max(turn, now)
				q := c.pick(rng, 1+rng.Int64N(9))
				next, ok := q.(policy.Relative).Carry(p, word, now)
				require.True(t, ok)
				about := fmt.Sprintf("%d at %d under %v, turn %d, %v: %d", word, now, p, turn, q, next)
				if turn > now {
					ahead++
				}
				if c.owes {
					turn = max(turn, starts(p, word, now, 1))
				}
				full := allOf(q, turn)
				for range 4 {
					n := 1 + rng.Int64N(min(q.Limit(), 10))
					latest := starts(q, full, turn, n) + policy.Instant(c.rounds(q))
					if c.holds(p) > c.holds(q) {
						lowered++
						if c.name == "SlidingWindow" && p.(policy.Relative).Reads(q) {
							latest = max(latest, p.FreshAt(word))
						}
					}
					if at := starts(q, next, now, n); at > latest {
						require.Fail(t, "later", "%s: %d start at %d, not by %d", about, n, at, latest)
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
		q := policy.Must(policy.SlidingWindow(1+rng.Int64N(limit), time.Duration(20+rng.IntN(int(time.Second)))))
		began := per * (1 + rng.Int64N(100))
		now := policy.Instant(began)
		var word uint64
		for range 1 + rng.IntN(5) {
			now += (policy.Instant(began+per) - now) / policy.Instant(1+rng.IntN(8)+1)
			word, _ = p.Take(word, now, 1+rng.Int64N(limit), 0)
		}
		kept, ok := low.(policy.Relative).Carry(p, word, now)
		require.True(t, ok)
		next, ok := q.(policy.Relative).Carry(low, kept, now)
		require.True(t, ok)
		_, was := p.Take(word, now, 0, 0)
		used := limit - was.Remaining
		_, is := q.Take(next, now, 0, 0)
		require.Equal(t, max(q.Limit()-used, 0), is.Remaining, "%d at %d of %v, %v, %v", word, now, p, low, q)
		full, _ := q.Take(0, now, q.Limit(), 0)
		for n := range q.Limit() {
			require.LessOrEqual(t, starts(q, next, now, n+1), starts(q, full, now, n+1), "%d at %d of %v, %v, %v", word, now, p, low, q)
		}
		if used > low.Limit() {
			lowered++
		}
	}
	assert.Greater(t, lowered, 2000/raceFactor)
}
