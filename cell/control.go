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
	// Admitted counts the allowed calls.
	Admitted uint64
	// Refused counts the refused calls: it is the sum of the reasons below.
	Refused uint64
	// Unavailable counts the calls admitted or refused without the key's word for want of a writer.
	Unavailable uint64
	// Full counts the calls admitted or refused without the key's word because the table was full.
	Full uint64

	// Refused calls by reason.
	// OverLimit counts the calls refused by the limit of the key.
	OverLimit uint64
	// Blocked counts the calls of blocked keys.
	Blocked uint64
	// Misfits counts the calls under a limit of another family.
	Misfits uint64
	// UnavailableRefused counts the refused calls of Unavailable.
	UnavailableRefused uint64
	// FullRefused counts the refused calls of Full.
	FullRefused uint64
	// Crowded counts the calls refused because the most calls allowed were waiting.
	Crowded uint64
	// Late counts the calls whose turn would have come too late.
	Late uint64
	// Cancelled counts the calls whose context ended, or whose cell was closed.
	Cancelled uint64

	// Overstayed counts the releases and extensions after their units had ended.
	Overstayed uint64

	// Waiting is the number of calls in line now.
	Waiting int
	// LongestWait is the time in line of the call that has waited longest, of the calls in line now.
	LongestWait time.Duration
	// Waits counts the calls that have left their line.
	Waits uint64
	// WaitTime is the total time of Waits in line.
	WaitTime time.Duration
}

// Stats returns the counts. Calls under way may be missing. A call is counted once and by one
// addition, so that no count decreases, not even Refused.
func (k Control[K]) Stats() Stats {
	by := &k.c.refusedBy
	stats := Stats{
		Overstayed:         k.c.overstayed.Load(),
		Misfits:            by[misfit].Load(),
		UnavailableRefused: by[unavailable].Load(),
		FullRefused:        by[full].Load(),
		Crowded:            by[crowded].Load(),
		Late:               by[late].Load(),
		Cancelled:          by[ended].Load() + by[shut].Load(),
	}
	stats.Admitted, stats.OverLimit, stats.Blocked = k.c.tally.Sum()
	stats.Refused = stats.OverLimit + stats.Blocked + stats.Misfits + stats.UnavailableRefused + stats.FullRefused + stats.Crowded + stats.Late + stats.Cancelled
	stats.Unavailable = stats.UnavailableRefused + k.c.admittedBy[unavailable].Load()
	stats.Full = stats.FullRefused + k.c.admittedBy[full].Load()
	stats.Waiting, stats.Waits, stats.WaitTime = k.c.lines.Count()
	stats.LongestWait = k.c.lines.LongestWait()
	return stats
}

// Now returns the instant by which the cell decides.
func (k Control[K]) Now() policy.Instant { return k.c.now() }

// Tick returns Now and advances the windows of the refused keys. Its owner calls it about once a
// second, since the windows must advance without refusals too.
func (k Control[K]) Tick() policy.Instant {
	now := k.c.now()
	k.c.refused.mu.Lock()
	defer k.c.refused.mu.Unlock()
	k.c.turnWindow(now)
	return now
}

// Close makes the cell answer every call as for an unavailable table. A call on a known key is
// answered by its word until the key is gone from the table. Calls in line end. Call Close once.
func (k Control[K]) Close() {
	k.c.closed.Store(true)
	close(k.c.done)
}
