package policy

import (
	"fmt"
	"math/bits"
	"time"
)

// atMostCuts are the numbers of parts that a period may be cut into. A word says in
// its lowest two bits which of them it is.
var atMostCuts = [...]int{1, 2, 4, 8}

const (
	cutBits        = 2
	shortestAtMost = time.Millisecond // so that no part is rounded up by much
)

// cut is one way to divide time, and a word. Above the bits that say which it is
// come the counts of the current part and of those before it that still count, the
// current one's lowest; above them the number of the current part.
type cut struct {
	code   uint64
	counts int           // one more than the parts of a period
	length time.Duration // of a part
	bits   uint          // of a count
	last   uint64        // the highest number of a part that a word can hold
}

// atMost keeps in a key's word what was taken in each of the parts of time that any
// period which is not over yet can reach into.
type atMost struct {
	limit int64
	per   time.Duration
	cuts  [len(atMostCuts)]cut // the ways to cut per, whatever the limit
	own   *cut                 // the one that this limit uses
}

// endAtMost is where time stands still for all of them: 9 years after the epoch.
const endAtMost = Instant(lastingTime)

// AtMost returns the hard promise: no window of length per, wherever it starts, ever
// sees more than limit units. Choose it where somebody else counts and punishes, as
// an upstream service with a quota does, or where the limit is what a thing can
// bear; everywhere else it costs too much.
//
// It cuts time into parts, k of them to a period, and counts each part by itself. The
// current part and the k before it must not have more than the limit together, since
// a window of length per reaches into k+1 of them at most. So it is the ring of
// sub-windows, with one more than is usual, which turns an approximation into a
// promise.
//
// What it costs is rate. Units count until their part can be in no window with the
// next call: for as long as per if they were taken at the end of a part, for (k+1)/k
// of that if at its beginning. Who takes whatever is there gets k/(k+1) of limit/per in
// the long run, and so does, nearly, who comes evenly, unless the limit is below 8: calls
// seldom come just when a part leaves, and of a limit of 1 every other one passes that
// comes once every per. k is 8, 4, 2 or 1, the largest for which k+1 counts up to limit
// fit a word; [Parts] returns it. For a period of a second it is 8 for limits up to 7, 4 up to
// 63, 2 up to 1023, and 1, with half of the rate, up to 65535. For an hour it is 8 up to
// 15, 4 up to 255, 2 up to 16383, and 1 above.
//
// One word cannot do much better for bursts that may be as high as the limit: to
// know when each unit leaves the window takes a timestamp for each. What is known of
// several together must be taken to be the latest of them, and so they stay too
// long, by as much as time was cut coarsely. Where bursts can be smaller, a [Funnel]
// of capacity b that drains limit-b every per keeps the same promise, and sustains
// all of (limit-b)/per.
//
// # The most that it admits
//
// In any window of length t it admits at most limit times (t/part + 1)/(k+1), both
// quotients rounded up, where part is per/k, rounded up to a nanosecond: limit
// within per, both ends included.
//
// # What is rounded, and what is refused
//
// limit is at least 1, per between a millisecond and 366 days. A limit so high that
// two counts do not fit a word is refused: 2047 is the highest for a millisecond,
// 524287 for a minute, 4194303 for an hour. The error is a *[FieldError].
//
// # Turns and time
//
// Who waits has his turn at the beginning of a part, the first at which enough has
// left, and is counted there. Until it begins, those who come are treated as if it
// just did, so nobody overtakes. That holds for a clock that goes backwards as well:
// it mints nothing, and callers whose clock lags behind the beginning of a part that
// others are in already have to come back when it begins. Time stands still 9 years
// after the epoch, and patience beyond 9 years counts as 9.
//
// # Giving back
//
// Units are given back to the latest part first, and then to earlier ones as long as
// they count. That undoes a take that was just made; if it had to wait for its part,
// nobody else is admitted before that begins. A refund of units of an earlier part lets
// the latest have as many more while those of others in it still count: where units may
// be older, use Reserve and Cancel. Cancel is exact, as it knows the part. It gives back
// all that the take took as long as that part counts, unless a limit that cuts time more
// coarsely has rewritten the word. A debt, which may reach what a count can hold, lies in
// the current part and leaves with it.
//
// # One limit after another
//
// All AtMosts are of one family. Where another limit comes with a call (TakeWith) it
// must be of the same per. A key that is in use stays cut as it is, as far as its
// counts go, and the promise is kept for each call at its own limit. The same
// holds if another one of the same per takes over for good (SetPolicy). If its per is
// another, all that counts at that instant counts as taken then. If turns are promised, it
// counts in the first part that begins with the last of them or later, and no call is
// admitted before that.
func AtMost(limit int64, per time.Duration) (Policy, error) {
	if err := windowFault("AtMost", limit, per, shortestAtMost); err != nil {
		return nil, err
	}
	a := &atMost{limit: limit, per: per}
	for code, parts := range atMostCuts {
		a.cuts[code] = newCut(uint64(code), uint64(parts), uint64(per))
		if c := &a.cuts[code]; uint64(limit) <= c.full() {
			a.own = c // the counts shrink from one to the next
		}
	}
	if a.own == nil {
		return nil, &FieldError{Of: "AtMost", Field: "limit", Value: limit, Want: fmt.Sprintf(
			"at most %d: a word that lasts 9 years holds no higher counts of two parts of %v", a.cuts[0].full(), per)}
	}
	return a, nil
}

func newCut(code, parts, per uint64) cut {
	length := (per + parts - 1) / parts
	// The number needs so many bits to last; what is left is for the counts.
	number := bits.Len64(lastingTime/length + 2)
	count := uint(63-cutBits-number) / uint(parts+1)
	last := uint64(1)<<(63-cutBits-uint(parts+1)*count) - 2 // MaxWord is above all words of it
	return cut{
		code: code, counts: int(parts) + 1, length: time.Duration(length), bits: count,
		last: min(last, 4*lastingTime/length), // an instant holds the end of that
	}
}

// parts is a word, taken apart: the number of the current part, and all counts.
type parts struct {
	*cut
	number uint64
	packed uint64
}

func (c *cut) full() uint64 { return 1<<c.bits - 1 }

// begins is when a part begins.
func (c *cut) begins(number uint64) Instant { return Instant(number * uint64(c.length)) }

// numberAt is the part that t is in.
func (c *cut) numberAt(t Instant) uint64 { return uint64(t) / uint64(c.length) }

func (a *atMost) split(word uint64) parts {
	c := &a.cuts[word&(1<<cutBits-1)]
	packed := word >> cutBits
	width := uint(c.counts) * c.bits
	return parts{cut: c, number: min(packed>>width, c.last), packed: packed & (1<<width - 1)}
}

func (p parts) join() uint64 {
	return (p.number<<(uint(p.counts)*p.bits)|p.packed)<<cutBits | p.code
}

// at returns what counts for a call at t, in the part that it is in. If that part
// was not reached yet, the call is treated as if it just began. A key of which
// nothing counts is cut anew.
func (a *atMost) at(word uint64, t Instant) parts {
	p := a.split(word)
	number := p.numberAt(t)
	if number < p.number {
		return p
	}
	if p = p.on(number); p.packed == 0 && p.cut != a.own {
		return parts{cut: a.own, number: a.own.numberAt(t)}
	}
	return p
}

// on goes on to a later part.
func (p parts) on(number uint64) parts {
	passed := number - p.number
	p.number = number
	if passed >= uint64(p.counts) {
		p.packed = 0
		return p
	}
	p.packed = p.packed << (uint(passed) * p.bits) & (1<<(uint(p.counts)*p.bits) - 1)
	return p
}

// count is that of the part so many before the current one.
func (p parts) count(before int) uint64 { return p.packed >> (uint(before) * p.bits) & p.full() }

// used is how many units count.
func (p parts) used() uint64 {
	var sum uint64
	for packed := p.packed; packed != 0; packed >>= p.bits {
		sum += packed & p.full()
	}
	return sum
}

// freshAt is when the latest part that has anything leaves.
func (p parts) freshAt() Instant {
	if p.packed == 0 {
		return p.begins(p.number)
	}
	before := uint(bits.TrailingZeros64(p.packed)) / p.bits
	return p.begins(p.number + uint64(uint(p.counts)-before))
}

// Take implements [Policy].
func (a *atMost) Take(word uint64, now Instant, n int64, patience time.Duration) (uint64, Decision) {
	t := clamped(now, endAtMost)
	p := a.at(word, t)
	if n < 0 || n > a.limit {
		return word, a.describe(p, t, Decision{RetryAfter: Never})
	}
	if n == 0 {
		return word, a.describe(p, t, Decision{Allowed: true})
	}
	later := 0
	for used := p.used(); used+uint64(n) > uint64(a.limit); later++ {
		used -= p.count(p.counts - 1 - later) // the oldest leave
	}
	turn := p.on(p.number + uint64(later))
	start := max(t, turn.begins(turn.number))
	if start > endAtMost {
		return word, a.describe(p, t, Decision{RetryAfter: Never}) // time stands still before it
	}
	d := decide(t, start, patience)
	if !d.Allowed {
		return word, a.describe(p, t, d)
	}
	next := a.charged(turn, t, uint64(n)) // which a word can hold, as the part begins in time
	return next.join(), a.describe(next, t, d)
}

// charged counts n units more in the current part. If the count has no room for so
// many, and one of the own cut has more, all is counted there.
func (a *atMost) charged(p parts, t Instant, n uint64) parts {
	if n > p.full()-p.count(0) && p.full() < a.own.full() {
		p = a.recut(p, t)
	}
	p.packed += min(n, p.full()-p.count(0))
	return p
}

// recut counts all that counts in one part of the own cut, which is a coarser one,
// so that none of it leaves earlier than it would have. Turns that are to come are
// at the beginning of their part; the new one begins no earlier than that.
func (a *atMost) recut(p parts, t Instant) parts {
	begins := p.begins(p.number)
	latest := begins + Instant(p.counts)*Instant(p.length) - Instant(a.per) - 1 // per before the last instant that it counts
	if begins > t {
		latest = begins + Instant(a.own.length) - 1
	}
	return parts{cut: a.own, number: a.own.numberAt(latest), packed: min(p.used(), a.own.full())}
}

// describe fills in what follows from what counts after the call.
func (a *atMost) describe(p parts, t Instant, d Decision) Decision {
	d.Limit = a.limit
	if p.begins(p.number) <= t {
		d.Remaining = max(a.limit-int64(p.used()), 0)
	}
	d.ResetAfter = time.Duration(max(p.freshAt()-t, 0))
	return d
}

// FreshAt implements [Policy].
func (a *atMost) FreshAt(word uint64) Instant { return a.split(word).freshAt() }

// Refund implements [Refunder].
func (a *atMost) Refund(word uint64, now Instant, n int64) uint64 {
	t := clamped(now, endAtMost)
	p := a.at(word, t)
	if n < 0 {
		charge := asUnits(n, a.own.full())
		if next := a.charged(p, t, charge); next.number <= next.last {
			return next.join()
		}
		p.packed += min(charge, p.full()-p.count(0))
		return p.join()
	}
	left := asUnits(n, p.used())
	if left == 0 {
		return word
	}
	for before := 0; left > 0; before++ {
		left -= p.lower(before, left)
	}
	return p.join()
}

// Cancel implements [Refunder]. A count is one of units that nobody can tell apart, so
// that it makes no difference what others gave back.
func (a *atMost) Cancel(word, taken uint64, _, now Instant, n, _ int64) uint64 {
	t := clamped(now, endAtMost)
	p, took := a.at(word, t), a.split(taken)
	ago := p.number - took.number // so many parts; more than any if it was not taken yet
	if n < 0 || took.cut != p.cut || ago >= uint64(p.counts) {
		return word
	}
	if p.lower(int(ago), asUnits(n, p.full())) == 0 {
		return word
	}
	return p.join()
}

// lower gives back up to n units of the part so many before the current one, and
// returns how many those are.
func (p *parts) lower(before int, n uint64) uint64 {
	back := min(n, p.count(before))
	p.packed -= back << (uint(before) * p.bits)
	return back
}

// Reads implements [Relative].
func (a *atMost) Reads(other Policy) bool {
	o, ok := other.(*atMost)
	return ok && o.per == a.per
}

// Carry implements [Relative].
func (a *atMost) Carry(from Policy, word uint64, now Instant) (uint64, bool) {
	old, ok := from.(*atMost)
	if !ok {
		return 0, false
	}
	if a.Reads(old) {
		return word, true
	}
	t := clamped(now, endAtMost)
	if t >= old.FreshAt(word) {
		return 0, true
	}
	p := old.at(word, t)
	// Of turns in one part all are at its beginning.
	start := p.begins(p.number)
	number := a.own.numberAt(t)
	if start > t {
		number = min(a.own.numberAt(start+Instant(a.own.length)-1), a.own.last)
	}
	return parts{cut: a.own, number: number, packed: min(p.used(), a.own.full())}.join(), true
}

// Parts returns the number of parts, k, into which the period of an [AtMost] is cut, so
// that limit*k/(k+1) units per period pass in the long run. It returns 0 for any other
// policy.
func Parts(p Policy) int {
	if a, ok := p.(*atMost); ok && a != nil {
		return a.own.counts - 1
	}
	return 0
}

// String implements [Policy].
func (a *atMost) String() string {
	parts := "1 part"
	if k := Parts(a); k > 1 {
		parts = fmt.Sprintf("%d parts", k)
	}
	return fmt.Sprintf("at most %d in any %v, counted in %s", a.limit, a.per, parts)
}
