package share

import (
	"fmt"
	"iter"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/shape"
	"github.com/ral-limiter/ral/policy"
)

// Local answers for the keys of a limit while Redis is away. Its methods may be called by
// any number of goroutines, Serve, Owed and Paid by one. The zero value is of no use: see
// New.
//
// What is charged to Redis goes on counting here, until it has drained by the share's own
// rate. So the shares of all servers keep to the limit by themselves, however often Redis
// is away, and for however short a time; besides what Redis admits.
type Local struct {
	*engine.Engine[string]
	whole   policy.Policy
	servers atomic.Int64
	begun   time.Time   // after the engine, by a little
	noted   atomic.Bool // since Owed began last
	paid    book
}

// New returns the share of one of so many servers, with up to maxKeys keys; 0 is the
// engine's default. Call Close to end its goroutines.
func New(p policy.Policy, servers, maxKeys int) (*Local, error) {
	part, err := Of(p, servers)
	if err != nil {
		return nil, err
	}
	e, err := engine.New[string](engine.Config{
		Policy: part, MaxKeys: maxKeys,
		// What cannot be recorded cannot be charged either.
		WhenUnavailable: engine.Refuse,
	})
	if err != nil {
		return nil, err
	}
	if maxKeys == 0 {
		maxKeys = engine.DefaultMaxKeys
	}
	l := &Local{Engine: e, whole: p, begun: time.Now(), paid: newBook(part, maxKeys)}
	l.servers.Store(int64(servers))
	return l, nil
}

// Serve divides the limit by another number of servers from now on. What the keys have
// used counts on.
func (l *Local) Serve(servers int) error {
	if servers == l.Servers() {
		return nil
	}
	part, err := Of(l.whole, servers)
	if err != nil {
		return err
	}
	now := l.now()
	if err := l.SetPolicy(part); err != nil {
		return fmt.Errorf("ral: dividing the limit by %d servers: %w", servers, err)
	}
	l.paid.divide(part, now)
	l.servers.Store(int64(servers))
	return nil
}

// now is the engine's time, or a little earlier.
func (l *Local) now() policy.Instant { return policy.Instant(time.Since(l.begun)) + 1 }

// Reset forgets what the key has used here, and that it was charged.
func (l *Local) Reset(key string) bool {
	l.paid.drop(key)
	return l.Engine.Reset(key)
}

// Servers is how many the limit is divided by.
func (l *Local) Servers() int { return int(l.servers.Load()) }

// Take asks the share for n units, as a Reservation does: to be cancelled, perhaps.
func (l *Local) Take(key string, n int64, patience time.Duration) engine.Reservation[string] {
	l.Note()
	return l.Reserve(key, n, patience)
}

// Note says that something may have been taken.
func (l *Local) Note() {
	if !l.noted.Load() {
		l.noted.Store(true)
	}
}

// Owed goes through the keys and tells how many units each has used that still count here
// and were not Paid: what has to be charged.
//
// A share drains no faster than the whole, so that nothing is forgotten; while a part of
// them has drained by the measure of the whole, that is charged again. Units drain in the
// order in which they were taken. A key in excess of as many as the share holds owes
// nothing until others have drained: nobody would know that it was charged.
func (l *Local) Owed() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		l.paid.tidy(l.now())
		if !l.noted.Swap(false) {
			return
		}
		part := l.Limit()
		// What was paid is looked at a moment before what was used, so that of the two it
		// is not the one that has drained further.
		l.paid.at = l.now()
		for key, d := range l.All() {
			n := between(part, l.paid.stands(key), d, l.paid.at)
			if n > 0 && l.paid.room(key) && !yield(key, n) {
				l.noted.Store(true)
				return
			}
			l.paid.at = l.now()
		}
	}
}

// between is how many units were used by a key that stands so under p since it stood
// otherwise, both as of now.
func between(p policy.Policy, before, d policy.Decision, now policy.Instant) int64 {
	used := before.Remaining - d.Remaining
	shaped, ok := p.(shape.Shaped)
	if !ok {
		return used
	}
	s := shaped.Shape()
	if s.Kind != shape.Bursty {
		return used
	}
	// What remains of its limit is all or nothing. Its store lacks, and it owes besides,
	// as many units as come in until it is full, less what a key that was never used
	// lacks, for that begins to store when the engine begins, at instant 1.
	fill := time.Duration(s.Depth/ticks) - time.Duration(now-1)
	high, low := bits.Mul64(uint64(max(d.ResetAfter-max(before.ResetAfter, fill), 0)), ticks)
	units, rest := bits.Div64(high, low, s.Interval)
	if rest > 0 {
		units++
	}
	return int64(units)
}

// ticks are in a nanosecond.
const ticks = 16

// Paid says that n units of the key, which Owed has just told, were charged where they
// belong, or may have been.
func (l *Local) Paid(key string, n int64) { l.paid.add(key, n) }

// Unpaid says that some could not be charged: Owed is to tell them again.
func (l *Local) Unpaid() { l.noted.Store(true) }
