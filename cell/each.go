package cell

import (
	"slices"
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
	passes := true
	for _, c := range cells {
		passes = passes && c.look(key, &ask{n: n, atOnce: true}).Allowed
	}
	if !passes || n == 0 {
		all := together{Decision: policy.Decision{Allowed: true}}
		for _, c := range cells {
			standing(&all, key, n, c)
		}
		return all.Decision
	}

	var held [MaxEach]Reservation[K]
	var without [MaxEach]*atomic.Uint64
	all := together{Decision: policy.Decision{Allowed: true}}
	for i, c := range cells {
		a := ask{n: n, atOnce: true, exact: true, silent: true}
		held[i] = c.reserve(key, &a)
		without[i] = a.without
		all.add(held[i].Decision)
		if held[i].Allowed {
			continue
		}
		for _, r := range slices.Backward(held[:i]) {
			r.Cancel()
		}
		// Whoever was faster may have given it back by now: i refused in any case.
		all := together{Decision: policy.Decision{Allowed: true}}
		for j := range held[:len(cells)] {
			if j != i {
				standing(&all, key, n, cells[j])
			}
		}
		c.report(false, without[i])
		all.add(held[i].Decision)
		return all.Decision
	}
	for i, c := range cells {
		c.report(true, without[i])
	}
	return all.Decision
}

// standing adds the decision of a cell on a call that took nothing, and counts it if
// the cell refused it.
func standing[K comparable](all *together, key K, n int64, c *Cell[K]) {
	d := c.look(key, &ask{n: n, atOnce: true})
	switch {
	case d.Allowed:
		d = c.look(key, &ask{})
	case n != 0:
		c.report(false, nil)
	}
	all.add(d)
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
