package table

import (
	"hash/maphash"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/policy"
)

const (
	// keysPerShard is the number of keys in a shard of a full table. Copying such a shard takes
	// less than 1 ms.
	keysPerShard = 6400
	// maxShards bounds the memory of an empty table. Above maxShards*keysPerShard, 26 million keys,
	// shards become larger, and so do the writer's pauses when they grow.
	maxShards = 1 << 12

	// 1<<maxNurseryBits is the number of slots in the nursery of a large table. A slot that is not
	// empty has a command under way: more slots than the queue holds commands would lose some.
	// Behind longSlot entries a caller of a new key lets the writer run, unless the writer runs
	// already: of 250,000 callers 38,000 yielded to each other. Behind maxSlot the caller always
	// does, in case the writer was preempted.
	maxNurseryBits = 10
	longSlot       = 16
	maxSlot        = 64
	fileBudget     = 512

	// settleStep bounds the entries that Settle files, and those that it indexes.
	settleStep = 256

	// A full table makes room for roomStep keys at a time, at most for one in roomShare of all
	// keys. So a flood does not wake the writer for each key. roomBudget bounds the search.
	roomStep   = 64
	roomShare  = 1024
	roomBudget = 512
)

// Options configure a table. All except Fault, Firm and Seed are required. New does not check them.
type Options struct {
	Policy policy.Policy
	// Idle is how long a key that owes nothing is kept, at least 1 ns.
	Idle time.Duration
	// MaxKeys is the largest number of entries, at least 1.
	MaxKeys int
	// Firm, if not 0, protects entries fresh later than now+Firm from eviction to make room.
	Firm time.Duration
	// Seed makes the hashes of keys. Zero means a seed of the table's own.
	Seed maphash.Seed

	// Fault is called by the writer at each of Points. Tests let Fault panic. Nil does nothing.
	Fault func(point string)
}

// Table holds the keyed words and their order. Call New to make one. Only one goroutine at a time,
// the writer, may call its methods, except View.
type Table[K comparable] struct {
	// terms are written by the writer alone.
	terms atomic.Pointer[Terms]
	idle  policy.Instant
	// firm is 0 if no key is protected.
	firm    policy.Instant
	fault   func(point string)
	seed    maphash.Seed
	maxKeys int64

	// texts is the type's property that newEntry needs.
	texts bool

	// step is for tests: see stepPoint.
	step   func(point string)
	hasher func(K) uint64

	// shards are written by the writer alone. A nil shard is empty.
	shards []atomic.Pointer[shard[K]]
	// nursery is written by all goroutines.
	nursery []slot[K]

	// The fields below are written often, and those above are not.
	_ [64]byte

	// places counts the tentative, landed and filed entries, at most maxKeys.
	places places
	// moving is the replacement under way, or nil. The writer alone writes it.
	moving atomic.Pointer[move[K]]
	// lostFiling is set when a command to file was lost: the writer searches the nursery.
	lostFiling atomic.Bool
	// running is set while the writer runs, or was preempted: see Running.
	running atomic.Bool
	// reset is set when a key was reset or released, if there are firm keys or keys in use.
	reset atomic.Bool
	// resets counts the resets of keys whose limit is a policy.Occupier: see Open.
	resets atomic.Uint64
	// looking is set from the first look of MakeRoom at keys in use until all have been looked at.
	looking atomic.Bool
	// firmUntil is an instant before which every filed key is firm or in use, 0 if unknown. The writer alone
	// writes it.
	firmUntil atomic.Int64

	// horizon is at or after the last instant at which a key was forgotten. The writer alone writes
	// it.
	horizon atomic.Int64

	counters Counters

	// index orders the filed entries of the first indexed shards, counted from first and wrapping
	// round; recovery adds the others. The nursery's slots below adopted have been searched since a
	// command was last known to be lost. From here on all fields belong to the writer.
	index   *index[K]
	first   int
	indexed int
	adopted int
	// pending has the entries of the shard indexed last that are not in the index yet.
	pending []*Entry[K]
	// changing is set from a change of policy until all entries are replaced.
	changing bool
	// nearlyFull is set when a caller found the table full, and cleared when an eighth of it is
	// free. Meanwhile room is made ahead of need.
	nearlyFull bool
	// vain counts the looks of MakeRoom in a row at keys in use, and soonest is the first instant at which
	// one of them will be free.
	vain    int
	soonest policy.Instant
	// filed has the number of entries of each shard.
	filed []int
}

// Counters count events of the writer. Any goroutine may read them.
type Counters struct {
	// Evicted counts entries that left because they were idle, or to make room.
	Evicted atomic.Uint64
	// Forgiven counts evicted entries that still owed.
	Forgiven atomic.Uint64
}

// New returns an empty table.
func New[K comparable](options Options) *Table[K] {
	table := &Table[K]{
		idle:    policy.Instant(options.Idle),
		firm:    policy.Instant(options.Firm),
		fault:   options.Fault,
		seed:    maphash.MakeSeed(),
		maxKeys: min(int64(options.MaxKeys), certain),
		texts:   isText[K](),
		shards:  make([]atomic.Pointer[shard[K]], min(max(options.MaxKeys/keysPerShard, 1), maxShards)),
		nursery: make([]slot[K], 1<<min(bits.Len(uint(options.MaxKeys-1)), maxNurseryBits)),
	}
	if options.Seed != (maphash.Seed{}) {
		table.seed = options.Seed
	}
	table.terms.Store(newTerms(options.Policy, 0, nil, nil))
	if table.fault == nil {
		table.fault = func(string) {}
	}
	table.filed = make([]int, len(table.shards))
	table.index = newIndex[K]()
	table.indexed = len(table.shards)
	table.soonest = math.MaxInt64
	table.adopted = len(table.nursery)
	return table
}

func init() {
	seam.Accept(func(t interface{ under(seam.Seam) }, s seam.Seam) { t.under(s) })
}

func (t *Table[K]) under(points seam.Seam) {
	t.step, t.seed = points.Scheduler.Step, points.Scheduler.Seed()
}

// View returns the table's view. Any goroutine may call it.
func (t *Table[K]) View() View[K] { return View[K]{t} }

func (t *Table[K]) hash(key K) uint64 {
	if t.hasher != nil {
		return t.hasher(key)
	}
	return maphash.Comparable(t.seed, key)
}

// stepPoint is called between operations at which other goroutines can interleave. The test that
// tries every order sets step.
func (t *Table[K]) stepPoint(point string) {
	if t.step != nil {
		t.step(point)
	}
}

// shardOf spreads hashes evenly by their high bits. rest is for use in the shard.
func (t *Table[K]) shardOf(hash uint64) (i int, rest uint64) {
	high, rest := bits.Mul64(hash, uint64(len(t.shards)))
	return int(high), rest
}

// find returns the live entry of the key in the map, or nil. The entry may die at any time.
func (t *Table[K]) find(hash uint64, key K) *Entry[K] {
	for {
		entry := t.filedEntry(hash, key)
		if entry == nil || entry.word.Load() != moved {
			return entry
		}
		t.stepPoint("find: moved")
		if move := t.moving.Load(); move != nil && move.from == entry {
			return move.to
		}
		// The successor was in the map before moving changed.
	}
}

// filedEntry returns the key's entry in the map, or nil. The entry may have moved, and find follows
// it.
func (t *Table[K]) filedEntry(hash uint64, key K) *Entry[K] {
	i, rest := t.shardOf(hash)
	shard := t.shards[i].Load()
	if shard == nil {
		return nil
	}
	return shard.find(shard.place(hash, rest), key)
}
