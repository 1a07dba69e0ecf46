package policy_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// oracle is a slow and obviously right model of one key: the limit as it would
// be explained at a whiteboard, in exact fractions. It has a memory where a
// policy has a word.
type oracle interface {
	// take answers as Take must, and remembers what was taken.
	take(now policy.Instant, n int64, patience time.Duration) policy.Decision

	// turn returns the nanosecond at which the last admitted call may start. If that
	// is no whole number, the caller is told to start at the next.
	turn() *big.Rat

	// refund does what Refund must do, and returns the number of units that came
	// back: 0 for a charge.
	refund(now policy.Instant, n int64) (back *big.Rat)

	// mark represents the word that the last admitted take left. cancel does what
	// Cancel must do, given that and the units of the take.
	mark() any
	cancel(now policy.Instant, taken any, n int64) (back *big.Rat)
}

// asked decides about a call that nothing but its size and its turn may refuse: turn
// returns the instant at which its units fit, and whether time ever gets there. It reports
// whether the units are to be recorded.
func asked(d *policy.Decision, at, n int64, patience time.Duration, turn func() (start int64, ever bool)) bool {
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
	wait, willing := time.Duration(start-at), min(max(patience, 0), longestPatience)
	if wait > willing {
		d.RetryAfter = wait - willing
		return false
	}
	d.Allowed, d.Wait, d.RetryAfter = true, wait, 0
	return true
}

// charged returns the units to record for a refund of n < 0, if a count has that much room.
func charged(n, room int64) int64 {
	if n == math.MinInt64 {
		return room // -n is more than any
	}
	return min(room, -n)
}

// batch holds the units recorded in one window or part, and batches all of them.
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

// kind is a kind of policy that the harness can put on trial.
type kind struct {
	name string
	// read makes a limit of any parameters that the constructor accepts.
	read func(s *script) subject
	// seeds are scripts to begin fuzzing with.
	seeds [][]byte
}

// subject is one limit on trial, with all that is known about it from outside.
type subject struct {
	policy.Policy
	oracle oracle

	limit    int64          // what Decision.Limit must be
	end      policy.Instant // where its time stands still
	patience time.Duration  // what any longer patience counts as
	period   time.Duration  // a time in which things change

	// within reports whether so many units may be admitted in a window of that many
	// sixteenths of a nanosecond, both ends included.
	within func(units, window *big.Int) bool

	// queues is set for a limit that delays calls without patience: it is the longest
	// such delay.
	queues time.Duration
	// aliases is set if two different words can mean the same to a take that follows:
	// the words after it are then compared by their meaning.
	aliases bool
	// apart is set if a word that means the same as 0 under this limit may mean more
	// under another of the family, so that FreshAt is later than under this one
	// alone.
	apart bool
	// costly is set if a take that is given back at once may leave something that the
	// next one pays for, so that this is checked separately.
	costly bool
	// forgets is set if a take that has to wait leaves a word that no longer
	// describes the time until its turn. Given back, it then leaves no more than
	// there was, instead of the same.
	forgets bool
	// joins is set if a call whose clock is behind joins the calls before it, even if
	// all that they took has come back.
	joins bool
	// credit is set if a take may be of any size, and is paid for afterwards.
	credit bool
	// lags is set if a call whose clock is behind an empty window, all of whose units
	// came back, finds that window: a take lasts longer than the window is
	// remembered.
	lags bool
}

// run puts a new key through a script of so many calls at most.
func (k *kind) run(t *testing.T, s *script, calls int) {
	t.Helper()
	trial := newTrial(t, k.read(s))
	s.period = trial.period
	last := action{what: takes}
	d := policy.Decision{Limit: trial.limit}
	for range calls {
		next, more := s.next(last, d)
		if !more {
			return
		}
		d = trial.do(next)
		last = next
	}
}

// fuzz is the body of a fuzz target.
func (k *kind) fuzz(f *testing.F) {
	f.Add([]byte(nil))
	for _, seed := range k.seeds {
		f.Add(seed)
	}
	// Every window of the calls is looked at, so there must be an end.
	const calls = 48
	f.Fuzz(func(t *testing.T, data []byte) { k.run(t, &script{data: data}, calls) })
}

// random runs random scripts, the same ones each time. One that fails is run
// alone with first and count set to it and to 1.
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

// extremes asks everything of a limit at every time, including words that no sequence
// of calls would have left. For those it checks only that nothing breaks and that
// nothing is given away.
func (s subject) extremes(t *testing.T) { t.Run(fmt.Sprint(s), s.checkExtremes) }

func (s subject) checkExtremes(t *testing.T) {
	words := []uint64{0, 1, 15, 16, 17, 1 << 32, 1<<59 - 1, 1 << 62, 1<<63 - 34, 1<<63 - 33, 1<<63 - 32,
		policy.MaxWord - 16, policy.MaxWord - 1, policy.MaxWord}
	instants := []policy.Instant{math.MinInt64, -1, 0, 1, 2, 1 << 32, s.end - 1, s.end, s.end + 1,
		math.MaxInt64 - 1, math.MaxInt64}
	patiences := []time.Duration{math.MinInt64, -1, 0, 1, time.Second, s.patience - 1, s.patience,
		s.patience + 1, math.MaxInt64}
	amounts := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, 2, s.limit - 1, s.limit, math.MaxInt64}
	if s.limit < math.MaxInt64 {
		amounts = append(amounts, s.limit+1)
	}
	for _, word := range words {
		if fresh := s.FreshAt(word); fresh < 0 || word == 0 && fresh != 0 {
			t.Fatalf("%v: FreshAt(%d) = %d", s, word, fresh)
		}
		for _, now := range instants {
			for _, n := range amounts {
				for _, patience := range patiences {
					s.extreme(t, word, now, n, patience)
				}
				s.extremeRefund(t, word, now, n)
				for _, taken := range words {
					if next := s.Policy.(policy.Refunder).Cancel(word, taken, 0, now, n, 0); next > policy.MaxWord ||
						s.FreshAt(next) > s.FreshAt(word) {
						t.Fatalf("%v: Cancel(%d, %d, %d, %d) = %d", s, word, taken, now, n, next)
					}
				}
			}
		}
	}
}

func (s subject) extreme(t *testing.T, word uint64, now policy.Instant, n int64, patience time.Duration) {
	t.Helper()
	next, d := s.Take(word, now, n, patience)
	before := s.FreshAt(word)
	var fault string
	switch {
	case next > policy.MaxWord:
		fault = "the word is above MaxWord"
	case d.Limit != s.limit:
		fault = "the limit is another"
	case d.Remaining < 0 || d.Remaining > d.Limit:
		fault = "what remains is out of range"
	case d.Wait < 0 || d.RetryAfter < 0 || d.ResetAfter < 0:
		fault = "a delay is below 0"
	case d.Wait > max(patience, s.queues) || d.Wait > max(s.patience, s.queues):
		fault = "the wait is longer than patience"
	case d.Allowed != (d.RetryAfter == 0):
		fault = "RetryAfter belongs to refused calls, and to all of them"
	case (n < 0 || n > d.Limit) && d.RetryAfter != policy.Never:
		fault = "it can never succeed"
	case n == 0 && !d.Allowed:
		fault = "looking is always allowed"
	case (n == 0 || !d.Allowed) && next != word:
		fault = "nothing was taken, but the word changed"
	case n > 0 && d.Allowed && (next == word || s.FreshAt(next) < before || s.FreshAt(next) <= held(now, s.end)):
		fault = "units were minted"
	case d.ResetAfter != s.resetAfter(next, held(now, s.end)):
		fault = "ResetAfter is not until FreshAt"
	default:
		s.chokes(t, word, now)
		return
	}
	t.Fatalf("%v: Take(%d, %d, %d, %d) = %d, %+v: %s", s, word, now, n, patience, next, d, fault)
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

// String is the limit's own.
func (s subject) String() string { return fmt.Sprint(s.Policy) }
