package admission

import (
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/core/clock"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// Turns tells the refused calls of a key a turn each, at the pace of their limit. A call that comes
// back in turn finds room, unless others took it. A turn admits nothing, so a table that may lose a
// key's last turn is enough: of 2,048 keys, in 16 KiB. NewTurns makes it. It is safe for concurrent
// use.
type Turns struct {
	horizon int64 // from the earliest instant to the last turn
	unit    int64 // to which clients are told times
	seed    maphash.Seed
	clock   *clock.Clock // nil for package time
	epoch   time.Time
	phase   float64 // of this server's turns between the fleet's, from 0 to 1
	// slots hold the last turns in pairs of a cache line: the tag of a key in the highest 16 bits,
	// and below them the turn in units of 1,024 ns since the epoch.
	slots [2048]atomic.Uint64
}

const (
	turnBits = 48
	turnUnit = 10 // bits of 1,024 ns
	lastTurn = 1<<(turnBits+turnUnit) - 1<<turnUnit
)

// NewTurns returns Turns up to horizon after the instant at which a call would be admitted, or nil
// if horizon is 0. unit is the unit to which times for clients are rounded up.
func NewTurns(horizon, unit time.Duration) *Turns {
	if horizon == 0 {
		return nil
	}
	return &Turns{
		horizon: int64(horizon), unit: int64(unit), seed: maphash.MakeSeed(), phase: rand.Float64(),
		clock: clock.Shared(), epoch: time.Now(),
	}
}

func (t *Turns) now() int64 {
	if t.clock != nil {
		return t.clock.Now()
	}
	return int64(time.Since(t.epoch))
}

// pace returns the time from a turn to the next. Calls told the same second come back at once, so
// no more turns lie in a unit of time than the limit admits at once. An eighth more absorbs delays
// on the way: without it one late call costs every later call its turn.
func (t *Turns) pace(limit policy.Policy, q Quota) int64 {
	pace := int64(0)
	if spaced, ok := limit.(shape.Spaced); ok {
		pace = int64(spaced.Spacing(time.Duration(t.unit)))
	} else if q.Window > 0 && q.Most > 0 {
		pace = (max(int64(q.Window), t.unit)-1)/q.Most + 1
	}
	return pace + pace/8
}

// after returns the time until the turn of a call that would be admitted after that time. Each of
// several servers tells turns as many times further apart, at a phase of its own.
func (t *Turns) after(hash uint64, after time.Duration, step int64, servers int) time.Duration {
	now := t.now()
	earliest := now + int64(after)
	if step *= int64(servers); servers > 1 && step > 0 {
		earliest += int64(t.phase * float64(step))
	}
	return time.Duration(t.tell(hash, earliest, step) - now)
}

// tell returns a turn at the instant earliest or later. step is the time from the last turn of the
// key with that hash. Other keys of its pair of slots replace the earlier turn.
func (t *Turns) tell(hash uint64, earliest, step int64) int64 {
	tag := hash >> turnBits << turnBits
	at := hash % (uint64(len(t.slots)) / 2) * 2
	latest := earliest + t.horizon
	if step < 0 || latest > lastTurn || latest < 0 {
		return earliest
	}
	for {
		slot := &t.slots[at]
		word, turn := slot.Load(), earliest
		if word&^(1<<turnBits-1) != tag {
			other := &t.slots[at+1]
			if also := other.Load(); also&^(1<<turnBits-1) == tag || also<<(64-turnBits) < word<<(64-turnBits) {
				slot, word = other, also
			}
		}
		if word&^(1<<turnBits-1) == tag {
			turn = max(turn, int64(word<<(64-turnBits)>>(64-turnBits-turnUnit))+step)
		}
		if turn > latest {
			return latest // nothing is written, so a flood does not contend for the slot
		}
		if slot.CompareAndSwap(word, tag|uint64(turn+1<<turnUnit-1)>>turnUnit) {
			return turn
		}
	}
}
