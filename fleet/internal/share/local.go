package share

import (
	"fmt"
	"iter"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/shape"
	"github.com/ral-limiter/ral/policy"
)

// Local answers for the keys of a limit while Redis is away. Its methods may be called by
// any number of goroutines, Serve and Owed by one at a time. The zero value is of no use:
// see New.
type Local struct {
	*engine.Engine[string]
	whole   policy.Policy
	servers atomic.Int64
	begun   time.Time   // after the engine, by a little
	noted   atomic.Bool // since Owed began last
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
	l := &Local{Engine: e, whole: p, begun: time.Now()}
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
	if err := l.SetPolicy(part); err != nil {
		return fmt.Errorf("ral: dividing the limit by %d servers: %w", servers, err)
	}
	l.servers.Store(int64(servers))
	return nil
}

// Servers is how many the limit is divided by.
func (l *Local) Servers() int { return int(l.servers.Load()) }

// Take asks the share for n units, as a Reservation does: to be cancelled, perhaps.
func (l *Local) Take(key string, n int64, patience time.Duration) cell.Reservation[string] {
	l.Note()
	return l.Reserve(key, n, patience)
}

// Note says that something may have been taken.
func (l *Local) Note() {
	if !l.noted.Load() {
		l.noted.Store(true)
	}
}

// Owed goes through the keys and tells how many units each has used that still count here:
// what has to be charged. They go on counting here until Paid.
//
// A share drains no faster than the whole, so that nothing is forgotten; while a part of
// them has drained by the measure of the whole, that is charged again.
func (l *Local) Owed() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		if !l.noted.Swap(false) {
			return
		}
		part, _ := l.Limit("")
		for key, d := range l.All() {
			if n := l.used(part, d); n > 0 && !yield(key, n) {
				l.noted.Store(true)
				return
			}
		}
	}
}

// used is how many units count of a key of which d tells how it stands under p.
func (l *Local) used(p policy.Policy, d policy.Decision) int64 {
	shaped, ok := p.(shape.Shaped)
	if !ok {
		return d.Limit - d.Remaining
	}
	s := shaped.Shape()
	if s.Kind != shape.Bursty {
		return d.Limit - d.Remaining
	}
	// What remains of its limit is all or nothing. Its store lacks, and it owes besides,
	// as many units as come in until it is full, less what a key that was never used
	// lacks, for that begins to store when the engine begins.
	lack := int64(d.ResetAfter) - max(int64(s.Depth/ticks)-int64(time.Since(l.begun)), 0)
	high, low := bits.Mul64(uint64(max(lack, 0)), ticks)
	units, rest := bits.Div64(high, low, s.Interval)
	if rest > 0 {
		units++
	}
	return int64(units)
}

// ticks are in a nanosecond.
const ticks = 16

// Paid says that n units of the key were charged where they belong.
func (l *Local) Paid(key string, n int64) { l.Refund(key, n) }

// Unpaid says that some could not be charged: Owed is to tell them again.
func (l *Local) Unpaid() { l.noted.Store(true) }
