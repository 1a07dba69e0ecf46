package store

import (
	_ "embed" // the scripts
	"slices"
	"time"

	"github.com/ral-limiter/ral/internal/core/shape"
)

// The parts of scripts that keep the latest changes of a word beside it. Start reading at noteLua.
var (
	//go:embed lua/note.lua
	noteLua string
	//go:embed lua/pacenote.lua
	paceNoteLua string
	//go:embed lua/again.lua
	againLua string
	//go:embed lua/backnote.lua
	backNoteLua string
)

// paceNoting is the algorithm of a Funnel or Bursty for takes that are noted.
var paceNoting = newAlgorithm(algorithms[shape.Funnel].body+paceNoteLua, algorithms[shape.Funnel].params+", qh, ql")

// notingKind is the letter of paceNoting in allLua.
const notingKind = "r"

// notes reports whether a take of the limit that may give back is noted. The words of windows tell
// how much of a take is left, and a Queue has only promised turns.
func (l *Limit) notes() bool { return l.shape.Kind == shape.Funnel || l.shape.Kind == shape.Bursty }

func (a *TakeAsk) noted() bool { return a.Returns && a.Limit.notes() && a.Limit.canTake(a.N) }

// notingFigures are the parameters of paceNoting: those of a take, and the reach of a call that
// starts at once.
func (l *Limit) notingFigures(n int64, patience time.Duration) []float64 {
	return append(l.figures(n, patience), l.figures(n, 0)[2:4]...)
}

// logNames appends the names of the logs beside the words. No key's name ends so.
func logNames(keys, words []string) []string {
	keys = slices.Clip(keys)
	for _, name := range words {
		keys = append(keys, name+":takes")
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

// noted are the parameters of againLua: the record of a take, and the ticks that stay of it. No
// record matches -1.
func (l *Limit) noted(back int64, of take) []float64 {
	if of.After == 0 {
		return []float64{-1, 0, 0, 0, 0, 0}
	}
	at := l.tick(of.At)
	if l.shape.Kind == shape.Bursty {
		at = max(at, firstTick+l.shape.Depth)
	}
	return pairs(at, l.ticks(of.n), l.ticks(of.n-min(back, of.n)))
}
