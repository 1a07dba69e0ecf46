// Package underway remembers the latest takes of keys, so that a give-back leaves the key's word as
// if the take had never been made.
//
// A word alone does not tell how much of a take is left in it. The time in which a bucket drained
// belongs to this take or another, by the order of takes and give-backs. So a loss must be assumed
// for each: with 16 concurrent calls, all given back, a bucket that should be empty fills up. A Log
// makes the remaining takes again, each at its own instant.
//
// A Log is valid while the word is the result of its last take or Settle. If another call, such as
// engine.Choke, changes the word, the Log starts anew.
package underway

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ral-limiter/ral/policy"
)

// A key's latest 128 takes are remembered, and at most 160: 7.5 KB. A Settle repeats up to as many,
// at about 10 ns each. Forgetting one take at each, which moves all others, cost 75 ns.
const (
	most    = 160
	forgets = 32 // at a time
)

// Log holds the latest takes of a key, in order. The zero Log is empty. Its methods are for one
// goroutine at a time.
type Log struct {
	at    Mark
	takes []take
	last  uint64 // ID of the last take
}

// Mark identifies the word that a Log knows.
type Mark struct {
	Word uint64
	// Epoch and Returned are of the key's entry. If either changes, the word was changed by more
	// than takes.
	Epoch, Returned uint64
}

type take struct {
	id     uint64
	limit  policy.Policy
	before uint64
	at     policy.Instant
	n      int64
}

// Add records a take of n units under limit that was allowed at once, at an instant, and brought
// the word from before to m.Word. It returns the take's ID, for Settle. Do not add a take that
// waits for its turn: only the policy knows the room that a give-back must leave to the turn.
//
// A take counts as no earlier than its predecessor. Its own instant may be from before its key was
// last forgotten, and a take at that instant alone would be free.
func (l *Log) Add(limit policy.Policy, before uint64, m Mark, at policy.Instant, n int64) (id uint64) {
	was := l.at
	if was.Word != before || was.Epoch != m.Epoch || was.Returned != m.Returned {
		l.Drop()
	}
	if last := len(l.takes) - 1; last >= 0 {
		at = max(at, l.takes[last].at)
	}
	if len(l.takes) == most {
		l.takes = slices.Delete(l.takes, 0, forgets)
	}
	l.last++
	l.takes = append(l.takes, take{l.last, limit, before, at, n})
	l.at = m
	return l.last
}

// Settle returns the word as if the take of that ID had been of n units, fewer than it was, or not
// made if n is 0. ok is false if the Log cannot tell. Otherwise the caller changes Returned, swaps
// the word, and calls Settled if the swap succeeds. Until then the Log is of no word.
func (l *Log) Settle(id uint64, m Mark, n int64) (next uint64, ok bool) {
	i := len(l.takes) - 1 // most takes end soon
	for i >= 0 && l.takes[i].id != id {
		i--
	}
	if i < 0 || m != l.at {
		return 0, false
	}
	rest := l.takes[i:]
	word, settled := rest[0].before, rest[0]
	if settled.n = n; n > 0 {
		if word, ok = settled.again(word); !ok {
			return 0, false
		}
	}
	if next, ok = again(rest[1:], word, false); !ok || next > m.Word {
		return 0, false
	}
	l.at.Word = math.MaxUint64
	again(rest[1:], word, true)
	if rest[0] = settled; n <= 0 {
		l.takes = slices.Delete(l.takes, i, i+1)
	}
	return next, true
}

// again repeats takes from a word, each at its instant, and returns the last word. If keep is set
// it keeps the words on the way.
func again(takes []take, word uint64, keep bool) (last uint64, ok bool) {
	for i := range takes {
		if keep {
			takes[i].before = word
		}
		if word, ok = takes[i].again(word); !ok {
			return 0, false
		}
	}
	return word, true
}

func (t *take) again(word uint64) (next uint64, ok bool) {
	next, d := t.limit.Take(word, t.at, t.n, 0)
	return next, d.Allowed && d.Wait == 0 && next <= policy.MaxWord
}

// Settled tells the Log that the word is as Settle returned it.
func (l *Log) Settled(m Mark) { l.at = m }

// Drop forgets all takes. IDs go on.
func (l *Log) Drop() {
	clear(l.takes)
	l.takes = l.takes[:0]
}

// logs bounds the keys with remembered takes in a Logs.
const logs = 1 << 12

// Logs holds the Logs of up to 4,096 keys. A key has one place, by its hash; the key that takes
// last has it. The zero Logs is empty. It is safe for concurrent use, but its methods are for one
// goroutine at a time for each key, from the read of the word to its swap.
type Logs[E comparable] struct {
	places atomic.Pointer[[logs]place[E]]
}

type place[E comparable] struct {
	mu  sync.Mutex
	of  E
	log Log
}

// lock locks mu, unless it stays locked: a policy that takes for another key with the same place
// may hold it.
func (p *place[E]) lock() bool {
	const tries = 100_000
	for range tries {
		if p.mu.TryLock() {
			return true
		}
		runtime.Gosched()
	}
	return false
}

// Add is Log.Add for a key with that hash. The ID is 0 if the take is not remembered.
func (l *Logs[E]) Add(
	key E, hash uint64, limit policy.Policy, before uint64, m Mark, at policy.Instant, n int64,
) (id uint64) {
	places := l.places.Load()
	if places == nil {
		l.places.CompareAndSwap(nil, new([logs]place[E]))
		places = l.places.Load()
	}
	p := &places[hash%logs]
	if !p.lock() {
		return 0
	}
	defer p.mu.Unlock()
	if p.of != key {
		p.of = key
		p.log.Drop()
	}
	return p.log.Add(limit, before, m, at, n)*logs + hash%logs
}

// Settle is Log.Settle for a key's take.
func (l *Logs[E]) Settle(key E, id uint64, m Mark, n int64) (next uint64, ok bool) {
	places := l.places.Load()
	if places == nil {
		return 0, false
	}
	p := &places[id%logs]
	if !p.lock() {
		return 0, false
	}
	defer p.mu.Unlock()
	if p.of != key {
		return 0, false
	}
	return p.log.Settle(id/logs, m, n)
}

// Settled is Log.Settled.
func (l *Logs[E]) Settled(key E, id uint64, m Mark) {
	p := &l.places.Load()[id%logs]
	if !p.lock() {
		return
	}
	defer p.mu.Unlock()
	if p.of == key {
		p.log.Settled(m)
	}
}
