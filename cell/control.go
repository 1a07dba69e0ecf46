package cell

import "github.com/ral-limiter/ral/policy"

// Control has the methods of a cell that are for its owner alone. New returns it with
// the cell. Any number of goroutines may call them.
type Control[K comparable] struct{ c *Cell[K] }

// Stats counts a cell's answers since it was made. Each call is counted once, whatever n
// was. Looks are not counted.
type Stats struct {
	Admitted    uint64 // calls that were allowed
	Refused     uint64 // calls that were not
	Unavailable uint64 // of both, those answered without the key's word for want of a writer
	Full        uint64 // of both, those answered without the key's word because the table was full
	Misfits     uint64 // of those refused, those under a limit of another family
	Blocked     uint64 // of those refused, those whose key was blocked
}

// Stats returns the counts. Calls under way may or may not be in them.
func (k Control[K]) Stats() Stats {
	s := Stats{Unavailable: k.c.unavailable.Load(), Full: k.c.full.Load(), Misfits: k.c.misfits.Load()}
	s.Admitted, s.Refused, s.Blocked = k.c.tally.sum()
	return s
}

// Now returns the instant by which the cell decides.
func (k Control[K]) Now() policy.Instant { return k.c.now() }

// Close makes the cell answer every call as for an unavailable table. That holds for a
// known key once it is gone from the table as well. Calls in line end. Call Close once.
func (k Control[K]) Close() {
	k.c.closed.Store(true)
	close(k.c.done)
}
