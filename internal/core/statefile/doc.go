// Package statefile writes and reads files of keys and their words, and puts such a file
// in the place of an older one. It knows what a file is, and not what a word means: neither
// policies nor tables nor clocks.
//
// # The format
//
// A file is a magic, a version and blocks. Integers are little endian, lengths and counts
// within blocks are unsigned varints of the shortest form.
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
// The header's flags are 0. 1 means that the file has hashes in place of keys, followed by
// their secret: such a file was written before the first release, and is refused.
//
// The header's limit has number 0. Each further text has the next number. 16 limits are
// known at a time: number 16 takes the place of number 0, and so on. So a program that
// reads a file keeps one block and 16 limits in memory, whatever it is given.
//
// A checksum is the CRC-32C of everything before it in the file, except other checksums. So
// a block that is missing, repeated, out of its order or of another file does not match. A
// block holds up to 64 KiB. One that holds a single entry may be as long as the longest key
// makes it.
//
// A file that ends early has no end block, and one that goes on behind the end block is
// refused. A program that reads a file may rely on none of it before it has read all of it:
// see [Reader.Next].
//
// Start reading at [Writer] and [Reader]; replace.go and lock.go are about the file itself.
package statefile
