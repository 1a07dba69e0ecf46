// Package table is a part of package engine that may change in any release. It holds the keys, a
// word for each, and the order in which idle keys leave.
//
// [Table] has the methods that change the set of keys. Only one goroutine, the writer, may call
// them. All other code holds a [View], which looks up a key, advances its word, and lands a new key
// in the nursery for the writer to file. Package policy decides which calls are admitted, and
// package janitor when to sweep. Package table reads no clock and starts no goroutine.
//
// # Where a key's entry can be
//
// An [Entry] is one key and its word. An entry passes through these stages, and never goes back:
//
//	tentative  in the nursery, by a caller that has not yet checked that the key
//	           has no other entry
//	landed     in the nursery, its word in use
//	filed      in the map and in the index
//	dead       its word is the tombstone, or says that another entry has taken its
//	           place; it is out of all of these, or soon will be
//
// Invariant: at any moment at most one entry of a key is landed or filed. Two would be two buckets,
// and the key could take from both. The argument:
//
//  1. An entry reaches the map only from its slot in the nursery, and all entries of a key share
//     one slot. The writer puts it into the map first and takes it out of the slot last. So the entry is always in
//     the slot or in the map.
//  2. A slot is a list. A caller pushes a new, tentative entry in front of a list in which it saw
//     no live entry of the key; the list's first node has a bit for each hash behind it, so that
//     most callers need not look at the others. The push fails if the list begins with another
//     entry by then. After the push the caller looks for the key in the map. An older entry of the
//     key was in the list, and seen; or had left the list, and was in the map before that, so that this second look
//     finds it; or is dead. While the new entry is in the list no other entry of its key is pushed. So if the second
//     look finds no live entry, there is none, and none can come: the word may change from tentative to a state.
//  3. If the second look finds a live entry, the tentative entry is marked dead and the filed entry
//     is used.
//  4. Both changes are compare-and-swaps from the tentative word. So another caller or the writer,
//     on meeting a tentative entry in its slot, may take the second look itself instead of waiting.
//     A swap that succeeds was right by (2) or (3), whenever its goroutine looked.
//  5. An entry leaves the map only after the writer has swapped its word to the tombstone, from a
//     word that it has judged. If a caller advanced the word in between, the swap fails and the
//     entry stays. A caller that comes later meets the tombstone and looks the key up again.
//  6. A change of policy replaces the filed entries, one at a time. The writer announces the old
//     entry and its successor where all callers can read them. Then it swaps the old word to moved,
//     from the word that it has translated for the successor. That swap ends the old entry and
//     files the successor in one step. A caller that meets a moved entry finds the successor
//     announced, or else in the map: the writer puts the successor there, in the same slot, before announcing
//     another.
//
// A caller that puts the first entry into an empty slot sends the writer a command to file the
// slot. A caller that lands behind it sends none: the writer goes on until the slot is empty. The
// writer empties the slot by a compare-and-swap, which fails if another entry has landed. The
// command may be lost or repeated. If the command is lost, callers find the entries in their slot
// until the writer adopts the contents of the nursery. If the command is repeated, the entries are
// gone from there.
//
// # Which policy a word is of
//
// The writer stores new terms, with the other epoch bit, and then goes through the nursery and the
// map. An entry that is landed or filed when the terms are stored is replaced before the terms may
// change again. A tentative entry is landed under the new terms, or replaced if a caller has landed
// it under the old terms. Until then callers translate its word in place, and swap it for a word
// with the new bit. So the words of an entry are of at most two successive policies, first the
// older and then the newer, and the bit tells which.
//
// A caller that found the entry before it loaded the terms holds the terms of either of these
// policies, or later terms by which the entry is dead. Suppose it holds the older terms. A word
// with their bit is theirs. Once the bit has flipped, the caller's swap fails for ever: only the
// successor's bit flips back. A word with the other bit means that the terms have changed since,
// and the caller loads them again. If the caller holds the newer terms, the other bit is that of
// the policy before. The caller may stall between these steps for any time, and the policy may
// change any number of times meanwhile.
//
// # When the writer dies
//
// The words are in the map and in the nursery, not with the writer. A new writer calls
// [Table.Recover], which discards the index and rebuilds it from the map, some entries at a time
// between commands. If the last writer died while replacing an entry, Recover puts the successor
// into the map. A change of policy begins its way through the keys again.
package table
