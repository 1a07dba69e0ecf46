// Package cell is a part of package engine that may change in any release: it decides a call on one
// key at once. A key's state is one word of 64 bits, and the word is all that decides. Package
// engine documents every verb for users, and composes calls on several keys. The comments here are
// contracts between the two.
//
// A [Cell] finds the key's entry in the table, lets the policy decide by its word, and advances the
// word by compare-and-swap. A known key needs no lock, no message and no allocation. A refused call
// does not even write, so a flood of refusals scales with the processors. A new key is landed in
// the table's nursery and taken from at once. The writer is told to file it, and no call waits for
// that.
//
// Start reading at [Cell.Choke] in cell.go, for known keys. Then take.go raises a word, offer.go
// prepares a take, giveback.go lowers a word, and open.go opens a key. setpolicy.go changes the
// limit of all keys and changelimit.go of one key. line.go has the calls that wait in line.
// block.go refuses and blocks keys, and refused.go samples the refused keys. look.go answers
// without taking.
package cell
