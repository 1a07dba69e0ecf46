package table

import "github.com/ral-limiter/ral/policy"

// Command asks the writer to change the table. Functions such as FileCommand make commands. The
// zero Command does nothing. Applying a command twice does no harm.
type Command[K comparable] struct {
	op    op
	entry *Entry[K]
	now   policy.Instant
	// n is the budget of a sweep, or the hash of a key to file.
	n      int64
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

// FileCommand asks to file the entry that landed under that hash, and its whole slot.
func FileCommand[K comparable](hash uint64, now policy.Instant) Command[K] {
	return Command[K]{op: opFile, n: int64(hash), now: now}
}

// RoomCommand asks for room in a full table, for a key without an entry.
func RoomCommand[K comparable](key K, now policy.Instant) Command[K] {
	return Command[K]{op: opRoom, entry: &Entry[K]{key: key}, now: now}
}

// SweepCommand asks to sweep up to budget entries. The result is dropped if reply has no room.
func SweepCommand[K comparable](now policy.Instant, budget int, reply chan<- SweepResult) Command[K] {
	return Command[K]{op: opSweep, now: now, n: int64(budget), reply: reply}
}

// ChangeCommand asks for another policy. Change.Answer returns the result.
func ChangeCommand[K comparable](change *Change) Command[K] {
	return Command[K]{op: opChange, change: change}
}

// Begin is called by the writer just before it carries the command out. A change of policy takes
// effect then, not when it was requested: units taken while the command was on its way count under
// the policy before.
func (c Command[K]) Begin(clock func() policy.Instant) {
	if c.op == opChange {
		c.change.now = max(c.change.now, clock())
	}
}

// Apply carries out a command, and returns the number of keys that it filed.
func (t *Table[K]) Apply(command Command[K]) (filed int) {
	switch command.op {
	case opFile:
		filed = t.File(uint64(command.n), command.now)
		if t.nearlyFull {
			// Two looks for each filed key keep up with a flood. The next RoomCommand does the
			// rest.
			t.MakeRoom(command.now, t.headroom(), 2*max(filed, 1))
		}
	case opRoom:
		// Other callers may have asked before, perhaps for the same key.
		if key := command.entry.Key(); t.places.full(t.maxKeys) && !t.has(t.hash(key), key) {
			t.nearlyFull = true
			t.MakeRoom(command.now, max(t.headroom(), 1), roomBudget)
		}
	case opSweep:
		result := t.Sweep(command.now, int(command.n))
		select {
		case command.reply <- result:
		default:
		}
	case opChange:
		t.Change(command.change)
	}
	return filed
}

// Abandon answers a command that will not be carried out. No state is lost: an unfiled entry is
// still in the nursery, and room, a sweep or a policy will be requested again.
func (t *Table[K]) Abandon(command Command[K]) {
	if command.op != opChange {
		return
	}
	if t.terms.Load().by == command.change {
		command.change.give(ChangeMade)
	} else {
		command.change.give(ChangeLater)
	}
}
