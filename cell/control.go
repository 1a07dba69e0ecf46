package cell

import "github.com/ral-limiter/ral/policy"

// Control is what a cell's owner can do with it and its callers can not. New
// gives it along with the cell. Its methods may be called by any number of
// goroutines.
type Control[K comparable] struct{ c *Cell[K] }

// Stats counts a cell's answers since it was made. Each call is counted once,
// whatever it asked for; looks are not counted.
type Stats struct {
	Admitted    uint64 // calls that were allowed
	Refused     uint64 // calls that were not
	Unavailable uint64 // of both, those answered without the key's word because the writer was not to be had
	Full        uint64 // of both, those answered without the key's word because the table was full
}

// Stats returns the counts. Calls under way may or may not be in them.
func (k Control[K]) Stats() Stats {
	s := Stats{Unavailable: k.c.unavailable.Load(), Full: k.c.full.Load()}
	s.Admitted, s.Refused = k.c.tally.sum()
	return s
}

// Now returns the instant by which the cell decides.
func (k Control[K]) Now() policy.Instant { return k.c.now() }

// Shut makes the cell answer every call as for an unavailable table, as soon as
// the keys that it knows are gone from the table as well. Calls of Wait end. To be
// called once.
func (k Control[K]) Shut() {
	k.c.closed.Store(true)
	close(k.c.done)
}
