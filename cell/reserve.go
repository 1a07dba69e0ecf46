package cell

import (
	"math"
	"runtime"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// Reservation is what Reserve or Acquire has taken, with the decision about it. If it is
// Allowed, act after Wait, and call Keep if less was needed in the end; or call Cancel.
// Its methods are for one goroutine at a time, and the first call ends it. A copy must
// not be ended as well.
type Reservation[K comparable] struct {
	policy.Decision
	// Waited is how long Acquire stood in line; 0 if it did not.
	Waited time.Duration

	cell  *Cell[K]
	with  policy.Policy
	n     int64
	taken taken[K]
}

// Reserve takes n units for the key if they can be used within patience, and says after
// what Wait. 0 is for at once, but under a policy.Queue for as long as that is. It is
// Take for those who can come later, or may change their minds: the units are taken now,
// so that nobody else is promised the same turn. It allocates nothing for a key that is
// known.
func (c *Cell[K]) Reserve(key K, n int64, patience time.Duration) Reservation[K] {
	return c.reserve(key, &ask{n: n, patience: patience, exact: true})
}

func (c *Cell[K]) reserve(key K, a *ask) Reservation[K] {
	d, t := c.take(key, a)
	return Reservation[K]{Decision: d, cell: c, with: a.with, n: a.n, taken: t}
}

// starts is when its turn is, by the clock that the limit goes by.
func (r *Reservation[K]) starts() policy.Instant { return r.taken.at + policy.Instant(r.Wait) }

// Cancel gives back what was reserved, as far as that leaves to those who reserved
// later what they were promised, and admits no more than the limit besides:
//
//   - If the key's word has not changed since, all of it: it is as if the call
//     had never been made.
//   - If others took since, what their turns, which stand, leave over in every case
//     that the key's one word admits of. Each constructor tells how much that
//     is: all of it for limits that count in windows, if the window is still
//     there; for a funnel what has not drained yet, unless those behind wait for
//     so much that the bucket might have stood empty before them.
//     A call that is held up while very many others give back may get less, as nobody
//     knows then where its units were.
//   - If others took and engine.PolicyFor chose the limit, or another for anybody who
//     was ever told to wait for the key, nothing, but under limits that count in windows.
//   - If others took and the policy is not a policy.Refunder, nothing. Nor if the limit
//     was changed by SetPolicy since, or the key was given up.
//
// Calling it again does nothing, nor does it for a refused reservation. Calling it
// after the turn has come gives back what of it still counts.
func (r *Reservation[K]) Cancel() { r.Keep(0) }

// Keep ends the reservation with n of its units used, and gives back the others to where
// they came from, on the terms of Cancel: for costs that are known only afterwards. If
// the key's word has not changed since, it is as if the call had asked for n, unless it
// would have had its turn earlier then. n below 0 is 0; all that was reserved, or more,
// gives nothing back.
func (r *Reservation[K]) Keep(n int64) {
	t := r.taken
	r.taken = taken[K]{}
	back := r.n - max(n, 0)
	if t.entry == nil || back <= 0 {
		return
	}
	r.cell.beginUndo(t.entry)
	defer t.entry.UnlockReturn()
	for own := uint64(0); ; {
		word, terms := r.cell.view.Read(t.entry)
		// Not before: of what was read here, some may have drained since then.
		now := r.cell.now()
		undone := (t.entry.Returned() - t.undone - own) & table.ReturnedMask
		if terms.Epoch != t.terms || undone >= everything {
			return // the words of then mean something else now
		}
		next, ok := word, false
		if word == t.after && undone == 0 {
			next, ok = r.instead(t, terms, r.n-back)
		}
		if !ok {
			others := int64(undone)
			if (r.with != nil || t.entry.HasForeignTurn()) && (word != t.after || undone > 0) {
				// Nobody knows under which limits others took, or how much their turns
				// leave over. That is as bad as if all units had been given back since.
				others = math.MaxInt64
			}
			if next = r.without(t, terms, word, now, back, others); next == word {
				return
			}
			units := undoes(terms, r.with, word&^terms.EpochBit, next&^terms.EpochBit, now, back)
			t.entry.AddReturned(units)
			own += units
		}
		r.cell.step("cancel: judged")
		done := t.entry.Advance(word, next)
		runtime.KeepAlive(terms)
		if done {
			return
		}
	}
}

// instead is the word if the take had been one of n. ok is false if that would have had
// its turn at another time: its units might lie in another window.
func (r *Reservation[K]) instead(t taken[K], terms *table.Terms, n int64) (next uint64, ok bool) {
	if n == 0 {
		return t.before, true
	}
	state, _ := terms.State(t.before)
	p := terms.Policy
	if r.with != nil {
		p = r.with
	}
	next, d := p.Take(state, t.at, n, forever)
	return next | terms.EpochBit, d.Allowed && d.Wait == r.Wait && next <= policy.MaxWord
}

// without is the word after so many units of the take are undone although it was not the
// last, or others have given back so many units since.
func (r *Reservation[K]) without(
	t taken[K], terms *table.Terms, word uint64, now policy.Instant, back, others int64,
) uint64 {
	p := terms.Policy
	if r.with != nil {
		p = r.with
	}
	refunder, ok := p.(policy.Refunder)
	state, alive := terms.State(word)
	if !ok || !alive || !terms.Current(word) {
		return word
	}
	after, _ := terms.State(t.after)
	next := refunder.Cancel(state, after, t.at, now, back, others)
	if next > policy.MaxWord {
		return word
	}
	return next | terms.EpochBit
}
