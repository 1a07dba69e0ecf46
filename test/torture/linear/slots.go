package linear

import (
	"hash/maphash"
	"slices"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// slots is the state of a key of units in use. It is immutable, and knows no word: a unit counts in the part
// of its take or of its latest extension, and leaves with that part unless its call gives it back.
type slots struct {
	units []unit // oldest part first
	// number is the latest part in which units were taken. Time does not go back before it.
	number int64
	grace  int // liberties that may still be taken: see Liberty
}

type unit struct {
	part int64
	id   int64 // of the reservation, or 0
	n    int64
}

func (s *slots) alike(slots *slots) bool {
	return s.number == slots.number && slices.Equal(s.units, slots.units)
}

func (s *slots) liberties() int { return s.grace }

func (s *slots) hash(seed maphash.Seed) uint64 {
	h := uint64(s.number)
	for _, unit := range s.units {
		h ^= maphash.Comparable(seed, unit)
	}
	return h
}

// partitionOf returns the time of a part of the scenario's limit, and the number of parts for which a unit counts
// after its own.
func (s *Scenario) partitionOf() (length time.Duration, parts int64) {
	parts = int64(policy.Parts(s.Policy))
	return policy.MaxTimeInUse(s.Policy) / time.Duration(parts), parts
}

// instant is a key of units in use at an instant.
type instant struct {
	*slots
	s    *Scenario
	now  policy.Instant
	part int64
	// units are those that count.
	units []unit
}

func (s *slots) asOf(scenario *Scenario, now policy.Instant) instant {
	length, parts := scenario.partitionOf()
	i := instant{slots: s, s: scenario, now: now, part: max(s.number, int64(now)/int64(length))}
	for _, unit := range s.units {
		if unit.part+parts >= i.part {
			i.units = append(i.units, unit)
		}
	}
	return i
}

// ends returns the time until a part has left.
func (i instant) ends(part int64) time.Duration {
	length, parts := i.s.partitionOf()
	return time.Duration((part+parts+1)*int64(length) - int64(i.now))
}

// take returns the answer to a call for n units, and the state that it leaves.
func (i instant) take(n, id int64) (*slots, policy.Decision) {
	used := int64(0)
	for _, unit := range i.units {
		used += unit.n
	}
	decision := policy.Decision{Limit: i.s.Policy.Limit(), Allowed: n == 0 || used+n <= i.s.Policy.Limit()}
	next := i.slots
	switch {
	case n > decision.Limit:
		decision.RetryAfter = policy.Never
	case !decision.Allowed:
		short := used + n - decision.Limit
		for _, unit := range i.units {
			if short > 0 {
				decision.RetryAfter = i.ends(unit.part)
			}
			short -= unit.n
		}
	case n > 0:
		used += n
		next = i.with(unit{i.part, id, n})
	}
	decision.Remaining = max(decision.Limit-used, 0)
	switch after := next.asOf(i.s, i.now); {
	case len(after.units) > 0:
		decision.ResetAfter = i.ends(after.units[len(after.units)-1].part)
	default:
		length, _ := i.s.partitionOf()
		decision.ResetAfter = time.Duration(max(i.part*int64(length)-int64(i.now), 0))
	}
	return next, decision
}

// with returns the state with units more in the present part.
func (i instant) with(u unit) *slots {
	next := &slots{units: slices.Clone(i.units), number: i.part, grace: i.grace}
	for j := range next.units {
		if next.units[j].part == u.part && u.id == 0 && next.units[j].id == 0 {
			next.units[j].n += u.n
			return next
		}
	}
	next.units = append(next.units, u)
	slices.SortFunc(next.units, func(a, b unit) int {
		if a.part != b.part {
			return int(a.part - b.part)
		}
		return int(a.id - b.id) // so that the order of the calls does not matter
	})
	return next
}

// without returns the state without the units of a reservation.
func (s *slots) without(id int64) (next *slots, n int64) {
	i := slices.IndexFunc(s.units, func(unit unit) bool { return unit.id == id && id != 0 })
	if i < 0 {
		return s, 0
	}
	left := *s
	left.units = slices.Delete(slices.Clone(s.units), i, i+1)
	return &left, s.units[i].n
}

// counting returns the state with the units that count.
func (i instant) counting() *slots { return &slots{units: i.units, number: i.number, grace: i.grace} }
