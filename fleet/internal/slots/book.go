// Package slots decides which units of limits in flight a server still has. Redis forgets a unit that its
// server did not confirm for a term, and gives its place to other servers. So the server must give up the
// unit before that: see [Book.Fence].
//
// A [Book] is arithmetic on values: a Book has no lock, no clock and no connection. Package fleet
// has those.
package slots

import (
	"sync/atomic"
	"time"
)

// Time is the time since the start of the server, by its monotonic clock.
type Time time.Duration

// Never is after all times.
const Never = Time(1<<63 - 1)

// Slot is units of a key that a call holds together. Only the Book changes it, except for Lost and Released.
type Slot struct {
	Key, ID string
	N       int64
	// Lost is closed by the caller of Fence, and is not used here.
	Lost chan struct{}
	// Released is set by the caller of Leave once the call has given the units back, and is not used here.
	Released atomic.Bool

	// ends is the time at which the units end by themselves. The units certainly count until the
	// time until, which is ends for units that Redis has not counted yet.
	ends, until Time
	// run is a Confirm.Run.
	run string
	// counted means that Redis has counted the units.
	counted bool
	lost    bool
}

// Request is a request to Redis, as it is sent.
type Request struct {
	Sent Time
	// Run names the process of Redis that answered the last beat. Only this process or a later one
	// answers the request.
	Run string
}

// Book holds the slots of a server under one limit. The zero Book is of no use: make a Book with
// [New].
type Book struct {
	term, margin time.Duration
	// slots are the slots by ID.
	slots map[string]*Slot
	// perKey has the units held of each key, also lost units.
	perKey map[string]int64
	// run is the process of Redis that answered the last beat.
	run string
	// heard is when that beat was sent.
	heard Time
	// link is the connection by which the beat was answered.
	link uint64
	// reached means that a beat was answered, and the server was not cut off since.
	reached bool
	// uncounted is the number of slots that Redis has not counted yet.
	uncounted int
	// No slot is lost or ends before due.
	due Time
}

// marginPart is the part of a term by which a server gives up its units before Redis forgets these.
// The margin covers clocks that do not run at one speed, and the time to act.
const marginPart = 10

// New returns an empty book, under a term after which Redis forgets what was not confirmed.
func New(term time.Duration) *Book {
	return &Book{term: term, margin: term / marginPart, slots: map[string]*Slot{}, perKey: map[string]int64{}, due: Never}
}

// lasts returns until when units certainly count in Redis that a request sent then confirmed, and that end by
// themselves at the time ends.
func (b *Book) lasts(sent, ends Time) Time { return min(sent+Time(b.term-b.margin), ends) }

// MayEnter reports whether the server may ask Redis for more units over this link. The server must
// not while its units may be missing there: after being cut off, and on a new link, it must beat
// first.
func (b *Book) MayEnter(now Time, link uint64) bool {
	return b.reached && b.uncounted == 0 && link == b.link && now < b.lasts(b.heard, Never)
}

// Ask returns the request that is sent now.
func (b *Book) Ask(now Time) Request { return Request{Sent: now, Run: b.run} }

// Enter records units that Redis has counted for a request, and returns their slot. Enter returns
// nil if the answer came so late that Redis may have forgotten the units.
func (b *Book) Enter(key, id string, n int64, request Request, now Time, longest time.Duration) *Slot {
	ends := request.Sent + Time(longest)
	until := b.lasts(request.Sent, ends)
	if now >= until {
		return nil
	}
	return b.add(&Slot{Key: key, ID: id, N: n, ends: ends, until: until, run: request.Run, counted: true})
}

// EnterLocally records units of this server's share, which Redis has not counted, and returns their
// slot. EnterLocally returns nil if the key would hold more than share units here, lost or not.
func (b *Book) EnterLocally(key, id string, n, share int64, now Time, longest time.Duration) *Slot {
	if n > share-b.Held(key) {
		return nil
	}
	b.uncounted++
	ends := now + Time(longest)
	return b.add(&Slot{Key: key, ID: id, N: n, ends: ends, until: ends})
}

func (b *Book) add(slot *Slot) *Slot {
	slot.Lost = make(chan struct{})
	b.slots[slot.ID] = slot
	b.perKey[slot.Key] += slot.N
	b.due = min(b.due, slot.until)
	return slot
}

// Held returns the units of the key that calls of this server hold, lost or not.
func (b *Book) Held(key string) int64 { return b.perKey[key] }

// Len returns the number of units held, lost or not.
func (b *Book) Len() (units int64) {
	for _, n := range b.perKey {
		units += n
	}
	return units
}

// Find returns the slot of an ID, or nil.
func (b *Book) Find(id string) *Slot { return b.slots[id] }

// Until returns the time until which the units of a slot certainly count in Redis, as far as Redis
// has confirmed them. Units of a share that Redis has not counted yet last until their end.
func (b *Book) Until(slot *Slot) Time { return slot.until }

// Leave forgets a slot. held reports whether the server still had it, lost or not, and counted whether
// Redis has ever counted its units.
func (b *Book) Leave(slot *Slot) (held, counted bool) {
	if b.slots[slot.ID] != slot {
		return false, slot.counted
	}
	delete(b.slots, slot.ID)
	if b.perKey[slot.Key] -= slot.N; b.perKey[slot.Key] == 0 {
		delete(b.perKey, slot.Key)
	}
	if !slot.counted {
		b.uncounted--
	}
	return true, slot.counted
}

// LeaveKey forgets the slots of a key.
func (b *Book) LeaveKey(key string) {
	for _, slot := range b.slots {
		if slot.Key == key {
			b.Leave(slot)
		}
	}
}

// Fence returns the slots that are lost from now on: Redis may forget their units after the margin, and
// admit others in their place. Fence also forgets slots that have ended by themselves. A server must
// call Fence before each decision, and some times within a margin.
func (b *Book) Fence(now Time) (lost []*Slot) {
	if now < b.due {
		return nil
	}
	b.due = Never
	for _, slot := range b.slots {
		switch {
		case now >= slot.ends:
			b.Leave(slot)
			continue
		case !slot.lost && now < slot.until:
			b.due = min(b.due, slot.until)
			continue
		case !slot.lost:
			slot.lost = true
			lost = append(lost, slot)
		}
		b.due = min(b.due, slot.ends)
	}
	return lost
}

// GiveUp returns all slots that are not lost yet, and forgets all.
func (b *Book) GiveUp() (all []*Slot) {
	for _, slot := range b.slots {
		if !slot.lost {
			all = append(all, slot)
		}
		b.Leave(slot)
	}
	return all
}

// Confirm is a slot to be confirmed in Redis.
type Confirm struct {
	*Slot
	// Left is how long until the units end by themselves.
	Left time.Duration
	// Run names a process of Redis that has counted the units, or one before it. If the units are
	// missing in this process, another server gave them back. Another process may have lost the units,
	// so that they enter again, even above the limit. Run is empty if Redis has not counted the units,
	// or if no name is known.
	Run string
}

// Beat is what to confirm in Redis at one time.
type Beat struct {
	Sent     Time
	Confirms []Confirm
}

func (t *Beat) add(slot *Slot) {
	t.Confirms = append(t.Confirms, Confirm{slot, time.Duration(slot.ends - t.Sent), slot.run})
}

// Beat returns what to confirm in Redis now: all that is held and not lost.
func (b *Book) Beat(now Time) Beat {
	beat := Beat{Sent: now}
	for _, slot := range b.slots {
		if !slot.lost && now < slot.ends {
			beat.add(slot)
		}
	}
	return beat
}

// Extend lets the slot last until longest from now, and returns what to confirm in Redis. ok is false if its
// units no longer count. Units that Redis has counted are extended once Redis has confirmed that.
func (b *Book) Extend(slot *Slot, now Time, longest time.Duration) (beat Beat, ok bool) {
	beat.Sent = now
	if b.slots[slot.ID] != slot || slot.lost || now >= slot.until {
		return beat, false
	}
	slot.ends = now + Time(longest)
	if !slot.counted {
		slot.until = slot.ends
	}
	beat.add(slot)
	return beat, true
}

// Beaten records the answer to Beat by a process of Redis over a link: see Confirmed. From now on the server
// may ask Redis for more units over this link.
func (b *Book) Beaten(beat Beat, now Time, link uint64, run string, there []bool) {
	b.Confirmed(beat, now, run, there)
	if now < b.lasts(beat.Sent, Never) && (!b.reached || beat.Sent >= b.heard) {
		b.heard, b.link, b.run, b.reached = beat.Sent, link, run, true
	}
}

// Confirmed records the answer to a beat by a process of Redis. there tells for each of its slots whether
// Redis counts the units. Other units were given back by another server. The answer to a beat that was
// under way for too long is void.
func (b *Book) Confirmed(beat Beat, now Time, run string, there []bool) {
	for i, confirm := range beat.Confirms {
		until := b.lasts(beat.Sent, beat.Sent+Time(confirm.Left))
		switch slot := confirm.Slot; {
		case b.slots[slot.ID] != slot || slot.lost || now >= b.lasts(beat.Sent, Never):
		case !there[i]:
			b.Leave(slot)
		case !slot.counted || until >= slot.until:
			if !slot.counted {
				slot.counted = true
				b.uncounted--
			}
			slot.until, slot.run = until, run
			b.due = min(b.due, until)
		}
	}
}
