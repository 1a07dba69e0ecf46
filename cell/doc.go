// Package cell answers callers: may this key act now?
//
// A [Cell] finds the key's entry in the table, lets the policy judge its word,
// and advances the word by compare-and-swap. For a key that the table knows that
// is all: no lock, no message, no allocation, and for a refused call no write
// either, so that a flood of refused calls scales with the processors. A key
// that it does not know is landed in the table's nursery and taken from at
// once; the writer is told to file it, and nobody waits for that.
//
// The other verbs rest on the same swap: ask.go says what a call can ask of a key,
// reserve.go how a take is undone, line.go how those who wait stand in line, claims.go
// how several keys are taken from at once, change.go how the limit of all is replaced.
//
// The cell holds only a view of the table. It does not know who owns the table,
// nor who restarts the owner. Start reading at [Cell.Choke].
package cell
