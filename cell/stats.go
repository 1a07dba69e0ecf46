package cell

// Stats counts a cell's answers since it was made. Each call is counted once,
// whatever it asked for; looks are not counted.
type Stats struct {
	Admitted    uint64 // calls that were allowed
	Refused     uint64 // calls that were not
	Unavailable uint64 // of both, those answered without the key's word because the writer was not to be had
	Full        uint64 // of both, those answered without the key's word because the table was full
}

// Answers returns the counts. Calls under way may or may not be in them.
func (c *Cell[K]) Answers() Stats {
	s := Stats{Unavailable: c.unavailable.Load(), Full: c.full.Load()}
	s.Admitted, s.Refused = c.tally.sum()
	return s
}

// Shut makes the cell answer every call as for an unavailable table, once its
// owner has emptied the table. The engine calls it when it closes.
func (c *Cell[K]) Shut() { c.closed.Store(true) }
