package store

import (
	"fmt"
	"math"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// take is a take of n units, of which all or some are to be given back. The zero take is no particular take: a Refund
// gives back units of any calls.
type take struct {
	Taken
	n int64
}

// replay returns the word that the take would have left if it had taken back units fewer. ok is false if
// that take would have had another turn, since its units might then count in another window.
func (l *Limit) replay(undo take, back int64) (word uint64, ok bool) {
	word, ok = undo.Before, true
	if back < undo.n {
		var decision policy.Decision
		word, decision = l.policy.Take(undo.Before, undo.At, undo.n-back, math.MaxInt64)
		ok = decision.Allowed && decision.Wait == undo.Wait
	}
	// The window of the take has opened.
	if restorer, can := l.policy.(policy.Restorer); can && undo.Wait == 0 {
		word = restorer.Restore(undo.After, word, undo.At)
	}
	return word, ok
}

// agrees returns an error unless the policy changes the word as the script did. If the script made
// later takes again, which only it knows, the word must not have risen.
func (l *Limit) agrees(name string, found found, back int64, undo take, did uint64, again bool) error {
	next := l.changed(found, back, undo)
	if again {
		next = min(did, found.word)
	}
	if did != next && !l.beyond(did, next) {
		return fmt.Errorf("%w (%v, %s: word %d at %d, %d units back, of %+v: the script makes it %d)",
			ErrDisagrees, l.policy, shown(name), found.word, found.now, back, undo, did)
	}
	return nil
}

// beyond reports whether a script charged an AlignedWindow only up to maxCounted.
func (l *Limit) beyond(did, next uint64) bool {
	return l.shape.Kind == shape.AlignedWindow && did < next && did == did>>l.shape.Bits<<l.shape.Bits|maxCounted
}

// changed returns the next word as the policy computes it.
func (l *Limit) changed(found found, back int64, undo take) uint64 {
	refunder := l.policy.(policy.Refunder)
	switch {
	case undo.After == 0:
		return refunder.Refund(found.word, found.now, back)
	case undo.After == found.word:
		if word, ok := l.replay(undo, back); ok {
			return word
		}
		return refunder.Cancel(found.word, undo.After, undo.At, found.now, back, 0)
	// How many units other calls have given back is not known.
	case l.shape.Interval == 0:
		return refunder.Cancel(found.word, undo.After, undo.At, found.now, back, math.MaxInt64)
	}
	full, from := l.ticks(back), uint64(0)
	drains, reach := l.undrained(back, undo)
	if l.shape.Kind == shape.Bursty {
		from = firstTick + l.shape.Depth
	}
	now := l.tick(found.now)
	if found.word > now+reach || drains <= now {
		return found.word
	}
	return found.word - min(full, drains-now, found.word-min(max(now, from), found.word))
}

// undrained returns the tick at which the last back units of a take would have drained, had the
// bucket been empty before it. Until that tick the units that would drain from now on come back,
// whatever other calls did, as long as the word is ahead of now by at most reach ticks.
//
// Compare the word with the word of a bucket without the units, which is lower by their fill. A
// take or a charge raises both equally, and a return lowers both. The distance shrinks only while
// the other bucket is empty, by the time that passes. So it is at least the fill less the age. The
// word lowered by that is not below the other, which has room for all takes.
//
// This holds for takes that start at once. While a call is promised a turn the next must not start
// before it, so nothing comes back. Until the last turn a Funnel holds more than its capacity, and
// a Bursty owes more than a unit. In a Queue the calls behind a take start when the take has
// drained. Units come back twice if a Refund has returned units that had drained, or if a Reset has
// returned the units of this take.
func (l *Limit) undrained(back int64, undo take) (drains, reach uint64) {
	switch l.shape.Kind {
	case shape.Funnel:
		reach = l.shape.Depth
	case shape.Bursty:
		reach = l.shape.Depth + l.shape.Interval
	}
	at := l.tick(undo.At)
	return min(at+min(l.ticks(back), policy.MaxWord-at), undo.After), reach
}

// maxBack is above any count of a window, except that of an AlignedWindow with the highest limits: see maxCounted.
const maxBack = 1 << 53

// backFigures returns the parameters of the script back, which has the limit's part: see refunders. back is the number of
// units to give back, or below 0 to charge.
func (l *Limit) backFigures(back int64, undo take) []float64 {
	if l.log != nil {
		kept := int64(0)
		if undo.After != 0 {
			kept, back = undo.n-back, undo.n
		}
		// The log can hold no more units.
		back = min(max(back, -2*l.limit), 2*l.limit)
		return append(l.logFigures(0, 0), float64(back), float64(undo.After), float64(undo.turn()), float64(kept))
	}
	// -1 in the place of the take's word matches no word.
	figures, turn := []float64{-1, 0, 0, 0, 0}, float64(-1)
	paced := l.shape.Interval > 0
	var drains, reach uint64
	if undo.After != 0 {
		turn = l.turn(undo.After)
		drains, reach = l.undrained(back, undo)
		if word, ok := l.replay(undo, back); ok {
			figures = append(pairs(undo.After, word), float64(ends(l.policy.FreshAt(word))))
		} else if paced {
			// The turn would be another, so the word is not replaced, and the newest units come back.
			figures = append(pairs(undo.After), -1, 0, 0)
		}
	}
	one := l.figures(1, 0)
	if !paced {
		one[0] = float64(min(max(back, -maxBack), maxBack))
		return append(append(figures, one...), turn)
	}
	figures = append(figures, float64(min(max(back, -1), 1)))
	return append(append(append(figures, pairs(l.ticks(back), drains, reach)...), one[4:]...), l.noted(back, undo)...)
}

// noted returns the parameters of lua/again.lua: the record of a take, and the ticks of it that stay. -1
// matches no record.
func (l *Limit) noted(back int64, undo take) []float64 {
	if undo.After == 0 {
		return []float64{-1, 0, 0, 0, 0, 0}
	}
	tick := l.tick(undo.At)
	if l.shape.Kind == shape.Bursty {
		tick = max(tick, firstTick+l.shape.Depth)
	}
	return pairs(tick, l.ticks(undo.n), l.ticks(undo.n-min(back, undo.n)))
}

// turn returns the number of a word's window, as the refunders of windows compute it.
func (l *Limit) turn(word uint64) float64 {
	switch l.shape.Kind {
	case shape.SlidingWindow:
		return float64(min(word>>(2*l.shape.Bits), l.shape.Last))
	case shape.AlignedWindow:
		return float64(min(word>>l.shape.Bits, l.shape.Last))
	}
	window := min(word>>(l.shape.Bits+1), l.shape.Last)
	return float64(2*window + word>>l.shape.Bits&1)
}
