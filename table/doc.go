// Package table holds the keys: for each a word, and an order in which idle keys
// leave.
//
// It has one owner. [Table] has the methods that change which keys are there,
// and only one goroutine, the writer, may call them. Everybody else holds a
// [View], which can look a key up, advance its word, and land a new key in the
// nursery for the writer to file. Package table decides neither who is admitted
// (package policy does) nor when to sweep (package janitor does); it reads no
// clock and starts no goroutine.
//
// # Where a key's entry can be
//
// An [Entry] is one key and its word. It lives through these stages, and never
// goes back:
//
//	tentative  in the nursery, put there by a caller who has not yet made sure
//	           that the key has no other entry
//	landed     in the nursery, its word in use
//	filed      in the map and in the index
//	dead       its word is the tombstone; it is, or soon will be, nowhere
//
// What everything rests on is this: at any moment at most one entry of a key is
// landed or filed. Two of them would be two buckets, and the key could take from
// both. The argument:
//
//  1. An entry reaches the map only from its slot in the nursery, and all
//     entries of a key share one slot. The writer puts it into the map first and
//     takes it out of the slot last, so it can always be found in one of the two.
//  2. A slot is a list. A caller pushes a new entry, still tentative, in front of
//     a list in which he saw no live entry of the key, and the push fails if the
//     list begins with another entry by then. Only then he looks for the key in
//     the map. An older entry of the key was in the list, and seen; or it was
//     pushed and has left the list again, and was in the map before it left, so
//     that this second look finds it; or it is dead.
//     While the new entry is in the list nobody else pushes one of its key. So
//     if the second look finds no live entry, there is none, and none can come:
//     the word may change from tentative to a state.
//  3. If the second look does find one, the tentative entry is marked dead and
//     the filed one is used.
//  4. Both changes are compare-and-swaps from the tentative word, so anybody who
//     meets a tentative entry in its slot, another caller or the writer, may
//     take the second look himself instead of waiting for the caller who placed
//     it. Whoever's swap succeeds had a right to it by (2) or (3), at whatever
//     time he looked.
//  5. An entry leaves the map only after the writer has swapped its word to the
//     tombstone, from a word that it has judged. A caller who advanced the word
//     in between makes that swap fail, and the entry stays; a caller who comes
//     after it meets the tombstone, and looks the key up again from the start.
//
// Who puts the first entry into an empty slot sends the writer a command to file
// what is there, and whoever lands behind it sends none: the writer goes on until
// the slot is empty, which by the compare-and-swap that empties it nobody can miss.
// The command may be lost or repeated. A lost one leaves the entries in their slot,
// where all callers find them, until the writer adopts what it finds in the nursery;
// a repeated one finds them there no more.
//
// # When the writer dies
//
// The words are in the map and in the nursery, not with the writer. Its
// successor calls [Table.Recover], which throws the index away and builds it
// again from the map, some entries at a time between commands.
package table
