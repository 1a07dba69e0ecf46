package admission

import (
	"hash/maphash"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/core/clock"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// Turns tells each refused call of a key a turn of its own, at the pace of the key's limit. A turn is the time
// at which the call should come back. A call that comes back at its turn finds room, unless other calls have
// taken it. A turn does not promise units. So it suffices to keep the last turn of each key in a table that may
// lose some turns, in 32 KiB for about a thousand keys. NewTurns makes Turns. It is safe for concurrent use.
type Turns struct {
	// spread is the longest time from the instant at which a call would be admitted to its turn.
	spread int64
	// unit is the unit to which times for clients are rounded up.
	unit int64
	seed maphash.Seed
	// clock is nil if package time is used.
	clock *clock.Clock
	epoch time.Time
	// phase shifts this server's turns between those of the other servers of a fleet. It is a part of a step, from 0
	// to 1.
	phase float64
	// slots hold the last turns, in sets of half a cache line. A slot has the tag of a key, which is 16 bits of its
	// hash, in the highest 16 bits. The lower bits have the turn in units of 1,024 ns since the epoch.
	slots [4096]atomic.Uint64
}

const (
	// slotsOfSet is the number of slots in a set.
	slotsOfSet = 4

	turnBits = 48
	tagMask  = uint64(math.MaxUint64 >> turnBits << turnBits)
	// turnUnit says that a turn is kept in units of 1<<turnUnit ns.
	turnUnit = 10
	lastTurn = 1<<(turnBits+turnUnit) - 1<<turnUnit
	// farthest bounds spread to 4 years.
	farthest = lastTurn / 2

	// manyUnits is the number of units from which a window is so long that rounding a turn to a unit wastes less than a
	// 20th of the window.
	manyUnits = 24
)

// NewTurns returns Turns up to spread after the instant at which a call would be admitted, or nil
// if spread is 0. unit is the unit to which times for clients are rounded up.
func NewTurns(spread, unit time.Duration) *Turns {
	if spread == 0 {
		return nil
	}
	return &Turns{
		spread: min(int64(spread), farthest), unit: int64(unit), seed: maphash.MakeSeed(), phase: rand.Float64(),
		clock: clock.Shared(), epoch: time.Now(),
	}
}

func (t *Turns) now() int64 {
	if t.clock != nil {
		return t.clock.Now()
	}
	return int64(time.Since(t.epoch))
}

// pace describes how the turns of a key follow each other.
type pace struct {
	// Spacing has the Step from one turn to the next. Step is negative if there are no turns.
	shape.Spacing
	// window is the length of a window that begins with its first unit, and calls the number of calls that it admits.
	// Both are 0 unless the window is shorter than manyUnits.
	window, calls int64
}

// pace returns the pace of the turns for calls of n units under a limit.
func (t *Turns) pace(limit policy.Policy, quota Quota, n int64) (pace pace) {
	unit := time.Duration(t.unit)
	spaced, ok := limit.(shape.Spaced)
	switch {
	case n < 1:
	case ok:
		pace.Spacing = spaced.Spacing(n, unit)
	case quota.Window > 0 && quota.Most > 0:
		pace.Spacing = shape.SpacingInWindows(quota.Window, quota.Most, n, unit)
	}
	if calls := quota.Most / max(n, 1); quota.lasts && n > 0 && calls > 1 && quota.Window < manyUnits*unit && grid(int64(quota.Window), calls) > 0 {
		pace.window, pace.calls = int64(quota.Window), calls
		pace.Phases = max(1, t.unit/(pace.window+pace.window/8))
	}
	return pace
}

// grid returns the distance between the turns of a window in the form that inWindow keeps them.
func grid(window, calls int64) int64 { return window / 64 / calls >> turnUnit << turnUnit }

// after returns the time until the turn of a call that would be admitted after the given time. If several servers
// tell turns, the turns of each are further apart by the number of servers, and begin at a phase of its own.
func (t *Turns) after(hash uint64, after time.Duration, pace pace, servers int) time.Duration {
	now, phase := t.now(), int64(0)
	if pace.Step *= time.Duration(servers); servers > 1 {
		phase, pace.window = int64(t.phase*float64(min(int64(pace.Step), t.spread))), 0
	}
	// Adding the phase to the hash leads to another set and another tag, so each phase has turns of its own.
	hash += uint64(now%t.unit*pace.Phases/t.unit) * 0x9e3779b97f4a7c15
	return time.Duration(t.tell(hash, now, now+int64(after), phase, pace) - now)
}

// tell returns the next turn of the key with that hash. It is a step after the key's last turn, and not before
// the time phase after the instant earliest. A last turn that is too late for any present call is ignored. It was
// told while the key was blocked, or its limit was lower, or for a call of more units. A key without a slot
// replaces the earliest turn in its set of slots.
func (t *Turns) tell(hash uint64, now, earliest, phase int64, pace pace) int64 {
	tag := hash >> turnBits << turnBits
	set := t.slots[hash%uint64(len(t.slots)/slotsOfSet)*slotsOfSet:][:slotsOfSet]
	latest := earliest + t.spread
	if pace.Step < 0 || latest > lastTurn || latest < 0 {
		return earliest
	}
	for {
		slot, word := &set[0], set[0].Load()
		for i := 1; i < slotsOfSet && word&tagMask != tag; i++ {
			if other := set[i].Load(); other&tagMask == tag || other<<(64-turnBits) < word<<(64-turnBits) {
				slot, word = &set[i], other
			}
		}
		last := int64(word << (64 - turnBits) >> (64 - turnBits - turnUnit))
		if word&tagMask != tag || last > latest+1<<turnUnit {
			// The slot has no turn of the key that counts.
			last = math.MinInt64 / 2
		}
		turn := max(earliest+phase, last+int64(pace.Step))
		kept := turn
		if pace.window > 0 {
			turn, kept = t.inWindow(now, earliest, last, pace)
		}
		if turn > latest {
			// Nothing is written, so that a flood of calls does not contend for the slot.
			return latest
		}
		if slot.CompareAndSwap(word, tag|uint64(kept+1<<turnUnit-1)>>turnUnit) {
			return turn
		}
	}
}

// inWindow returns a turn that is a whole number of units from now, and the value that the table keeps of it. The
// turn is in the window of the last turn if that has room, and otherwise so late that it opens another window. The
// kept value is the begin of the window, rounded down to a multiple of a 64th of its length, plus a step of the grid
// for each further call that has a turn in the window.
func (t *Turns) inWindow(now, earliest, last int64, pace pace) (turn, kept int64) {
	step := grid(pace.window, pace.calls)
	length := step * pace.calls
	begin := last - last%length
	back := func(from int64) int64 { return now + (max(from-now, 1)+t.unit-1)/t.unit*t.unit }
	if turn = back(max(earliest, begin)); turn < begin+pace.window && last+step < begin+length {
		return turn, last + step
	}
	turn = back(max(earliest, begin+pace.window+length))
	return turn, turn - turn%length
}
