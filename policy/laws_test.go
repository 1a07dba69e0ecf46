package policy_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// trial puts one key through a row of calls and holds every answer against the
// model and against what package policy promises:
//
//  1. the decision is the model's, field by field;
//  2. what can be taken is between nothing and the limit, and no word is above
//     MaxWord;
//  3. a refused call and one for nothing return the word as it was;
//  4. Choke is Take of one unit without patience;
//  5. RetryAfter and Wait are exact to the nanosecond;
//  6. Remaining is exact to the unit;
//  7. from FreshAt on a word is as good as 0, a nanosecond earlier it is not,
//     and no take leaves it in the past;
//  8. in every window of the admitted calls, capacity + count*window/per is
//     kept, whatever the clock does.
type trial struct {
	t      *testing.T
	p      policy.Policy
	choker policy.Choker
	model  *model
	word   uint64

	capacity, count int64
	per             time.Duration

	admitted []admission
}

func newTrial(t *testing.T, capacity, count int64, per time.Duration) *trial {
	p, err := policy.Funnel(capacity, count, per)
	if err != nil {
		t.Fatal(err)
	}
	choker, ok := p.(policy.Choker)
	if !ok {
		t.Fatal("a funnel must be a Choker")
	}
	return &trial{
		t: t, p: p, choker: choker, model: newModel(capacity, count, per),
		capacity: capacity, count: count, per: per,
	}
}

// call makes one call, checks everything there is to check, and keeps the word.
func (r *trial) call(c call) policy.Decision {
	r.t.Helper()
	next, d := r.p.Take(r.word, c.now, c.n, c.patience)
	if want := r.model.take(c.now, c.n, c.patience); d != want {
		r.t.Fatalf("%v: Take(%d, %d, %d, %d)\n got %+v\nwant %+v",
			r.p, r.word, c.now, c.n, c.patience, d, want)
	}
	r.sane(c, next, d)
	r.choke(c)
	r.delays(c, d)
	r.remaining(c, next, d)
	r.fresh(c, next, d)
	if d.Allowed && c.n > 0 {
		r.admit(c, d)
	}
	r.word = next
	return d
}

// must fails with the call that broke a promise.
func (r *trial) must(ok bool, c call, format string, args ...any) {
	if !ok {
		r.t.Helper()
		r.t.Errorf(format, args...)
		r.t.Fatalf("%v: Take(%d, %d, %d, %d)", r.p, r.word, c.now, c.n, c.patience)
	}
}

func (r *trial) sane(c call, next uint64, d policy.Decision) {
	r.must(d.Limit == r.capacity, c, "limit %d", d.Limit)
	r.must(0 <= d.Remaining && d.Remaining <= d.Limit, c, "remaining %d of %d", d.Remaining, d.Limit)
	r.must(next <= policy.MaxWord, c, "word %d is above MaxWord", next)
	r.must(c.patience > 0 || d.Wait == 0, c, "waits %v unasked", d.Wait)
	r.must(d.Wait <= max(c.patience, 0), c, "waits %v", d.Wait)
	if !d.Allowed || c.n == 0 {
		r.must(next == r.word, c, "nothing was taken, but the word became %d", next)
	} else {
		r.must(next > r.word, c, "units were taken, but the word became %d", next)
	}
}

func (r *trial) choke(c call) {
	next, d := r.p.Take(r.word, c.now, 1, 0)
	got, allowed := r.choker.Choke(r.word, c.now)
	r.must(got == next && allowed == d.Allowed, c,
		"Choke says %d, %v, but Take of one %d, %v", got, allowed, next, d.Allowed)
}

// delays makes the same call again, around the instant that it was told.
func (r *trial) delays(c call, d policy.Decision) {
	now := held(c.now)
	if after := d.RetryAfter; after != 0 && after <= time.Duration(endOfTime-now) {
		_, early := r.p.Take(r.word, now+policy.Instant(after)-1, c.n, c.patience)
		r.must(!early.Allowed, c, "told to retry after %d ns, but admitted one sooner", after)
		_, then := r.p.Take(r.word, now+policy.Instant(after), c.n, c.patience)
		r.must(then.Allowed, c, "told to retry after %d ns, but refused then", after)
	}
	if d.Wait > 0 {
		_, less := r.p.Take(r.word, c.now, c.n, d.Wait-1)
		r.must(!less.Allowed, c, "told to wait %d ns, but admitted with less patience", d.Wait)
		_, same := r.p.Take(r.word, c.now, c.n, d.Wait)
		r.must(same == d, c, "told to wait %d ns, but given so much: %+v", d.Wait, same)
	}
}

func (r *trial) remaining(c call, next uint64, d policy.Decision) {
	_, all := r.p.Take(next, c.now, d.Remaining, 0)
	r.must(all.Allowed, c, "%d remain, but cannot be taken", d.Remaining)
	_, more := r.p.Take(next, c.now, d.Remaining+1, 0)
	r.must(!more.Allowed, c, "%d remain, but one more can be taken", d.Remaining)
}

func (r *trial) fresh(c call, next uint64, d policy.Decision) {
	at := r.p.FreshAt(next)
	if !d.Allowed || c.n == 0 {
		r.must(at >= 0, c, "fresh at %d", at)
	} else {
		r.must(at > held(c.now), c, "fresh at %d, before the take", at)
	}
	if want := max(at-held(c.now), 0); d.ResetAfter != time.Duration(want) {
		r.must(false, c, "reset after %d, but fresh in %d", d.ResetAfter, want)
	}
	if at > endOfTime {
		return // time does not get there
	}
	if at > 0 {
		_, d := r.p.Take(next, at-1, 0, 0)
		r.must(d.ResetAfter == 1, c, "a nanosecond before it is fresh: %+v", d)
	}
	for _, later := range []time.Duration{0, 1, r.per, math.MaxInt64} {
		then := shift(at, int64(later))
		for _, n := range []int64{1, r.capacity, 0, r.capacity + 1, -1} {
			for _, patience := range []time.Duration{0, math.MaxInt64} {
				used, got := r.p.Take(next, then, n, patience)
				never, want := r.p.Take(0, then, n, patience)
				r.must(got == want && (n <= 0 || !got.Allowed || used == never), c,
					"fresh at %d, but Take(%d, %d, %d, %d) is %+v", at, next, then, n, patience, got)
			}
		}
	}
}

// admission is one admitted call. Instants are sixteenths of a nanosecond, in
// which all of them are whole numbers.
type admission struct {
	units  *big.Int // all that were admitted so far, these included
	before *big.Int // and without these
	turn   *big.Int // when it may start, exactly
	start  *big.Int // when it was told to start: a whole nanosecond
	waited bool
}

// admit checks every window that the call closes. The bound counts a call at
// the instant at which it may start. Seen from outside, a call that was told to
// wait starts at the next whole nanosecond, so it may be up to fifteen sixteenths
// late, and a window that it opens is allowed that much more.
//
// A clock that goes back must mint nothing, so no call counts as earlier than
// one that was admitted before it.
func (r *trial) admit(c call, d policy.Decision) {
	a := admission{
		before: new(big.Int),
		turn:   ceilInt(new(big.Rat).Mul(r.model.turn, whole(16))),
		start:  big.NewInt(int64(held(c.now)) + int64(d.Wait)),
		waited: d.Wait > 0,
	}
	a.start.Lsh(a.start, 4)
	if len(r.admitted) > 0 {
		last := r.admitted[len(r.admitted)-1]
		a.before = last.units
		if a.turn.Cmp(last.turn) < 0 {
			a.turn = last.turn
		}
		if a.start.Cmp(last.start) < 0 {
			a.start, a.waited = last.start, last.waited
		}
	}
	a.units = new(big.Int).Add(a.before, big.NewInt(c.n))
	r.admitted = append(r.admitted, a)

	for i, first := range r.admitted {
		units := new(big.Int).Sub(a.units, first.before)
		r.must(r.within(units, new(big.Int).Sub(a.turn, first.turn)), c,
			"admitted %d units since call %d", units, i)
		window := new(big.Int).Sub(a.start, first.start)
		if first.waited {
			window.Add(window, big.NewInt(15))
		}
		r.must(r.within(units, window), c,
			"%d units start in %d sixteenths of a nanosecond, since call %d", units, window, i)
	}
}

// within tells whether units <= capacity + count*window/per, multiplied out.
func (r *trial) within(units, window *big.Int) bool {
	over := new(big.Int).Sub(units, big.NewInt(r.capacity))
	over.Mul(over, big.NewInt(int64(r.per)))
	over.Lsh(over, 4)
	return over.Cmp(new(big.Int).Mul(window, big.NewInt(r.count))) <= 0
}
