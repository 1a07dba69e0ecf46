package engine

import (
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/supervisor"
)

// keyEvents posts an engine's events about keys. An event has a hash of its key.
type keyEvents[K comparable] struct {
	name string
	seed maphash.Seed
	box  *supervisor.Mailbox[Event]
}

func (e *keyEvents[K]) post(kind supervisor.Kind, err error) {
	e.box.Post(Event{Kind: kind, Supervisor: e.name, Time: time.Now(), Err: err})
}

// hash returns the key's hash, or 0 if the key has none.
func (e *keyEvents[K]) hash(key K) uint64 {
	hash, _ := cell.GuardedHash(e.seed, key)
	return hash
}

// misuse reports units in use that no call releases in time. The nil misuse reports none.
type misuse[K comparable] struct {
	*keyEvents[K]
	begun time.Time
	// unheld counts the calls that took units in use and returned nothing to release.
	unheld atomic.Uint64
	// next is the time since begun from which an overstay is an event again. unreported counts the overstays since
	// the last event.
	next       atomic.Int64
	unreported atomic.Uint64
}

// overstayPause is the time between two events about overstays.
const overstayPause = 10 * time.Second

func newMisuse[K comparable](events *keyEvents[K]) *misuse[K] {
	return &misuse[K]{keyEvents: events, begun: time.Now()}
}

func (m *misuse[K]) overstayed(key K) {
	now, next := int64(time.Since(m.begun)), m.next.Load()
	if now < next || !m.next.CompareAndSwap(next, now+int64(overstayPause)) {
		m.unreported.Add(1)
		return
	}
	m.post(supervisor.Misuse, fmt.Errorf("key %016x: a call lasted longer than the longest time of its units in use, which had ended before their release, as did %d others since the last such event", m.hash(key), m.unreported.Swap(0)))
}

func (m *misuse[K]) unheldUnits(key K) {
	if m.unheld.Add(1) == 1 {
		m.post(supervisor.Misuse, fmt.Errorf("key %016x: a call took units in use and returned nothing to release, as Choke, Take and Wait do, so they end after the longest time: use Reserve or Acquire", m.hash(key)))
	}
}

func (m *misuse[K]) count() uint64 {
	if m == nil {
		return 0
	}
	return m.unheld.Load()
}
