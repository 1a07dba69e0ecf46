package envoyserver

import (
	"iter"
	"sync/atomic"

	"github.com/ral-limiter/ral/cmd/rald/rules"
)

// Counts counts the descriptors that met a rule with hits, and what its candidate would have
// said. The zero Counts is ready. It is for any number of goroutines.
type Counts struct {
	Passed, Refused        atomic.Uint64
	WouldPass, WouldRefuse atomic.Uint64 // the candidate, and the rule did not
}

// count notes whether the rule had room, and whether its candidate would have passed the hits: as the
// rule if there is none.
func (c *Counts) count(passed, would bool) {
	if c == nil {
		return
	}
	if passed {
		c.Passed.Add(1)
	} else {
		c.Refused.Add(1)
	}
	switch {
	case passed == would:
	case passed:
		c.WouldRefuse.Add(1)
	default:
		c.WouldPass.Add(1)
	}
}

// Counts goes through the rules that are in force, with their counts, which go on over a
// reload for rules of the same path. Unlimited rules have none.
func (s *Service) Counts() iter.Seq2[*rules.Rule, *Counts] {
	return func(yield func(*rules.Rule, *Counts) bool) {
		t := s.table.Load()
		for _, r := range t.set.Rules() {
			if c := t.held[r].counts; c != nil && !yield(r, c) {
				return
			}
		}
	}
}
