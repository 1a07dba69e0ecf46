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

// Turns tells the refused calls of a key a turn each, at the pace of their limit. A call that comes
// back in turn finds room, unless others took it. A turn admits nothing, so a table that may lose a
// key's last turn is enough: of a thousand keys, in 32 KiB. NewTurns makes it. It is safe for
// concurrent use.
type Turns struct {
	horizon int64 // from the earliest instant to the last turn
	unit    int64 // to which clients are told times
	seed    maphash.Seed
	clock   *clock.Clock // nil for package time
	epoch   time.Time
	phase   float64 // of this server's turns between the fleet's, from 0 to 1
	// slots hold the last turns in sets of half a cache line: the tag of a key in the highest 16 bits,
	// and below them the turn in units of 1,024 ns since the epoch.
	slots [4096]atomic.Uint64
}

const (
	slotsOfSet = 4

	turnBits = 48
	tagMask  = uint64(math.MaxUint64 >> turnBits << turnBits)
	turnUnit = 10 // bits of 1,024 ns
	lastTurn = 1<<(turnBits+turnUnit) - 1<<turnUnit
	farthest = lastTurn / 2 // horizon: 4 years
)

// NewTurns returns Turns up to horizon after the instant at which a call would be admitted, or nil
// if horizon is 0. unit is the unit to which times for clients are rounded up.
func NewTurns(horizon, unit time.Duration) *Turns {
	if horizon == 0 {
		return nil
	}
	return &Turns{
		horizon: min(int64(horizon), farthest), unit: int64(unit), seed: maphash.MakeSeed(), phase: rand.Float64(),
		clock: clock.Shared(), epoch: time.Now(),
	}
}

func (t *Turns) now() int64 {
	if t.clock != nil {
		return t.clock.Now()
	}
	return int64(time.Since(t.epoch))
}

// pace returns the time from a turn of n units to the next, negative if there is none. Calls that are
// told the same unit of time come back at once. An eighth more absorbs delays on the way: without it a
// late call costs every later call its turn.
func (t *Turns) pace(limit policy.Policy, q Quota, n int64) time.Duration {
	late := time.Duration(t.unit)
	spaced, ok := limit.(shape.Spaced)
	switch {
	case n < 1:
		return 0
	case ok:
		return spaced.Spacing(n, late)
	case q.Window > 0 && q.Most > 0:
		return shape.SpacingInWindows(q.Window, q.Most, n, late)
	}
	return 0
}

// after returns the time until the turn of a call that would be admitted after that time. Each of
// several servers tells turns as many times further apart, at a phase of its own.
func (t *Turns) after(hash uint64, after, step time.Duration, servers int) time.Duration {
	now, phase := t.now(), int64(0)
	if step *= time.Duration(servers); servers > 1 {
		phase = int64(t.phase * float64(min(int64(step), t.horizon)))
	}
	return time.Duration(t.tell(hash, now+int64(after), phase, int64(step)) - now)
}

// tell returns a turn phase after the instant earliest, or later. step is the time from the last turn
// of the key with that hash. A last turn too late for any present call is of another time: the key was
// blocked then, its limit was lower, or the call took more units. Other keys of its set of slots replace
// the earliest turn.
func (t *Turns) tell(hash uint64, earliest, phase, step int64) int64 {
	tag := hash >> turnBits << turnBits
	set := t.slots[hash%uint64(len(t.slots)/slotsOfSet)*slotsOfSet:][:slotsOfSet]
	latest := earliest + t.horizon
	if step < 0 || latest > lastTurn || latest < 0 {
		return earliest
	}
	for {
		slot, word := &set[0], set[0].Load()
		for i := 1; i < slotsOfSet && word&tagMask != tag; i++ {
			if other := set[i].Load(); other&tagMask == tag || other<<(64-turnBits) < word<<(64-turnBits) {
				slot, word = &set[i], other
			}
		}
		turn := earliest + phase
		if last := int64(word << (64 - turnBits) >> (64 - turnBits - turnUnit)); word&tagMask == tag && last <= latest+1<<turnUnit {
			turn = max(turn, last+step)
		}
		if turn > latest {
			return latest // nothing is written, so a flood does not contend for the slot
		}
		if slot.CompareAndSwap(word, tag|uint64(turn+1<<turnUnit-1)>>turnUnit) {
			return turn
		}
	}
}
