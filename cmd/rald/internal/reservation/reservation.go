// Package reservation is the book of the units that clients of rald hold until a deadline. The book
// knows no limiter, lock or clock: calls bring the instant, and the caller applies to the limit
// what they return.
//
// Start reading at [Record].
package reservation

import (
	"math"
	"time"

	"github.com/google/btree"
)

// ID identifies a reservation. Different keys and limits may have reservations of one name.
type ID struct{ Limit, Key, Name string }

// Action is what happens to the units of a reservation at its deadline.
type Action uint8

const (
	// Spend leaves the units with the key, as if they were used.
	Spend Action = iota
	// Release gives the units back.
	Release
)

// Actions has the Action of each word.
var Actions = map[string]Action{"spend": Spend, "release": Release}

// State says which of commit, release and deadline has ended a reservation, if one has.
type State uint8

const (
	// Unknown says that no reservation was made, and the first commit was a plain charge.
	Unknown State = iota
	// Held says that nothing has ended the reservation.
	Held
	// Committed says that a commit has ended the reservation.
	Committed
	// Released says that a release has ended the reservation.
	Released
	// Expired says that the deadline has ended the reservation.
	Expired
	// Late says that the deadline has ended the reservation, and a commit came after.
	Late
	// States is the number of states.
	States
)

// String returns the state in lower case.
func (s State) String() string {
	return [...]string{"unknown", "held", "committed", "released", "expired", "late"}[s]
}

// Record is a reservation in a Book. The caller reads its fields and changes only Value.
type Record[V any] struct {
	ID
	// Value is the caller's.
	Value V
	// Units are those that the reservation took.
	Units int64
	// Counted are the units that count against the key now on account of this reservation. Each
	// change returns the earlier number, so that the caller can apply the difference.
	Counted int64
	// TimeToLive is the time from the beginning to the first deadline, and Longest that to the last one.
	TimeToLive, Longest time.Duration
	Action              Action
	State               State

	// begun is when its time began.
	begun time.Duration
	// until is the deadline, or the time at which the book forgets the record. until is
	// math.MaxInt64 before Begin.
	until time.Duration
	// serial is its number in its book, so that two records of a queue differ.
	serial uint64
}

// Left returns the time until the deadline of a reservation that is Held, and otherwise 0.
func (r *Record[V]) Left(now time.Duration) time.Duration {
	if r.State != Held {
		return 0
	}
	return max(r.until-now, 0)
}

// Book has the records of a bounded number of reservations. New makes a Book. A single goroutine at
// a time may use a Book. Its instants are times since a fixed moment.
type Book[V any] struct {
	max     int
	longest time.Duration
	all     map[ID]*Record[V]
	// held is ordered by deadline.
	held *btree.BTreeG[*Record[V]]
	// ended is ordered by the instant at which the reservations are forgotten.
	ended     *btree.BTreeG[*Record[V]]
	forgotten uint64
	// added is the number of records so far.
	added uint64
}

// New returns a Book of at most max reservations, 1 or more. longest, above 0, bounds the time from the
// beginning of a reservation to its last deadline. An ended reservation is known for as long.
func New[V any](max int, longest time.Duration) *Book[V] {
	sooner := func(a, b *Record[V]) bool { return a.until < b.until || a.until == b.until && a.serial < b.serial }
	return &Book[V]{max: max, longest: longest, all: map[ID]*Record[V]{}, held: btree.NewG(16, sooner), ended: btree.NewG(16, sooner)}
}

// Find returns the record of an ID, or nil if there is none.
func (b *Book[V]) Find(id ID, now time.Duration) *Record[V] {
	record := b.all[id]
	if record != nil && record.State != Held && now >= record.until {
		b.Drop(record)
		return nil
	}
	return record
}

// Reserve adds a reservation under an ID that has no record. longest, above 0, bounds its time to its last
// deadline if that is shorter than the book's. Its time does not pass before Begin. Reserve returns nil if
// there is no room, since nothing but reservations that are Held is in the book.
func (b *Book[V]) Reserve(id ID, units int64, ttl, longest time.Duration, action Action, value V) *Record[V] {
	longest = min(longest, b.longest)
	return b.add(&Record[V]{
		ID: id, Value: value, Units: units, Counted: units, TimeToLive: min(ttl, longest), Longest: longest,
		Action: action, State: Held, until: math.MaxInt64,
	})
}

// Charge adds the record of a commit under an ID that has none, which is a plain charge of the actual
// units. Charge returns nil if there is no room: a repeated charge is then not recognized.
func (b *Book[V]) Charge(id ID, now time.Duration, actual int64, value V) *Record[V] {
	record := b.add(&Record[V]{ID: id, Value: value, Counted: actual, State: Unknown})
	if record != nil {
		b.end(record, now, Unknown, actual)
	}
	return record
}

// add adds a record. If there is no room, add first forgets the reservation that would be forgotten
// next.
func (b *Book[V]) add(record *Record[V]) *Record[V] {
	if len(b.all) >= b.max {
		first, ok := b.ended.Min()
		if !ok {
			return nil
		}
		b.Drop(first)
		b.forgotten++
	}
	b.added++
	record.serial = b.added
	b.all[record.ID] = record
	return record
}

// Begin starts the time of a reservation.
func (b *Book[V]) Begin(record *Record[V], now time.Duration) {
	record.begun, record.until = now, now+record.TimeToLive
	b.held.ReplaceOrInsert(record)
}

// Drop forgets a record, whatever its state.
func (b *Book[V]) Drop(record *Record[V]) {
	if b.all[record.ID] == record {
		delete(b.all, record.ID)
	}
	b.leave(record)
}

// leave takes a record out of its queue, before its instant changes.
func (b *Book[V]) leave(record *Record[V]) {
	if record.State == Held {
		b.held.Delete(record)
	} else {
		b.ended.Delete(record)
	}
}

// IsDue reports whether the deadline of a reservation that is Held has passed. Then Expire must come before
// any other change at this instant.
func (b *Book[V]) IsDue(record *Record[V], now time.Duration) bool {
	return record.State == Held && record.until <= now
}

// Expire ends a reservation that is due. before is Counted before the call.
func (b *Book[V]) Expire(record *Record[V], now time.Duration) (before int64) {
	if record.Action == Release {
		return b.end(record, now, Expired, 0)
	}
	return b.end(record, now, Expired, record.Units)
}

// Commit ends a reservation with the actual units. After the deadline Commit corrects the
// deadline's result, once. A reservation that has ended otherwise stays as it is. before is Counted
// before the call.
func (b *Book[V]) Commit(record *Record[V], now time.Duration, actual int64) (before int64) {
	switch record.State {
	case Held:
		return b.end(record, now, Committed, actual)
	case Expired:
		return b.end(record, now, Late, actual)
	}
	return record.Counted
}

// Release ends a reservation without any units. After its end Release changes nothing. before is
// Counted before the call.
func (b *Book[V]) Release(record *Record[V], now time.Duration) (before int64) {
	if record.State != Held {
		return record.Counted
	}
	return b.end(record, now, Released, 0)
}

// Extend moves the deadline of a reservation to ttl from now, but never to an earlier instant or beyond
// the longest time from its beginning. After its end Extend changes nothing. Extend returns Counted,
// which stays.
func (b *Book[V]) Extend(record *Record[V], now, ttl time.Duration) (before int64) {
	if record.State == Held {
		b.leave(record)
		record.until = max(record.until, min(now+min(ttl, record.Longest), record.begun+record.Longest))
		b.held.ReplaceOrInsert(record)
	}
	return record.Counted
}

// end ends a reservation that Begin has started. Its record stays for the longest time from now on.
func (b *Book[V]) end(record *Record[V], now time.Duration, state State, counted int64) (before int64) {
	before = record.Counted
	b.leave(record)
	record.State, record.Counted, record.until = state, counted, now+b.longest
	b.ended.ReplaceOrInsert(record)
	return before
}

// Due returns a reservation that is due, or nil. Due also forgets a record whose time is over, if
// there is one. The caller must repeat Due until Next is later than now: each call takes a bounded
// time.
func (b *Book[V]) Due(now time.Duration) *Record[V] {
	if first, ok := b.ended.Min(); ok && first.until <= now {
		b.Drop(first)
	}
	if first, ok := b.held.Min(); ok && first.until <= now {
		return first
	}
	return nil
}

// Next returns the instant at which Due has something to do, or math.MaxInt64 if there is nothing.
func (b *Book[V]) Next() time.Duration {
	next := b.FirstDeadline()
	if first, ok := b.ended.Min(); ok {
		next = min(next, first.until)
	}
	return next
}

// FirstDeadline returns the earliest deadline, or math.MaxInt64 if there is none.
func (b *Book[V]) FirstDeadline() time.Duration {
	if first, ok := b.held.Min(); ok {
		return first.until
	}
	return math.MaxInt64
}

// Len returns the number of records, and the number of those that have not ended.
func (b *Book[V]) Len() (all, held int) { return len(b.all), len(b.all) - b.ended.Len() }

// Forgotten returns how many ended reservations were forgotten early, to make room.
func (b *Book[V]) Forgotten() uint64 { return b.forgotten }
