package cell

import (
	"runtime"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// Reservation is what Reserve has taken, with the decision about it. If it is
// Allowed, act after Wait, or call Cancel. Its methods are for one goroutine at a
// time. A copy must not be cancelled as well.
type Reservation[K comparable] struct {
	policy.Decision
	cell  *Cell[K]
	with  policy.Policy
	n     int64
	taken taken[K]
}

// Reserve takes n units for the key if they can be used within patience, and says
// after what Wait. 0 is for at once, but under a policy.Queue for as long as that is.
// It is Take for those who can come later, or may change their minds: the units are
// taken now, so that nobody else is promised the same turn. It allocates nothing for a key that is known.
func (c *Cell[K]) Reserve(key K, n int64, patience time.Duration) Reservation[K] {
	return c.reserve(key, &ask{n: n, patience: patience, exact: true})
}

func (c *Cell[K]) reserve(key K, a *ask) Reservation[K] {
	d, t := c.take(key, a)
	return Reservation[K]{Decision: d, cell: c, with: a.with, n: a.n, taken: t}
}

// Cancel gives back what was reserved, as far as that leaves to those who reserved
// later what they were promised, and admits no more than the limit besides:
//
//   - If the key's word has not changed since, all of it: it is as if the call
//     had never been made.
//   - If others took since, what their turns, which stand, leave over in every case
//     that the key's one word admits of. Each policy's Cancel tells how much that
//     is: all of it for limits that count in windows, if the window is still
//     there; for a funnel what has not drained yet, unless those behind wait for
//     so much that the bucket might have stood empty before them.
//     A call that is held up while very many others give back may get less, as nobody
//     knows then where its units were.
//   - If others took and the policy is not a policy.Refunder, or engine.PolicyFor
//     chooses the limit, nothing. Nor if the limit was changed by SetPolicy since, or
//     the key was given up.
//
// Calling it again does nothing, nor does it for a refused reservation. Calling it
// after the turn has come gives back what of it still counts.
func (r *Reservation[K]) Cancel() {
	t := r.taken
	r.taken = taken[K]{}
	if t.entry == nil {
		return
	}
	r.cell.beginUndo(t.entry)
	defer t.entry.EndUndo()
	now, units := r.cell.now(), uint64(min(r.n, everything))
	for own := uint64(0); ; {
		word, terms := r.cell.view.Read(t.entry)
		undone := (t.entry.Undone() - t.undone - own) & undoneMask
		if terms.Number != t.terms || undone >= everything {
			return // the words of then mean something else now
		}
		next := t.before // as if the take had never been
		if word != t.after || undone > 0 {
			if next = r.without(t, terms, word, now, undone); next == word {
				return
			}
			t.entry.Undo(units)
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

// without is the word after the take is undone although it was not the last, or
// others have given back so many units since.
func (r *Reservation[K]) without(t taken[K], terms *table.Terms, word uint64, now policy.Instant, undone uint64) uint64 {
	if r.with != nil {
		return word // under a limit of its own: nobody knows under which others took
	}
	refunder, ok := terms.Policy.(policy.Refunder)
	state, alive := terms.State(word)
	if !ok || !alive || !terms.Current(word) {
		return word
	}
	after, _ := terms.State(t.after)
	next := refunder.Cancel(state, after, t.at, now, r.n, int64(undone))
	if next > policy.MaxWord {
		return word
	}
	return next | terms.Mark
}
