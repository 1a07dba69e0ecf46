package storetest

import (
	"math/bits"
	"slices"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// notes are the latest changes of a word, and the word after them.
type notes struct {
	all  []note
	word uint64
}

// note is a change from the word before: a bucket that was empty at first, or is later, gets as many
// ticks, or gives them back. It is open while a take may be given back.
type note struct {
	before, empty, ticks uint64
	back, open           bool
}

const maxNotes, forgottenNotes = 160, 32

func (n *note) after(word uint64) uint64 {
	switch {
	case n.back && word < n.empty+n.ticks:
		return n.empty
	case n.back:
		return word - n.ticks
	}
	return min(max(word, n.empty)+n.ticks, policy.MaxWord)
}

// emptyAt is the word of a limit's empty bucket.
func emptyAt(form shape.Shape, now policy.Instant) uint64 {
	empty := uint64(min(max(now, 0), policy.Instant(form.End))) * 16
	if form.Kind == shape.Bursty {
		// No store is full before.
		empty = max(empty, 16+form.Depth)
	}
	return empty
}

// shapeOf returns the shape of a limit that notes takes.
func shapeOf(limit *store.Limit) (form shape.Shape, ok bool) {
	if shaped, is := limit.Policy().(shape.Shaped); is {
		form = shaped.Shape()
	}
	return form, form.Kind == shape.Funnel || form.Kind == shape.Bursty
}

func ticksOf(form shape.Shape, n int64) uint64 {
	high, low := bits.Mul64(uint64(n), form.Interval)
	if high > 0 {
		return policy.MaxWord
	}
	return min(low, policy.MaxWord)
}

// noteTake notes a take of n units that starts at once.
func (v *value) noteTake(limit *store.Limit, t store.Taken, n int64) {
	if form, ok := shapeOf(limit); ok && t.Allowed && t.Wait == 0 && n > 0 {
		v.note(note{before: t.Before, empty: emptyAt(form, t.At), ticks: ticksOf(form, n), open: true}, t.After)
	}
}

func (v *value) note(note note, after uint64) {
	if v.notes.word != note.before || note.back && note.before <= note.empty+note.ticks || !note.back && note.before <= note.empty {
		v.notes.all = nil
	}
	if len(v.notes.all) >= maxNotes {
		v.notes.all = slices.Delete(v.notes.all, 0, forgottenNotes)
	}
	v.notes.all, v.notes.word = append(v.notes.all, note), after
}

// noteReturn notes a return of n units, or a charge of -n, that has changed the word.
func (v *value) noteReturn(limit *store.Limit, before uint64, now policy.Instant, n int64) {
	form, ok := shapeOf(limit)
	if !ok || v.notes.word != before || len(v.notes.all) == 0 {
		return
	}
	one := note{before: before, empty: emptyAt(form, now)}
	if one.back = n > 0; one.back {
		one.ticks = before - v.word
	} else {
		one.ticks = ticksOf(form, -max(n, -1<<62))
	}
	v.note(one, v.word)
}

// again makes the later changes again, with so many units kept of a noted take. ok is false if it is
// not there.
func (v *value) again(limit *store.Limit, undo store.Taken, n, kept int64) (ok bool) {
	form, notes := shapeOf(limit)
	if !notes || v.notes.word != v.word {
		return false
	}
	index := len(v.notes.all) - 1
	for index >= 0 && (v.notes.all[index].empty != emptyAt(form, undo.At) || v.notes.all[index].ticks != ticksOf(form, n) || !v.notes.all[index].open) {
		index--
	}
	if index < 0 { // perhaps the bucket had drained before the first change
		return len(v.notes.all) > 0 && v.notes.all[0].before <= v.notes.all[0].empty && v.notes.all[0].empty > emptyAt(form, undo.At)
	}
	word := v.notes.all[index].before
	v.notes.all[index].open, v.notes.all[index].ticks = false, ticksOf(form, kept)
	if kept == 0 {
		v.notes.all = slices.Delete(v.notes.all, index, index+1)
	}
	for i := index; i < len(v.notes.all); i++ {
		v.notes.all[i].before = word
		word = v.notes.all[i].after(word)
	}
	v.word, v.notes.word = word, word
	return true
}

// forgetNotes forgets what no return needs any more.
func (v *value) forgetNotes() {
	first := slices.IndexFunc(v.notes.all, func(n note) bool { return n.open })
	if first < 0 {
		first = len(v.notes.all)
	}
	v.notes.all = slices.Delete(v.notes.all, 0, first)
}
