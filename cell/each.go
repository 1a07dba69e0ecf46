package cell

import (
	"sync/atomic"

	"github.com/ral-limiter/ral/policy"
)

// MaxEach is how many cells TakeEach takes from at the most.
const MaxEach = 8

// TakeEach is TakeAll for one key and several limits on it, in different cells, and
// allocates nothing for a known key. The decision is that of all limits together:
// Limit and Remaining are the smallest, the times the longest of each. cells beyond
// MaxEach are refused with policy.Never.
func TakeEach[K comparable](key K, n int64, cells ...*Cell[K]) policy.Decision {
	if len(cells) > MaxEach {
		return policy.Decision{RetryAfter: policy.Never}
	}
	// Looking first keeps a call that is refused from writing, nearly always.
	var looked [MaxEach]policy.Decision
	var without [MaxEach]*atomic.Uint64
	refused := false
	for i, c := range cells {
		looked[i] = c.look(key, &ask{n: n, atOnce: true})
		refused = refused || !looked[i].Allowed
	}
	all := together{Decision: policy.Decision{Allowed: true}}
	if n != 0 && !refused {
		var held [MaxEach]Reservation[K]
		at := grabEach(key, n, cells, &held, &without)
		if at < 0 {
			for i, c := range cells {
				all.add(held[i].Decision)
				c.report(true, without[i])
			}
			return all.Decision
		}
		looked[at] = held[at].Decision // somebody was faster
	}
	for i, c := range cells {
		d := looked[i]
		switch {
		case n == 0:
		case !d.Allowed:
			c.report(false, without[i])
		default:
			// It has taken nothing, but may have to wait by now.
			then := c.look(key, &ask{n: n, atOnce: true})
			d = c.look(key, &ask{})
			d.RetryAfter = then.RetryAfter
		}
		all.add(d)
	}
	return all.Decision
}

// grabEach takes from each cell, or from none if one refuses, and returns which did;
// -1 is none.
func grabEach[K comparable](
	key K, n int64, cells []*Cell[K], held *[MaxEach]Reservation[K], without *[MaxEach]*atomic.Uint64,
) (refused int) {
	taken, all := 0, false
	defer func() { // also if a policy panics
		for ; !all && taken > 0; taken-- {
			held[taken-1].Cancel()
		}
	}()
	for i, c := range cells {
		a := ask{n: n, atOnce: true, exact: true, silent: true}
		held[i] = c.reserve(key, &a)
		if without[i] = a.without; !held[i].Allowed {
			return i
		}
		taken++
	}
	all = true
	return -1
}

// together is the decision of several limits on one key.
type together struct {
	policy.Decision
	some bool
}

func (t *together) add(d policy.Decision) {
	if !t.some {
		t.Limit, t.Remaining, t.some = d.Limit, d.Remaining, true
	}
	t.Limit = min(t.Limit, d.Limit)
	t.Remaining = min(t.Remaining, d.Remaining)
	t.ResetAfter = max(t.ResetAfter, d.ResetAfter)
	t.RetryAfter = max(t.RetryAfter, d.RetryAfter)
	t.Allowed = t.Allowed && d.Allowed
}
