package policy_test

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
)

// oracle is a slow and obviously right model of a key, in exact fractions. It has a memory
// where a policy has a word.
type oracle interface {
	// take answers as Take must, and remembers what was taken.
	take(now policy.Instant, n int64, patience time.Duration) policy.Decision

	// turn returns the nanosecond at which the last admitted call may start, before rounding up.
	turn() *big.Rat

	// refund does what Refund must do, and returns the units that came back: 0 for a charge.
	refund(now policy.Instant, n int64) (back *big.Rat)

	// mark represents the word that the last admitted take left, for cancel, which does what
	// Cancel must do.
	mark() any
	cancel(now policy.Instant, taken any, n int64) (back *big.Rat)
}

// asked decides about a call by its size and its turn. turn returns the instant at which its
// units fit, and whether time gets there. It reports whether to record the units.
func asked(d *policy.Decision, instant, n int64, patience time.Duration, turn func() (start int64, ever bool)) bool {
	if n == 0 {
		d.Allowed = true
		return false
	}
	d.RetryAfter = policy.Never
	if n < 0 || n > d.Limit {
		return false
	}
	start, ever := turn()
	if !ever {
		return false
	}
	wait, willing := time.Duration(start-instant), min(max(patience, 0), longestPatience)
	if wait > willing {
		d.RetryAfter = wait - willing
		return false
	}
	d.Allowed, d.Wait, d.RetryAfter = true, wait, 0
	return true
}

// charged returns the units to record for a refund of n < 0, into a count with that much room.
func charged(n, room int64) int64 {
	if n == math.MinInt64 {
		// -n is more than any int64.
		return room
	}
	return min(room, -n)
}

type batch struct{ in, units int64 }

type batches []batch

func (b batches) in(number int64) (units int64) {
	for _, batch := range b {
		if batch.in == number {
			units += batch.units
		}
	}
	return units
}

// with adds units, and forgets those from before oldest.
func (b batches) with(number, units, oldest int64) batches {
	kept := batches{{number, units}}
	for _, batch := range b {
		if batch.in >= oldest {
			kept = append(kept, batch)
		}
	}
	return kept
}

type kind struct {
	name string
	// read makes a limit of any parameters that the constructor accepts.
	read func(s *script) subject
}

// subject is a limit on trial, with its outside knowledge.
type subject struct {
	policy.Policy
	oracle oracle

	// limit is the right Decision.Limit.
	limit int64
	// end is the instant at which the limit's time stands still.
	end policy.Instant
	// patience is the patience that each longer one counts as.
	patience time.Duration
	// period is a time in which things change.
	period time.Duration

	// within reports whether so many units may be admitted in a window of sixteenths of a
	// nanosecond, both ends included.
	within func(units, window *big.Int) bool

	// queues is the longest delay of calls without patience.
	queues time.Duration
	// aliases is set if two words can mean the same to a later take. They are compared by their
	// meaning.
	aliases bool
	// apart is set if a word that means 0 here may mean more under another limit of the family,
	// so that FreshAt is later than for this limit alone.
	apart bool
	// costly is set if the next take may pay for a take that was given back at once. Another test
	// checks that.
	costly bool
	// forgets is set if a waiting take's word no longer describes the time until its turn. Given
	// back, it leaves no more than there was, instead of the same.
	forgets bool
	// joins is set if a call whose clock is behind joins the calls before it, even if all their
	// units came back.
	joins bool
	// clockless is set if units come back without a look at the clock.
	clockless bool
	// credit is set if a take may be of any size, and is paid for afterwards.
	credit bool
	// stays is set if a take that is given back leaves its window where it opened: as much remains
	// as without the take, and the window is empty.
	stays bool
}

// atRate returns a subject.within: units, less those beside, are at most count*window/per.
func atRate(count int64, per time.Duration, beside func() int64) func(units, window *big.Int) bool {
	length, parts := new(big.Int).Lsh(big.NewInt(int64(per)), 4), big.NewInt(count)
	return func(units, window *big.Int) bool {
		var over, left big.Int
		over.Mul(over.Sub(units, big.NewInt(beside())), length)
		return over.Cmp(left.Mul(window, parts)) <= 0
	}
}

// inWindows returns a subject.within: units are at most limit in each window of at least that
// length that is reached into, and another.
func inWindows(limit int64, length time.Duration) func(units, window *big.Int) bool {
	return func(units, window *big.Int) bool {
		most := ceilInt(new(big.Rat).SetFrac(window, sixteenths(whole(int64(length)))))
		most.Add(most, big.NewInt(1))
		return units.Cmp(most.Mul(most, big.NewInt(limit))) <= 0
	}
}

// pace reads a rate of at most a unit every 100 ns, over a microsecond or more.
func (s *script) pace() (count int64, per time.Duration) {
	// fastest is in nanoseconds a unit.
	const fastest = 100
	per = time.Duration(s.between(int64(time.Microsecond), int64(year)))
	return s.between(1, int64(per)/fastest), per
}

func (k *kind) run(t *testing.T, s *script, calls int) {
	t.Helper()
	trial := newTrial(t, k.read(s))
	s.period = trial.period
	last := action{what: takes}
	decision := policy.Decision{Limit: trial.limit}
	for range calls {
		next, more := s.next(last, decision)
		if !more {
			return
		}
		decision = trial.do(next)
		last = next
	}
}

// random runs the same random scripts each time. Run a failing script alone by its number and a
// count of 1.
func (k *kind) random(t *testing.T, first, count uint64) {
	t.Helper()
	calls := 16
	for seed := first; seed < first+count && !t.Failed(); seed++ {
		func() {
			defer func() {
				if t.Failed() {
					t.Logf("that was script %d of %s", seed, k.name)
				}
			}()
			k.run(t, &script{rng: rand.New(rand.NewPCG(seed, 0))}, calls)
		}()
	}
}

// extreme asks a limit with a word that perhaps no sequence of calls leaves. It checks that nothing
// breaks and nothing is given away.
func (s subject) extreme(t *testing.T, word uint64, now policy.Instant, n int64, patience time.Duration) {
	t.Helper()
	next, decision := s.Take(word, now, n, patience)
	before := s.FreshAt(word)
	var fault string
	switch {
	case next > policy.MaxWord:
		fault = "the word is above MaxWord"
	case decision.Limit != s.limit:
		fault = "the limit is another"
	case decision.Remaining < 0 || decision.Remaining > decision.Limit:
		fault = "what remains is out of range"
	case decision.Wait < 0 || decision.RetryAfter < 0 || decision.ResetAfter < 0:
		fault = "a delay is below 0"
	case decision.Wait > max(patience, s.queues) || decision.Wait > max(s.patience, s.queues):
		fault = "the wait is longer than patience"
	case decision.Allowed != (decision.RetryAfter == 0):
		fault = "RetryAfter belongs to refused calls, and to all of them"
	case (n < 0 || n > decision.Limit) && decision.RetryAfter != policy.Never:
		fault = "it can never succeed"
	case n == 0 && !decision.Allowed:
		fault = "looking is always allowed"
	case (n == 0 || !decision.Allowed) && next != word:
		fault = "nothing was taken, but the word changed"
	case n > 0 && decision.Allowed && (next == word || s.FreshAt(next) < before || s.FreshAt(next) <= held(now, s.end)):
		fault = "units were minted"
	case decision.ResetAfter != s.resetAfter(next, held(now, s.end)):
		fault = "ResetAfter is not until FreshAt"
	default:
		s.chokes(t, word, now)
		return
	}
	t.Fatalf("%v: Take(%d, %d, %d, %d) = %d, %+v: %s", s, word, now, n, patience, next, decision, fault)
}

func (s subject) extremeRefund(t *testing.T, word uint64, now policy.Instant, n int64) {
	t.Helper()
	next := s.Policy.(policy.Refunder).Refund(word, now, n)
	_, before := s.Take(word, now, 0, 0)
	_, after := s.Take(next, now, 0, 0)
	var fault string
	switch {
	case next > policy.MaxWord:
		fault = "the word is above MaxWord"
	case n == 0 && next != word:
		fault = "nothing was given back, but the word changed"
	case n > 0 && (s.FreshAt(next) > s.FreshAt(word) || after.Remaining < before.Remaining):
		fault = "units given back were taken"
	case n < 0 && (s.FreshAt(next) < s.FreshAt(word) || after.Remaining > before.Remaining):
		fault = "units charged were given back"
	default:
		return
	}
	t.Fatalf("%v: Refund(%d, %d, %d) = %d, %+v: %s", s, word, now, n, next, after, fault)
}

func (s subject) String() string { return fmt.Sprint(s.Policy) }

// raceFactor divides the size of large tests under the race detector, with little to find in pure
// functions, and on 32 bits, with arithmetic several times as slow.
const raceFactor = max(testenv.RaceSlowdown, 10*(64-bits.UintSize)/32)
