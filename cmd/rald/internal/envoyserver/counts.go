package envoyserver

import (
	"iter"
	"sync/atomic"

	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
)

// Counts counts the descriptors that met a rule with hits, and its candidate's decisions. The zero
// Counts is ready. It is safe for concurrent use.
type Counts struct {
	Passed, Refused atomic.Uint64
	// WouldPass and WouldRefuse count the hits that the candidate decides otherwise.
	WouldPass, WouldRefuse atomic.Uint64
	// Returned counts hits that were given back, also those that are not counted any more.
	Returned atomic.Uint64
}

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

// Add adds other counts.
func (c *Counts) Add(other *Counts) {
	c.Passed.Add(other.Passed.Load())
	c.Refused.Add(other.Refused.Load())
	c.WouldPass.Add(other.WouldPass.Load())
	c.WouldRefuse.Add(other.WouldRefuse.Load())
	c.Returned.Add(other.Returned.Load())
}

// Counts iterates over the rules in force with their counts, which continue over a reload for rules
// of the same path. Unlimited rules have none.
func (s *Service) Counts() iter.Seq2[*rules.Rule, *Counts] {
	return func(yield func(*rules.Rule, *Counts) bool) {
		t := s.table.Load()
		for _, rule := range t.set.Rules() {
			if counts := t.held[rule].counts; counts != nil && !yield(rule, counts) {
				return
			}
		}
	}
}
