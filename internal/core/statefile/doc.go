// Package statefile writes and reads files of keys and their words, and replaces an older file by a
// new one. The package does not interpret words.
//
// # The format
//
// A file is a magic, a version and blocks. Integers are little endian; lengths and counts within
// blocks are unsigned varints of the shortest form.
//
//	file     = magic version block(header) block(entries)... block(end)
//	magic    = 0x89 "RAL" CR LF 0x1a LF
//	version  = uint32
//	block    = kind:byte  length:uint32  payload  checksum:uint32
//	header   = seconds:int64  nanoseconds:uint32  limit:text  codec:text  flags:byte  0:byte
//	text     = length:varint  bytes
//	entries  = entry...
//	entry    = head:varint  the rest, by the two lowest bits of head; n is head without them
//	           0: key:n bytes  word:uint64
//	           1: flags:byte, not 0  key:n bytes  word:uint64
//	           2: limit:n bytes, of the entries from here on
//	           3: the limit of the entries from here on is number n of those known
//	end      = entries of a key:uint64  last instant:int64
//
// The header's flags are 0. A file with 1, hashed keys and their secret, predates the first release
// and is refused. The header's limit has number 0, and each further text the next number. 16 limits
// are known at a time: number 16 replaces number 0, and so on. So a reader keeps one block and 16
// limits in memory.
//
// A checksum is the CRC-32C of everything before it in the file, except other checksums. The
// checksum reveals a missing, repeated, misplaced or foreign block. A block has up to 64 KiB, or
// more for a single long key. A file that ends early has no end block; bytes behind the end block
// are refused. A program must not rely on a file before it has read all of it: see [Reader.Next].
//
// Start reading at [Writer] and [Reader]; replace.go and lock.go handle the file itself.
package statefile
