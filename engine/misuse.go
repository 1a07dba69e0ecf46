package engine

import (
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

// misuse tells of units in use that no call releases in time. The nil misuse tells of none.
type misuse[K comparable] struct {
	name string
	// seed is the seed of the hashes in events.
	seed   maphash.Seed
	events *supervisor.Mailbox[Event]
	begun  time.Time
	unheld atomic.Uint64
	// next is the time since begun from which an overstay is an event again, and untold counts those before it.
	next   atomic.Int64
	untold atomic.Uint64
}

// overstayPause is the time between two events about overstays.
const overstayPause = 10 * time.Second

// watchUnitsInUse returns functions for cell.Options, which are nil without units in use.
func (e *Engine[K]) watchUnitsInUse() (onOverstay, onUnheld func(K)) {
	if _, ok := e.config.Policy.(policy.Occupier); !ok {
		return nil, nil
	}
	e.misuse = &misuse[K]{name: e.name, seed: maphash.MakeSeed(), events: supervisor.NewEventMailbox(e.config.OnEvent), begun: time.Now()}
	return e.misuse.overstayed, e.misuse.unheldUnits
}

func (m *misuse[K]) event(key K, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	m.events.Post(Event{
		Kind: supervisor.Misuse, Supervisor: m.name, Time: time.Now(),
		Err: fmt.Errorf("key %016x: %s", maphash.Comparable(m.seed, key), text),
	})
}

func (m *misuse[K]) overstayed(key K) {
	now, next := int64(time.Since(m.begun)), m.next.Load()
	if now < next || !m.next.CompareAndSwap(next, now+int64(overstayPause)) {
		m.untold.Add(1)
		return
	}
	m.event(key, "a call lasted longer than the longest time of its units in use, which had ended before their release, as did %d others since the last such event", m.untold.Swap(0))
}

func (m *misuse[K]) unheldUnits(key K) {
	if m.unheld.Add(1) == 1 {
		m.event(key, "a call took units in use and returned nothing to release, as Choke, Take and Wait do, so they end after the longest time: use Reserve or Acquire")
	}
}

func (m *misuse[K]) count() uint64 {
	if m == nil {
		return 0
	}
	return m.unheld.Load()
}

func (m *misuse[K]) flush() {
	if m != nil {
		m.events.Flush()
	}
}
