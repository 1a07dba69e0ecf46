// Package table is a part of package engine that may change in any release: it holds
// the keys, for each its word, and an order in which idle keys leave.
//
// It has one owner. [Table] has the methods that change the set of keys, and only one
// goroutine, the writer, may call them. All other code holds a [View], which can look
// a key up, advance its word, and land a new key in the nursery for the writer to
// file. Package table decides neither which calls are admitted (package policy does)
// nor when to sweep (package janitor does). It reads no clock and starts no
// goroutine.
//
// # Where a key's entry can be
//
// An [Entry] is one key and its word. It passes through these stages, and never goes
// back:
//
//	tentative  in the nursery, put there by a caller that has not yet checked
//	           that the key has no other entry
//	landed     in the nursery, its word in use
//	filed      in the map and in the index
//	dead       its word is the tombstone, or says that it has moved: another entry
//	           has taken its place; it is out of all of these, or soon will be
//
// Everything rests on one invariant: at any moment at most one entry of a key is
// landed or filed. Two of them would be two buckets, and the key could take from
// both. The argument:
//
//  1. An entry reaches the map only from its slot in the nursery, and all
//     entries of a key share one slot. The writer puts it into the map first and
//     takes it out of the slot last, so it can always be found in one of the two.
//  2. A slot is a list. A caller pushes a new entry, still tentative, in front of
//     a list in which it saw no live entry of the key. The push fails if the list
//     begins with another entry by then. Only after the push does the caller look
//     for the key in the map. An older entry of the key is one of three: it was in
//     the list, and seen; or it was pushed and has left the list again, and was in
//     the map before it left, so that this second look finds it; or it is dead.
//     While the new entry is in the list no other entry of its key is pushed. So
//     if the second look finds no live entry, there is none, and none can come:
//     the word may change from tentative to a state.
//  3. If the second look does find one, the tentative entry is marked dead and
//     the filed one is used.
//  4. Both changes are compare-and-swaps from the tentative word. So a goroutine
//     that meets a tentative entry in its slot, another caller or the writer,
//     may take the second look itself instead of waiting for the caller that
//     placed it. A swap that succeeds was right by (2) or (3), whenever its
//     goroutine looked.
//  5. An entry leaves the map only after the writer has swapped its word to the
//     tombstone, from a word that it has judged. A caller that advanced the word
//     in between makes that swap fail, and the entry stays. A caller that comes
//     after it meets the tombstone, and looks the key up again from the start.
//  6. A change of policy replaces the filed entries, one at a time. The writer
//     announces the old entry and its successor in a place that all callers can
//     read, and then swaps the old one's word to moved, from the word that it has
//     translated for the successor. That swap ends the old entry and makes the
//     successor the filed one, in one step. A caller that meets a moved entry finds
//     the successor where it was announced, or else in the map: the writer puts it
//     there, in the same slot, before it announces another.
//
// A caller that puts the first entry into an empty slot sends the writer a command to
// file the slot. A caller that lands behind it sends none: the writer goes on until
// the slot is empty, and empties it by a compare-and-swap that fails if another entry
// has landed. The command may be lost or repeated. A lost one leaves the entries in
// their slot, where all callers find them, until the writer adopts the contents of
// the nursery. A repeated one finds them there no more.
//
// # Which policy a word is of
//
// The writer stores new terms, with the other epoch bit, and then goes through the
// nursery and the map. An entry that is landed or filed when the terms are stored is
// replaced before the terms may change again; a tentative one is landed under the
// new terms, or replaced if a caller has landed it under the old ones. Until then
// callers translate its word in place, and swap it for one with the new bit. So an
// entry has words of two successive policies at most, first of the one and then of
// the other, and the bit tells which.
//
// A caller that found the entry before it loaded the terms holds those of one of the
// two policies, or later ones by which the entry is dead. If it holds the first ones,
// a word with their bit is theirs, and its swap fails for ever once the bit has
// flipped: the bit is flipped back in no entry, only in its successor. If it holds
// the second ones, the other bit is that of the policy before. If it meets a word
// with the other bit while it holds the first ones, the terms have changed since, and
// it loads them again. How long it stands still between these steps makes no
// difference, nor how often the policy changes meanwhile.
//
// # When the writer dies
//
// The words are in the map and in the nursery, not with the writer. A new writer
// calls [Table.Recover], which discards the index and rebuilds it from the map, some
// entries at a time between commands. If the last writer died while it replaced an
// entry, Recover puts the successor into the map. A change of policy begins its way
// through the keys again.
package table
