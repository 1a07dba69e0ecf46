package table

import "github.com/ral-limiter/ral/policy"

// Command asks the writer to change the table. Functions such as FileCommand make
// one. The zero Command does nothing. Applying one twice does no harm.
type Command[K comparable] struct {
	op     op
	entry  *Entry[K]
	now    policy.Instant
	n      int64 // the budget of a sweep, the hash of a key to be filed
	reply  chan<- SweepResult
	change *Change
}

type op uint8

const (
	opNone op = iota
	opFile
	opRoom
	opSweep
	opChange
)

// FileCommand asks for the entry that landed under that hash to be filed, with all
// that have landed in the same slot.
func FileCommand[K comparable](hash uint64, now policy.Instant) Command[K] {
	return Command[K]{op: opFile, n: int64(hash), now: now}
}

// RoomCommand asks for room in a full table, for a key that had no entry.
func RoomCommand[K comparable](key K, now policy.Instant) Command[K] {
	return Command[K]{op: opRoom, entry: &Entry[K]{key: key}, now: now}
}

// SweepCommand asks for a sweep that looks at up to budget entries. The result is
// sent to reply if that has room, and dropped otherwise.
func SweepCommand[K comparable](now policy.Instant, budget int, reply chan<- SweepResult) Command[K] {
	return Command[K]{op: opSweep, now: now, n: int64(budget), reply: reply}
}

// ChangeCommand asks for another policy. Terms describes what becomes of the words;
// Change.Answer returns the result.
func ChangeCommand[K comparable](c *Change) Command[K] { return Command[K]{op: opChange, change: c} }

// Begin is called by the writer just before it carries the command out. A change
// takes effect from then on, not from its request: units taken while it was on its
// way were taken under the policy before.
func (c Command[K]) Begin(clock func() policy.Instant) {
	if c.op == opChange {
		c.change.at = max(c.change.at, clock())
	}
}

// Apply carries a command out.
func (t *Table[K]) Apply(c Command[K]) {
	switch c.op {
	case opFile:
		filed := t.File(uint64(c.n), c.now)
		if t.nearlyFull {
			// Two looks for each key filed keep up with a flood; the next RoomCommand
			// does what they leave undone.
			t.MakeRoom(c.now, t.ahead(), 2*max(filed, 1))
		}
	case opRoom:
		// Other callers may have asked before, perhaps for the same key.
		if key := c.entry.key; t.places.full(t.maxKeys) && !t.has(t.hash(key), key) {
			t.nearlyFull = true
			t.MakeRoom(c.now, max(t.ahead(), 1), roomBudget)
		}
	case opSweep:
		result := t.Sweep(c.now, int(c.n))
		select {
		case c.reply <- result:
		default:
		}
	case opChange:
		t.Change(c.change)
	}
}

// Abandon answers a command that will not be carried out. Nothing is lost by that: an
// unfiled entry is still in the nursery, and room, a sweep or another policy will be
// requested again.
func (t *Table[K]) Abandon(c Command[K]) {
	if c.op != opChange {
		return
	}
	if t.terms.Load().by == c.change {
		c.change.give(ChangeMade)
	} else {
		c.change.give(ChangeLater)
	}
}
