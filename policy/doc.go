// Package policy says what a key's word means.
//
// All that Ral remembers of a key is one uint64, its word. A [Policy] is a pure
// function on that word: given the word, the time and a request, it returns a
// [Decision] and the word that records it. Where the word is kept, and how two
// callers are kept from writing it at once, is not known here: package cell advances
// it by compare-and-swap.
//
// Nothing in this package reads a clock, takes a lock or allocates on a
// decision. Start reading at [Policy]; [Funnel] is the algorithm to begin with. [Parse]
// reads a limit from a text, such as "funnel 100, 10/s".
package policy
