package cell

import (
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Control has a cell's methods for its owner. Any number of goroutines may call them.
type Control[K comparable] struct{ c *Cell[K] }

// Stats counts a cell's answers since it was made. Each call counts once, for any n. Looks do not
// count.
type Stats struct {
	Admitted    uint64 // allowed calls
	Refused     uint64 // refused calls: the sum of the reasons below
	Unavailable uint64 // admitted or refused without the key's word for want of a writer
	Full        uint64 // admitted or refused without the key's word: the table was full

	// Refused calls by reason.
	OverLimit          uint64 // by the limit of the key
	Blocked            uint64 // the key was blocked
	Misfits            uint64 // the limit is of another family
	UnavailableRefused uint64 // refused calls of Unavailable
	FullRefused        uint64 // refused calls of Full
	Crowded            uint64 // the most calls allowed were waiting
	Late               uint64 // the turn would have come too late
	Cancelled          uint64 // the context ended, or the cell was closed

	Overstayed uint64 // releases and extensions after their units had ended

	Waiting  int           // calls in line now
	Waits    uint64        // calls that have left their line
	WaitTime time.Duration // the total time of Waits in line
}

// Stats returns the counts. Calls under way may be missing. A call is counted once and by one
// addition, so that no count decreases, not even Refused.
func (k Control[K]) Stats() Stats {
	by := &k.c.refusedBy
	s := Stats{
		Overstayed:         k.c.overstayed.Load(),
		Misfits:            by[misfit].Load(),
		UnavailableRefused: by[unavailable].Load(),
		FullRefused:        by[full].Load(),
		Crowded:            by[crowded].Load(),
		Late:               by[late].Load(),
		Cancelled:          by[ended].Load() + by[shut].Load(),
	}
	s.Admitted, s.OverLimit, s.Blocked = k.c.tally.Sum()
	s.Refused = s.OverLimit + s.Blocked + s.Misfits + s.UnavailableRefused + s.FullRefused + s.Crowded + s.Late + s.Cancelled
	s.Unavailable = s.UnavailableRefused + k.c.admittedBy[unavailable].Load()
	s.Full = s.FullRefused + k.c.admittedBy[full].Load()
	s.Waiting, s.Waits, s.WaitTime = k.c.lines.Count()
	return s
}

// Now returns the instant by which the cell decides.
func (k Control[K]) Now() policy.Instant { return k.c.now() }

// Tick is Now, for about once a second: the list of refused keys advances without refusals.
func (k Control[K]) Tick() policy.Instant {
	now := k.c.now()
	k.c.refused.mu.Lock()
	defer k.c.refused.mu.Unlock()
	k.c.turnWindow(now)
	return now
}

// Close makes the cell answer every call as for an unavailable table, for a known key only once it
// is gone from the table. Calls in line end. Call Close once.
func (k Control[K]) Close() {
	k.c.closed.Store(true)
	close(k.c.done)
}
