package cell

import (
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Control has the methods of a cell that are for its owner alone. New returns it with
// the cell. Any number of goroutines may call them.
type Control[K comparable] struct{ c *Cell[K] }

// Stats counts a cell's answers since it was made. Each call is counted once, whatever n
// was. Looks are not counted.
type Stats struct {
	Admitted    uint64 // calls that were allowed
	Refused     uint64 // calls that were not: the sum of those below
	Unavailable uint64 // of both, those answered without the key's word for want of a writer
	Full        uint64 // of both, those answered without the key's word because the table was full

	// The calls that were refused, by reason.
	OverLimit          uint64 // by the limit of the key
	Blocked            uint64 // the key was blocked
	Misfits            uint64 // the limit is of another family
	UnavailableRefused uint64 // those of Unavailable
	FullRefused        uint64 // those of Full
	Crowded            uint64 // as many calls waited as may
	Late               uint64 // the turn would have come too late
	Cancelled          uint64 // the context ended, or the cell was closed

	Waiting  int           // calls in line now
	Waits    uint64        // calls that have left their line
	WaitTime time.Duration // how long these stood there, in all
}

// Stats returns the counts. Calls under way may or may not be in them. A call is counted once
// and by one addition, so that no count decreases, the sum included.
func (k Control[K]) Stats() Stats {
	by := &k.c.refusedBy
	s := Stats{
		Misfits:            by[misfit].Load(),
		UnavailableRefused: by[unavailable].Load(),
		FullRefused:        by[full].Load(),
		Crowded:            by[crowded].Load(),
		Late:               by[late].Load(),
		Cancelled:          by[ended].Load() + by[shut].Load(),
	}
	s.Admitted, s.OverLimit, s.Blocked = k.c.tally.sum()
	s.Refused = s.OverLimit + s.Blocked + s.Misfits + s.UnavailableRefused + s.FullRefused + s.Crowded + s.Late + s.Cancelled
	s.Unavailable = s.UnavailableRefused + k.c.admittedBy[unavailable].Load()
	s.Full = s.FullRefused + k.c.admittedBy[full].Load()
	s.Waiting, s.Waits, s.WaitTime = k.c.lines.Count()
	return s
}

// Now returns the instant by which the cell decides.
func (k Control[K]) Now() policy.Instant { return k.c.now() }

// Tick is Now for a goroutine that comes about once a second: it lets the list of refused
// keys go on when no key is refused.
func (k Control[K]) Tick() policy.Instant {
	now := k.c.now()
	k.c.refused.mu.Lock()
	defer k.c.refused.mu.Unlock()
	k.c.turnWindow(now)
	return now
}

// Close makes the cell answer every call as for an unavailable table. That holds for a
// known key once it is gone from the table as well. Calls in line end. Call Close once.
func (k Control[K]) Close() {
	k.c.closed.Store(true)
	close(k.c.done)
}
