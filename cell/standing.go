package cell

import (
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Standing is what a key's word says at one moment, and what else decides about its calls.
type Standing struct {
	Limit   policy.Policy // by which the word is read
	Misfit  bool          // the limit that holds for the key is of another family than Limit
	Word    uint64
	Known   bool // there is a word
	Now     policy.Instant
	Blocked time.Duration
	Waiting int
}

// Standing returns the standing of a key. It takes nothing, opens no key and is not counted.
func (c *Cell[K]) Standing(key K) Standing {
	chosen := c.Chosen(key)
	s := Standing{Now: c.now(), Waiting: c.lines.Len(key)}
	terms, state, known := c.currentOf(key)
	s.Limit, s.Word, s.Known = terms.Policy, state, known
	if chosen != nil {
		if s.Misfit = !terms.ReadsWordsOf(chosen); !s.Misfit {
			s.Limit = chosen
		}
	}
	if state == 0 {
		s.Now = max(s.Now, c.view.Horizon())
	}
	if blocks := c.blocks.Load(); blocks != nil {
		s.Blocked = blocks.Blocked(key)
	}
	return s
}
