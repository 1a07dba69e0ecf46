package table

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/policy"
)

const (
	// keysPerShard is the number of keys in a shard when the table is full. Copying a
	// shard of that size pauses the writer for less than a millisecond.
	keysPerShard = 6400
	// maxShards bounds the memory that a table takes before it has a key. Above
	// maxShards*keysPerShard, 26 million keys, shards become larger, and so do the
	// pauses of the writer when they grow.
	maxShards = 1 << 12

	// 1<<maxNurseryBits is the number of slots in the nursery of a large table. A
	// slot that is not empty has a command under way, so that more slots than the
	// queue holds commands would only lose some. A caller of a new key walks its
	// slot's list; from longSlot entries on it lets the writer run.
	maxNurseryBits = 10
	longSlot       = 8
	// fileBudget bounds the entries that a command files.
	fileBudget = 512

	// settleStep bounds the entries that one call to Settle files, and those that it
	// indexes.
	settleStep = 256

	// A full table makes room for roomStep keys at a time, so that a flood of new
	// keys does not wake the writer for each one. It makes room for at most one in
	// roomShare of all keys. roomBudget bounds the search.
	roomStep   = 64
	roomShare  = 1024
	roomBudget = 512
)

// Options configure a table. All except Fault, Firm and Seed are required. New does not check them:
// package engine does.
type Options struct {
	Policy  policy.Policy
	Idle    time.Duration // the time that a key which owes nothing is kept, at least 1ns
	MaxKeys int           // the largest number of entries, at least 1
	// Firm, if not 0, keeps entries from being given up to make room that are fresh later
	// than this after the present.
	Firm time.Duration
	// Seed makes the hashes of keys. The zero Seed stands for one of the table's own.
	Seed maphash.Seed

	// Fault is called by the writer at the points that Points lists. Tests
	// panic in it. Nil does nothing.
	Fault func(point string)
}

// Table holds the keyed words and their order. Call New to make one. Only one
// goroutine at a time, the writer, may call its methods, except View, which any
// goroutine may call.
type Table[K comparable] struct {
	terms   atomic.Pointer[Terms] // written by the writer alone
	idle    policy.Instant
	firm    policy.Instant // 0 if none is
	fault   func(point string)
	seed    maphash.Seed
	maxKeys int64

	// Tests set these before the table is used: see stepPoint and hash.
	step   func(point string)
	hasher func(K) uint64

	// shards are written by the writer alone, and read by all goroutines. Nil is an
	// empty shard.
	shards []atomic.Pointer[shard[K]]
	// nursery is written by all goroutines: see the package comment.
	nursery []slot[K]

	_ [64]byte // the fields below are written often, those above are not

	// places counts the entries that are tentative, landed or filed: never above
	// maxKeys.
	places places
	// moving is the replacement of an entry that is under way, or nil. Written by the
	// writer alone.
	moving atomic.Pointer[move[K]]
	// lostFiling is set when a command to file an entry was lost, so that the writer
	// looks through the nursery.
	lostFiling atomic.Bool
	// reset is set when a key was reset, if there are firm ones.
	reset atomic.Bool

	// horizon is the latest instant at which a key was forgotten, or might have been.
	// Written by the writer alone.
	horizon atomic.Int64

	counters Counters

	// index orders the filed entries of the first indexed shards, counted from first
	// on and wrapping round; recovery adds the entries of the others. The nursery's
	// slots below adopted have been searched since a command was last known to be
	// lost. These fields and all that follow belong to the writer.
	index   *index[K]
	first   int
	indexed int
	adopted int
	// pending holds the entries of the shard indexed last that are still to be put
	// into the index.
	pending []*Entry[K]
	// changing is set from a change of policy until all entries are replaced.
	changing bool
	// nearlyFull is set when a caller found the table full, and cleared when an
	// eighth of it is free. While it is set, room is made ahead of need.
	nearlyFull bool
	// filed counts the entries of each shard.
	filed []int
}

// Counters count events that only the writer knows. Any goroutine may read them.
type Counters struct {
	Evicted  atomic.Uint64 // entries that left because they were idle, or to make room
	Forgiven atomic.Uint64 // those of them that still owed
}

// New returns an empty table.
func New[K comparable](o Options) *Table[K] {
	t := &Table[K]{
		idle:    policy.Instant(o.Idle),
		firm:    policy.Instant(o.Firm),
		fault:   o.Fault,
		seed:    maphash.MakeSeed(),
		maxKeys: min(int64(o.MaxKeys), certain),
		shards:  make([]atomic.Pointer[shard[K]], min(max(o.MaxKeys/keysPerShard, 1), maxShards)),
		nursery: make([]slot[K], 1<<min(bits.Len(uint(o.MaxKeys-1)), maxNurseryBits)),
	}
	if o.Seed != (maphash.Seed{}) {
		t.seed = o.Seed
	}
	t.terms.Store(newTerms(o.Policy, 0, nil, nil))
	if t.fault == nil {
		t.fault = func(string) {}
	}
	t.filed = make([]int, len(t.shards))
	t.index = newIndex[K]()
	t.indexed = len(t.shards)
	t.adopted = len(t.nursery)
	return t
}

// init lets a simulation run a table of any key type under its scheduler, before the
// first use.
func init() {
	seam.Accept(func(t interface{ under(seam.Seam) }, s seam.Seam) { t.under(s) })
}

func (t *Table[K]) under(s seam.Seam) {
	t.step, t.seed = s.Scheduler.Step, s.Scheduler.Seed()
}

// View returns the view of the table for all goroutines except the writer.
func (t *Table[K]) View() View[K] { return View[K]{t} }

func (t *Table[K]) hash(key K) uint64 {
	if t.hasher != nil {
		return t.hasher(key)
	}
	return maphash.Comparable(t.seed, key)
}

// stepPoint is called between two operations at which other goroutines can
// interleave. The test that tries every order of them sets step, and switches
// goroutines in it.
func (t *Table[K]) stepPoint(point string) {
	if t.step != nil {
		t.step(point)
	}
}

// shardOf spreads hashes evenly over any number of shards by their high bits, and
// returns the other bits of the hash for the shard's own use.
func (t *Table[K]) shardOf(hash uint64) (i int, rest uint64) {
	high, rest := bits.Mul64(hash, uint64(len(t.shards)))
	return int(high), rest
}

// find returns the live entry of the key in the map, or nil. It may die at any time.
func (t *Table[K]) find(hash uint64, key K) *Entry[K] {
	for {
		e := t.filedEntry(hash, key)
		if e == nil || e.word.Load() != moved {
			return e
		}
		t.stepPoint("find: moved")
		if m := t.moving.Load(); m != nil && m.from == e {
			return m.to
		}
		// The successor was put into the map before moving changed.
	}
}

// filedEntry returns the entry of the key that the map holds, or nil. It may have moved: find
// follows it to its successor.
func (t *Table[K]) filedEntry(hash uint64, key K) *Entry[K] {
	i, rest := t.shardOf(hash)
	s := t.shards[i].Load()
	if s == nil {
		return nil
	}
	return s.find(s.place(hash, rest), key)
}
