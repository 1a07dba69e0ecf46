// Package underway remembers the latest takes of keys, so that a give-back leaves the key's word as
// if the take had never been made.
//
// A word alone does not tell how much of a take is left in it. The time in which a bucket drained
// belongs to this take or another, by the order of takes and give-backs. So a loss must be assumed
// for each: with 16 concurrent calls, all given back, a bucket that should be empty fills up. A Log
// makes the remaining takes again, each at its own instant.
//
// A Log is valid while the word is the result of its last take or Settle. If another call, such as
// engine.Choke, changes the word, the Log starts anew. Takes under a policy.Restorer need no Log:
// their words suffice.
package underway

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/policy"
)

// A key's latest 128 takes are remembered, and at most 192: 9 KB. A Settle repeats up to as many,
// at about 10 ns each. Forgetting one take at each, which moves all others, cost 75 ns.
const (
	maxTakes = 192
	// forgets is the number of takes forgotten at a time.
	forgets = 64
)

// Log holds the latest takes of a key, in order. The zero Log is empty. Its methods are for one
// goroutine at a time.
type Log struct {
	mark  Mark
	takes []take
	// last is the ID of the last take.
	last uint64
}

// Mark identifies the word that a Log knows.
type Mark struct {
	Word uint64
	// Epoch and Returned are of the key's entry. If either changes, the word was changed by more
	// than takes.
	Epoch, Returned uint64
}

type take struct {
	id      uint64
	limit   policy.Policy
	before  uint64
	takenAt policy.Instant
	n       int64
}

// Add records a take of n units under limit that was allowed at once, at an instant, and brought
// the word from before to mark.Word. n < 0 is a charge of -n units by policy.Refunder. It returns the
// take's ID, for Settle. Do not add a take that waits for its turn: only the policy knows the room
// that a give-back must leave to the turn.
//
// mark has the count of returned units from before the take. So if another call gives back meanwhile,
// the Log is of no word.
//
// A take counts as no earlier than its predecessor. Its own instant may be from before its key was
// last forgotten, and a take at that instant alone would be free.
func (l *Log) Add(limit policy.Policy, before uint64, mark Mark, now policy.Instant, n int64) (id uint64) {
	was := l.mark
	if was.Word != before || was.Epoch != mark.Epoch || was.Returned != mark.Returned {
		l.Drop()
	}
	if n < 0 && len(l.takes) == 0 {
		// No settle needs to know of the charge.
		return 0
	}
	if last := len(l.takes) - 1; last >= 0 {
		now = max(now, l.takes[last].takenAt)
	}
	if len(l.takes) == maxTakes {
		l.takes = slices.Delete(l.takes, 0, forgets)
	}
	l.last++
	l.takes = append(l.takes, take{l.last, limit, before, now, n})
	l.mark = mark
	return l.last
}

// Settle returns the word as if the take of that ID had been of n units, fewer than it was, or not
// made if n is 0. ok is false if the Log cannot tell: see Correct. Otherwise the caller changes
// Returned, swaps the word, and calls Settled if the swap succeeds. Until then the Log is of no
// word.
func (l *Log) Settle(id uint64, mark Mark, n int64) (next uint64, ok bool) {
	// Most takes end soon, so the search begins with the last.
	i := len(l.takes) - 1
	for i >= 0 && l.takes[i].id != id {
		i--
	}
	if i < 0 || mark != l.mark {
		return 0, false
	}
	rest := l.takes[i:]
	word, settled := rest[0].before, rest[0]
	if settled.n = n; n > 0 {
		if word, ok = settled.again(word); !ok {
			return 0, false
		}
	}
	// A settled take never raises a word under a policy of package policy. Another may.
	if next, ok = again(rest[1:], word, false); !ok || next > mark.Word {
		return 0, false
	}
	l.mark.Word = math.MaxUint64
	again(rest[1:], word, true)
	if rest[0] = settled; n <= 0 {
		l.takes = slices.Delete(l.takes, i, i+1)
	}
	return next, true
}

// Correct prepares the Log for a word that is lowered to next although it has no such take, so that
// later takes are still settled exactly. The units that come back were in the word before its
// first take. If the Log is of another word it starts anew. ok is false if it cannot be corrected:
// then nothing may come back. Otherwise the caller goes on as after Settle.
func (l *Log) Correct(mark Mark, next uint64) (ok bool) {
	if mark != l.mark || len(l.takes) == 0 {
		l.Drop()
		return true
	}
	first, lowered := l.takes[0].before, mark.Word-next
	if lowered > first {
		return false
	}
	if word, ok := again(l.takes, first-lowered, false); !ok || word != next {
		return false
	}
	l.mark.Word = math.MaxUint64
	again(l.takes, first-lowered, true)
	return true
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
	if t.n < 0 {
		next = t.limit.(policy.Refunder).Refund(word, t.takenAt, t.n)
		return next, next <= policy.MaxWord
	}
	next, decision := t.limit.Take(word, t.takenAt, t.n, 0)
	return next, decision.Allowed && decision.Wait == 0 && next <= policy.MaxWord
}

// Settled tells the Log that the word is as Settle returned it.
func (l *Log) Settled(mark Mark) { l.mark = mark }

// Drop forgets all takes. IDs go on.
func (l *Log) Drop() {
	clear(l.takes)
	l.takes = l.takes[:0]
}

// ResetUnits count as given back by a reset, so that takes from before it give nothing back.
const ResetUnits = 1 << 33

// Taken is a take of N units that brought a word from Before to After. The zero Taken has no effect.
type Taken struct {
	Before, After uint64
	At            policy.Instant
	N             int64
	// Wait is the delay until the take's turn.
	Wait time.Duration
	// Returned is the count of returned units from before the word was read.
	Returned uint64
	// ID is of Log.Add, or 0.
	ID uint64
}

// GiveBack lowers a word as if the take had been of used units, fewer than it was. limit is the limit of
// the take. returned counts the units that were given back to the word: it grows before the word is
// lowered, by at least as many. l may be nil.
//
// Only one goroutine at a time may lower the word. Takes go on meanwhile. A take never recreates an
// earlier word, so an unchanged word is an untouched word.
//
// GiveBack returns by how much it lowered the word. exact reports whether the word is now as if the
// take had been of used units from the beginning. Otherwise less came back.
func (l *Log) GiveBack(
	word, returned *atomic.Uint64, limit policy.Policy, taken *Taken, used int64, now func() policy.Instant,
) (lowered uint64, exact bool) {
	others := returned.Load() - taken.Returned
	if others >= ResetUnits {
		return 0, false
	}
	if l == nil {
		l = &Log{}
	}
	back := taken.N - used
	for {
		present := word.Load()
		if present > policy.MaxWord {
			// The word is of an entry that has left.
			return 0, false
		}
		untouched := present == taken.After && others == 0
		mark := Mark{Word: present, Returned: returned.Load()}
		next, settled := l.Settle(taken.ID, mark, used)
		exact, logged := settled, settled
		if !exact && untouched {
			if next, exact = taken.again(limit, used); exact {
				if restorer, ok := limit.(policy.Restorer); ok {
					next = min(restorer.Restore(present, next, now()), policy.MaxWord)
				}
			}
		}
		if !exact {
			// The clock is read after the word: some units may have drained since the take.
			next = taken.cancelLater(limit, present, now(), back, others)
			if logged = l.Correct(mark, next); next == present || !logged {
				return 0, false
			}
		}
		if !exact || !untouched {
			returned.Add(min(uint64(back), ResetUnits))
		}
		if word.CompareAndSwap(present, next) {
			if logged {
				l.Settled(Mark{Word: next, Returned: returned.Load()})
			}
			return present - min(next, present), exact
		}
	}
}

// again returns the word as if the take had been of n units. ok is false if its turn would have been
// at another time: its units might lie in another window.
func (t *Taken) again(limit policy.Policy, n int64) (next uint64, ok bool) {
	if n == 0 {
		return t.Before, true
	}
	next, decision := limit.Take(t.Before, t.At, n, policy.Never)
	return next, decision.Allowed && decision.Wait == t.Wait && next <= policy.MaxWord
}

// cancelLater returns the word after giving back units of a take that others followed.
func (t *Taken) cancelLater(limit policy.Policy, word uint64, now policy.Instant, back int64, others uint64) (next uint64) {
	refunder, ok := limit.(policy.Refunder)
	if !ok {
		return word
	}
	next = refunder.Cancel(word, t.After, t.At, now, back, int64(others))
	if next > policy.MaxWord {
		return word
	}
	return next
}

// A Logs has at most 4,096 places, in sets of 16. Sets leave room for keys whose hashes are near to each
// other: with 1,000 keys under way, one in a million finds its set full. Without sets it was one in four.
const (
	maxPlaces = 1 << 12
	setPlaces = 16
)

// Logs holds the Logs of up to 4,096 entries, and of no more than twice MaxKeys. An entry has a place in
// a set, by its key's hash. In a full set the entry that takes last has the place of another. A place
// holds its Log weakly: the calls that may still settle a take hold it. Only the Log used last in a set
// is held strongly. So a Logs keeps at most 256 entries, however many it has seen.
//
// A Logs is safe for concurrent use, and an EntryLog is for one goroutine at a time: the calls that take from
// an entry or lower its word exclude each other while they use its Log. A call that adds a take does so from
// before its swap, and a call that settles a take until the word is swapped. So takes are remembered in the
// order of their swaps.
type Logs[E any] struct {
	// MaxKeys is positive.
	MaxKeys int
	Seam    seam.Seam
	sets    atomic.Pointer[[]set[E]]
}

// set is where an entry's Log is found.
type set[E any] struct {
	// latest is the Log used last, which has a place. A weak pointer costs as much as two locked operations.
	latest atomic.Pointer[EntryLog[E]]
	// marks has the bit of each hash that may have a Log.
	marks atomic.Uint64

	// mu guards the rest.
	mu sync.Mutex
	// misses counts calls of miss.
	misses uint64
	places [setPlaces]place[E]
	// next is the place that is given up next.
	next int
	// kept holds the Logs under a scheduler, so that a run does not depend on the collector.
	kept      [setPlaces]*EntryLog[E]
	scheduled bool
}

type place[E any] struct {
	hash uint64
	log  weak.Pointer[EntryLog[E]]
}

// EntryLog is the Log of an entry.
type EntryLog[E any] struct {
	Log
	Entry *E
}

// Receipt names a take in the Log of its entry, and keeps the Log. The zero Receipt names none.
type Receipt[E any] struct {
	Log *EntryLog[E]
	ID  uint64
}

// Undo is Settle to 0 of the latest take, for a Log that is of the word m.Word with that take. Otherwise it
// returns false and changes nothing. It calls no policy.
func (l *Log) Undo(id uint64, m Mark) (next uint64, ok bool) {
	last := len(l.takes) - 1
	if last < 0 || l.takes[last].id != id || m != l.mark {
		return 0, false
	}
	next = l.takes[last].before
	l.takes[last] = take{}
	l.takes = l.takes[:last]
	l.mark.Word = math.MaxUint64
	return next, true
}

// markOf returns the bit of a hash in set.marks, by its lower bits.
func markOf(hash uint64) uint64 { return 1 << (hash % 64) }

// Open returns the Log of an entry whose key has the hash, and makes the Log if there is none. The caller then
// swaps the word and adds its take.
func (l *Logs[E]) Open(hash uint64, entry *E) *EntryLog[E] {
	if sets := l.sets.Load(); sets != nil {
		if log := (*sets)[setOf(hash, len(*sets))].latest.Load(); log != nil && log.Entry == entry {
			return log
		}
	}
	return l.open(hash, entry)
}

func (l *Logs[E]) open(hash uint64, entry *E) *EntryLog[E] {
	if l.sets.Load() == nil {
		l.sets.CompareAndSwap(nil, l.newSets())
	}
	sets := *l.sets.Load()
	set := &sets[setOf(hash, len(sets))]
	set.mu.Lock()
	defer set.mu.Unlock()
	log := set.find(hash, entry)
	if log == nil {
		log = &EntryLog[E]{Entry: entry}
		set.put(hash, log)
	}
	set.latest.Store(log)
	return log
}

// Find returns the Log of an entry whose key has the hash, nil if there is none. A call whose take need not be
// settled calls it after it has read the word: if there is no Log and the call swaps that word, no Log lacks the
// take.
func (l *Logs[E]) Find(hash uint64, entry *E) *EntryLog[E] {
	if sets := l.sets.Load(); sets != nil {
		if set := &(*sets)[setOf(hash, len(*sets))]; set.marks.Load()&markOf(hash) != 0 {
			return set.search(hash, entry)
		}
	}
	return nil
}

func (s *set[E]) search(hash uint64, entry *E) *EntryLog[E] {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.find(hash, entry)
	if log == nil {
		s.miss()
	}
	return log
}

// miss looks for the marks of Logs that are gone, once in a while. The caller holds mu.
func (s *set[E]) miss() {
	const every = 16
	if s.misses++; s.misses%every != 0 {
		return
	}
	marks := uint64(0)
	for i := range s.places {
		if place := &s.places[i]; place.log.Value() != nil {
			marks |= markOf(place.hash)
		}
	}
	s.marks.Store(marks)
}

// setOf returns the index of the set for a hash, by its upper bits.
func setOf(hash uint64, sets int) uint64 {
	index, _ := bits.Mul64(hash, uint64(sets))
	return index
}

func (l *Logs[E]) newSets() *[]set[E] {
	if l.Seam.Scheduler == nil {
		sets := make([]set[E], (min(2*l.MaxKeys, maxPlaces)+setPlaces-1)/setPlaces)
		return &sets
	}
	// Hashes differ from process to process: with few sets, so would the keys that share one.
	sets := make([]set[E], maxPlaces)
	for i := range sets {
		sets[i].scheduled = true
	}
	return &sets
}

// find returns the Log of an entry in its place, or nil. The caller holds mu.
func (s *set[E]) find(hash uint64, entry *E) *EntryLog[E] {
	for i := range s.places {
		if place := &s.places[i]; place.hash == hash {
			if log := place.log.Value(); log != nil && log.Entry == entry {
				return log
			}
		}
	}
	return nil
}

// put gives a Log a place. The caller holds mu.
func (s *set[E]) put(hash uint64, log *EntryLog[E]) {
	i := slices.IndexFunc(s.places[:], func(place place[E]) bool { return place.log.Value() == nil })
	if i < 0 {
		i, s.next = s.next, (s.next+1)%setPlaces
	}
	if s.places[i] = (place[E]{hash, weak.Make(log)}); s.scheduled {
		s.kept[i] = log
	}
	s.marks.Or(markOf(hash))
}
