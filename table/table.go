package table

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"
	"weak"

	"github.com/ral-limiter/ral/internal/seam"
	"github.com/ral-limiter/ral/policy"
)

const (
	// keysPerShard is how many keys a shard holds when the table is full. Copying
	// a shard of that size pauses the writer for less than a millisecond.
	keysPerShard = 6400
	// maxShards bounds what is set aside for a table before it has a key. Above
	// maxShards*keysPerShard, 26 million keys, shards become larger, and so do the
	// pauses of the writer when they grow.
	maxShards = 1 << 12

	// 1<<maxNurseryBits is the number of slots in the nursery of a large table.
	// A slot that is not empty has a command under way, so that more slots than
	// the queue holds commands would only lose some; and a caller of a new key
	// walks his slot's list. longSlot is when he lets the writer run.
	maxNurseryBits = 10
	longSlot       = 8
	// fileBudget bounds how many entries a command files.
	fileBudget = 512

	// settleStep bounds how many entries one call to Settle files, and indexes.
	settleStep = 256

	// A full table makes room for roomStep keys at a time, so that a flood of
	// new keys does not wake the writer for each one, but for no more than one
	// in roomShare of all. roomBudget bounds the search.
	roomStep   = 64
	roomShare  = 1024
	roomBudget = 512
)

// Options are what a table is made with. All but Fault are required; the engine
// has checked them.
type Options struct {
	Policy  policy.Policy
	Idle    time.Duration // how long a key that owes nothing is kept, at least 1ns
	MaxKeys int           // how many entries there may be, at least 1

	// Fault is called by the writer at the points that Points lists. Tests
	// panic in it. Nil does nothing.
	Fault func(point string)
}

// Table is the keyed words and their order. Call New to make one. Its methods
// are for one goroutine at a time, the writer, except View, which any may call.
type Table[K comparable] struct {
	terms   atomic.Pointer[Terms] // written by the writer alone
	idle    policy.Instant
	fault   func(point string)
	seed    maphash.Seed
	maxKeys int64

	// Tests set these before the table is used: see between and hash.
	step   func(point string)
	hasher func(K) uint64
	// holders, if set, says for held whether there are any.
	holders func() bool

	// shards are written by the writer alone, read by all. Nil is an empty one.
	shards []atomic.Pointer[shard[K]]
	// nursery is written by all: see the package comment.
	nursery []slot[K]

	_ [64]byte // what follows is written often; what precedes it is not

	// places counts what is tentative, landed or filed: never above maxKeys.
	places places
	// lostFiling is set when a command to file an entry was lost: the writer should
	// look through the nursery.
	lostFiling atomic.Bool

	// horizon is the latest instant at which a key was forgotten, or might have been.
	// Written by the writer alone.
	horizon atomic.Int64

	counters Counters

	// index orders the filed entries of as many shards as indexed says, from first
	// on and round; those of the others are found when recovery comes to them. The
	// slots below adopted have been looked at since a command was last known to be
	// lost. The writer's own, as is what follows.
	index   *index[K]
	first   int
	indexed int
	adopted int
	// pending are the entries of the shard indexed last that are still to be
	// put into the index.
	pending []*Entry[K]
	// changing is set from a change of policy until all words are the new one's.
	changing bool
	// before are the terms before the last change, and during those by which words
	// were read until all had been translated, as long as anybody holds them.
	before, during weak.Pointer[Terms]
	// crowded is set when a caller found the table full, until it is not nearly
	// so any more: room is made ahead of need then.
	crowded bool
	// filed counts the entries of each shard.
	filed []int
}

// Counters count what only the writer knows. They may be read by all.
type Counters struct {
	Evicted      atomic.Uint64 // entries that left because they were idle, or to make room
	Forgiven     atomic.Uint64 // those of them that still owed
	Overadmitted atomic.Uint64 // units that Queued callers had let pass and the limit had not
}

// New returns an empty table.
func New[K comparable](o Options) *Table[K] {
	t := &Table[K]{
		idle:    policy.Instant(o.Idle),
		fault:   o.Fault,
		seed:    maphash.MakeSeed(),
		maxKeys: min(int64(o.MaxKeys), certain),
		shards:  make([]atomic.Pointer[shard[K]], min(max(o.MaxKeys/keysPerShard, 1), maxShards)),
		nursery: make([]slot[K], 1<<min(bits.Len(uint(o.MaxKeys-1)), maxNurseryBits)),
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

// A simulation has a table of any keys run under its scheduler, before the first use.
func init() {
	seam.Accept(func(t interface{ under(seam.Seam) }, s seam.Seam) { t.under(s) })
}

func (t *Table[K]) under(s seam.Seam) {
	t.step, t.holders, t.seed = s.Scheduler.Step, s.Scheduler.Held, s.Scheduler.Seed()
}

// View returns the table as everybody but the writer sees it.
func (t *Table[K]) View() View[K] { return View[K]{t} }

func (t *Table[K]) hash(key K) uint64 {
	if t.hasher != nil {
		return t.hasher(key)
	}
	return maphash.Comparable(t.seed, key)
}

// between is called between two operations that others can come between. The
// test that tries every order of them gives step, and switches goroutines in it.
func (t *Table[K]) between(point string) {
	if t.step != nil {
		t.step(point)
	}
}

// shardOf spreads hashes evenly over any number of shards by their high bits, and
// returns what is left of the hash for the shard's own use.
func (t *Table[K]) shardOf(hash uint64) (i int, rest uint64) {
	high, rest := bits.Mul64(hash, uint64(len(t.shards)))
	return int(high), rest
}

// find returns the live entry of the key in the map, or nil. It may die at any time.
func (t *Table[K]) find(hash uint64, key K) *Entry[K] {
	i, rest := t.shardOf(hash)
	s := t.shards[i].Load()
	if s == nil {
		return nil
	}
	return s.find(s.place(hash, rest), key)
}
