package part

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// second is a second after an instant late enough for every limit here.
func second(n float64) policy.Instant {
	return policy.Instant(maxPeriod) + 1 + policy.Instant(n*float64(time.Second))
}

var (
	// Half of the funnel is 5 units, and a unit in 2 s.
	funnel = NewWhole(policy.Must(policy.Funnel(10, 1, time.Second)))
	// Half of the window is 5 units.
	window = NewWhole(policy.Must(policy.FixedWindow(10, 10*time.Second)))
)

func half(w *Whole) *Part { return must.Get(New(w, 2, time.Time{})) }

// A take begins from what Redis said of the key, else from the key's state, else from what is known
// of any key.
func TestTakeBeginsFromWhatIsKnown(t *testing.T) {
	used := func(w *Whole, n int64) Known {
		return Known{HasWord: true, Word: w.Word(n, second(20)), Said: second(20), RedisNow: second(20), Start: second(0)}
	}
	old := used(funnel, 4)
	old.RedisNow, old.Start = second(30), second(30)
	three := State{Word: charged(half(funnel).Policy, 0, second(20), 3), Unpaid: 3}
	for name, c := range map[string]struct {
		whole     *Whole
		state     State
		kept      bool
		known     Known
		n         int64
		now       float64
		allowed   bool
		remaining int64
		unpaid    int64
	}{
		"Redis never answered":              {whole: funnel, known: Known{Start: second(20)}, n: 1, now: 21.9},
		"a unit has come back since":        {whole: funnel, known: Known{Start: second(20)}, n: 1, now: 22, allowed: true, unpaid: 1},
		"Redis answered: a call passes":     {whole: funnel, known: Known{Heard: second(20)}, n: 2, now: 20, allowed: true, unpaid: 2},
		"and begins unused if full":         {whole: funnel, known: Known{Heard: second(20), Full: true}, n: 2, now: 20, allowed: true, remaining: 3, unpaid: 2},
		"unless a debt was forgotten":       {whole: funnel, known: Known{Heard: second(20), Lost: second(20), Full: true}, n: 1, now: 20},
		"which drains":                      {whole: funnel, known: Known{Heard: second(20), Lost: second(20), Full: true}, n: 1, now: 30, allowed: true, remaining: 4, unpaid: 1},
		"a word is a part":                  {whole: funnel, known: used(funnel, 4), n: 1, now: 20, allowed: true, remaining: 2, unpaid: 1},
		"a word expires":                    {whole: funnel, known: old, n: 1, now: 30},
		"a state stays":                     {whole: funnel, state: three, kept: true, n: 1, now: 20, allowed: true, remaining: 1, unpaid: 4},
		"and drains, with its debt":         {whole: funnel, state: three, kept: true, n: 1, now: 24, allowed: true, remaining: 3, unpaid: 2},
		"the larger of word and state":      {whole: funnel, state: three, kept: true, known: used(funnel, 2), n: 1, now: 20, allowed: true, remaining: 1, unpaid: 4},
		"a refused call leaves it":          {whole: funnel, state: three, kept: true, n: 3, now: 20, remaining: 2, unpaid: 3},
		"units that are looked at":          {whole: funnel, state: three, kept: true, now: 20, allowed: true, remaining: 2, unpaid: 3},
		"a window's word is a part":         {whole: window, known: used(window, 3), n: 1, now: 20, allowed: true, remaining: 2, unpaid: 1},
		"an unknown window: a call passes":  {whole: window, known: Known{Heard: second(20)}, n: 1, now: 20, allowed: true, unpaid: 1},
		"half of an unknown window is back": {whole: window, known: Known{Heard: second(20)}, n: 1, now: 25, allowed: true, remaining: 2, unpaid: 1},
		"an unheard window has no unit":     {whole: window, known: Known{Start: second(20)}, n: 1, now: 20},
	} {
		p := half(c.whole)
		state, taken := p.Take(p.Begin(c.state, c.kept, c.n, c.known, second(c.now)), c.n, 0, second(c.now))
		assert.Equal(t, c.allowed, taken.Allowed, name)
		assert.Equal(t, c.remaining, taken.Remaining, name)
		assert.Equal(t, c.unpaid, state.Unpaid, name)
	}
}

// Units that come back are no longer used, and no longer owed.
func TestGivenBackUnitsAreNotOwed(t *testing.T) {
	// A funnel's later calls may have been promised a turn.
	for w, behind := range map[*Whole]int64{funnel: 5, window: 2} {
		p := half(w)
		before := State{Word: charged(p.Policy, 0, second(20), 1), Unpaid: 1}
		state, taken := p.Take(before, 3, 0, second(20))
		assert.Equal(t, before, p.Keep(state, taken, 0, second(20)), "%v: as if it had never been", w.Policy)
		one, _ := p.Take(before, 1, 0, second(20))
		assert.Equal(t, one, p.Keep(state, taken, 1, second(20)), "%v: as if it had been of one", w.Policy)

		later, _ := p.Take(state, 1, 0, second(20))
		later = p.Keep(later, taken, 0, second(20))
		assert.EqualValues(t, behind, p.Owed(later, second(20)), "%v: behind another", w.Policy)
		assert.EqualValues(t, behind, p.Used(later.Word, second(20)), w.Policy)

		back := p.Refund(state, 3, second(20))
		assert.Equal(t, before, back, w.Policy)
		assert.EqualValues(t, 0, p.Owed(p.Refund(back, 9, second(20)), second(20)), w.Policy)
	}
}

// With another number of servers as many units stay used, or as large a part, whichever is more.
func TestCarriedStateStaysUsed(t *testing.T) {
	for _, w := range []*Whole{funnel, window} {
		all, p := must.Get(New(w, 1, time.Time{})), half(w)
		state := State{Word: charged(p.Policy, 0, second(20), 2), Unpaid: 2}
		assert.EqualValues(t, 4, all.Used(all.Carry(p, state, second(20)).Word, second(20)), "%v: 2 of 5 are 4 of 10", w.Policy)
		state = State{Word: charged(all.Policy, 0, second(20), 4), Unpaid: 9}
		carried := p.Carry(all, state, second(20))
		assert.EqualValues(t, 4, p.Used(carried.Word, second(20)), "%v: 4 stay 4", w.Policy)
		assert.EqualValues(t, 4, carried.Unpaid, "%v: of drained units none is owed", w.Policy)
		assert.EqualValues(t, 3, p.Used(p.Carry(nil, State{Unpaid: 3}, second(20)).Word, second(20)), "%v: a file's", w.Policy)
	}
}
