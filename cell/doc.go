// Package cell is a part of package engine that may change in any release: it answers
// for one key, by its one word, now.
//
// A [Cell] finds the key's entry in the table, lets the policy decide by its word, and
// advances the word by compare-and-swap. For a key that the table knows there is no
// lock, no message and no allocation. A refused call does not even write, so a flood of
// refused calls scales with the processors. A key that the table does not know is landed
// in the table's nursery and taken from at once. The writer is told to file it, and no
// call waits for that.
//
// Package engine is the face: it documents every verb where users read it, and composes
// calls on several keys. The comments here are contracts between the two.
//
// Start reading at [Cell.Choke] in cell.go, which has the known key. Then take.go has the
// loop that raises a word, offer.go a take that is prepared first, giveback.go what lowers
// a word, open.go the new key, setpolicy.go and changelimit.go a change of the limit of
// all keys and of one, and line.go the calls that wait in line.
//
// The cell holds only a view of the table. It does not know what owns the table, nor
// what restarts the owner.
package cell
