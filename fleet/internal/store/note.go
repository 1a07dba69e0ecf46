package store

import (
	"slices"
	"time"

	"github.com/ral-limiter/ral/internal/core/shape"
)

// paceNoting is the algorithm of a Funnel or Bursty that also writes the take to the log beside the word: see
// lua/note.lua. Such a take is noted.
var paceNoting = newAlgorithm(algorithms[shape.Funnel].body+lua("pacenote"), algorithms[shape.Funnel].params+", qh, ql")

// notingKind is the letter of paceNoting in lua/all.lua.
const notingKind = "r"

// notes reports whether a take of the limit is noted if its units may come back. Other limits need no log:
// the words of windows tell how much of a take is left, and a Queue has only promised turns.
func (l *Limit) notes() bool { return l.shape.Kind == shape.Funnel || l.shape.Kind == shape.Bursty }

// notingFigures returns the parameters of paceNoting. These are the parameters of a take, and the reach of a
// call that starts at once.
func (l *Limit) notingFigures(n int64, patience time.Duration) []float64 {
	return append(l.figures(n, patience), l.figures(n, 0)[2:4]...)
}

// logName returns the name of the log beside a word. No key's name has this end.
func logName(word string) string { return word + ":takes" }

// logNames appends the names of the logs beside the words.
func logNames(keys, words []string) []string {
	keys = slices.Clip(keys)
	for _, name := range words {
		keys = append(keys, logName(name))
	}
	return keys
}

// backNames returns the keys of the script l.back.
func (l *Limit) backNames(name string) []string {
	if !l.notes() {
		return []string{name}
	}
	return logNames([]string{name}, []string{name})
}
