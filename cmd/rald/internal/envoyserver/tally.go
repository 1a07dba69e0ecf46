package envoyserver

import (
	"math"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
	"github.com/ral-limiter/ral/policy"
)

// Bounds of a window's hits: a word's room for a second, otherwise more than any rule allows.
const (
	mostInSecond = 1<<29 - 1
	mostInOther  = 1<<34 - 1
)

const mostTries = 16 // of a call to use up the rest of a word

type tally struct {
	most   int64
	limit  policy.Policy // of most hits
	family families.Family
}

func newTally(unit rules.Unit) *tally {
	t := &tally{most: mostInOther}
	if unit == rules.Second {
		t.most = mostInSecond
	}
	t.limit = policy.Must(policy.AlignedWindow(t.most, unit.Length()))
	return t
}

// add counts n hits of a key, and returns the new count and the time until its window ends, 0 if
// the key has no hits in it. A count beyond most is math.MaxInt64, and stays most for later calls.
func (t *tally) add(key string, n int64) (count int64, ends time.Duration) {
	d := families.EngineOf(t.family).TakeWith(t.limit, key, n)
	if !d.Allowed {
		// Other calls may be faster. None can while the clock is behind the window of the key.
		for fill, tries := d, 0; !fill.Allowed && tries < mostTries; tries++ {
			fill = families.EngineOf(t.family).TakeWith(t.limit, key, fill.Remaining)
		}
		return math.MaxInt64, d.ResetAfter
	}
	return t.most - d.Remaining, d.ResetAfter
}

func (t *tally) undo(key string, n int64) (count int64, ends time.Duration) {
	d := families.EngineOf(t.family).RefundWith(t.limit, key, n)
	return t.most - d.Remaining, d.ResetAfter
}
