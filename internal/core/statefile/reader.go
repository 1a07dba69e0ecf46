package statefile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Reader reads a file, a block at a time, for one goroutine. Later calls repeat an error.
type Reader struct {
	r      *bufio.Reader
	header Header
	// offset is the offset of the next byte of r.
	offset int64
	// sum is the sum of all bytes read, except sums.
	sum uint32
	// blocks counts the blocks read so far.
	blocks int
	limits limits
	// count counts the keys read.
	count uint64
	last  policy.Instant
	err   error

	// block is the payload. rest is the part that was not read yet.
	block []byte
	rest  []byte
	// start is the payload's offset.
	start int64
}

// NewReader reads the header. NewReader fails with ErrCorrupt, ErrVersion or an error of r, and
// reads ahead in r.
func NewReader(r io.Reader) (*Reader, error) {
	from := &Reader{r: bufio.NewReaderSize(r, blockSize)}
	if err := from.readHeader(); err != nil {
		return nil, err
	}
	return from, nil
}

// Header returns the file's header.
func (r *Reader) Header() Header { return r.header }

// Last returns the latest possible instant of words, once Next has returned io.EOF, and 0 before.
func (r *Reader) Last() policy.Instant { return r.last }

// Next returns the next key, and io.EOF once all of the file was read and is whole: its checksums
// and count are right, and nothing follows. Only then are the records a whole file's. Other errors
// are ErrCorrupt and errors of the io.Reader. Next does not notice a repeated key.
func (r *Reader) Next() (Record, error) {
	for r.err == nil {
		if len(r.rest) == 0 {
			r.err = r.readBlock()
			continue
		}
		record, isKey, err := r.entry()
		if err != nil {
			r.err = err
			break
		}
		if isKey {
			r.count++
			return record, nil
		}
	}
	return Record{}, r.err
}

// corrupt returns ErrCorrupt with the byte of the file.
func corrupt(offset int64, format string, args ...any) error {
	return fmt.Errorf("state file: %w: at byte %d: %s", ErrCorrupt, offset, fmt.Sprintf(format, args...))
}

func (r *Reader) fill(into []byte, what string) error {
	n, err := io.ReadFull(r.r, into)
	r.offset += int64(n)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return corrupt(r.offset, "the file ends within %s", what)
	}
	return fmt.Errorf("state file: at byte %d: %w", r.offset, err)
}

func (r *Reader) readHeader() error {
	start := make([]byte, len(magic)+4)
	if err := r.fill(start, "its first bytes, or it is not a state file"); err != nil {
		return err
	}
	if string(start[:len(magic)]) != magic {
		return corrupt(0, "the first bytes are %q, want %q: it is not a state file", start[:len(magic)], magic)
	}
	if v := binary.LittleEndian.Uint32(start[len(magic):]); v != Version {
		return fmt.Errorf("state file: %w: it is of version %d, this program reads version %d", ErrVersion, v, Version)
	}
	r.sum = crc32.Checksum(start, castagnoli)
	kind, err := r.readPayload()
	if err != nil {
		return err
	}
	if kind != headerBlock {
		return corrupt(r.start-blockHead, "a block of kind %d, want %d, the header", kind, headerBlock)
	}
	r.rest = r.block
	if err := r.parseHeader(); err != nil {
		return err
	}
	r.limits.define(r.header.Limit)
	return nil
}

func (r *Reader) parseHeader() error {
	if len(r.rest) < 8+4 {
		return corrupt(r.position(), "the header ends within the epoch")
	}
	seconds, nanoseconds := int64(binary.LittleEndian.Uint64(r.rest)), binary.LittleEndian.Uint32(r.rest[8:])
	if nanoseconds >= 1e9 {
		return corrupt(r.position()+8, "the epoch has %d nanoseconds, want less than a second", nanoseconds)
	}
	r.header.Epoch = time.Unix(seconds, int64(nanoseconds)).UTC()
	r.rest = r.rest[8+4:]
	limit, err := r.text("limit", MaxText)
	if err != nil {
		return err
	}
	codec, err := r.text("codec", MaxText)
	if err != nil {
		return err
	}
	r.header.Limit, r.header.Codec = string(limit), string(codec)
	if len(r.rest) > 0 && r.rest[0] == hashedKeys {
		return fmt.Errorf("state file: %w: it has hashes in place of keys, which this program does not read", ErrVersion)
	}
	if string(r.rest) != "\x00\x00" {
		return corrupt(r.position(), "the header ends with %q, want two zero bytes", r.rest)
	}
	r.rest = nil
	if err := r.header.check(); err != nil {
		return corrupt(r.start, "header: %v", err)
	}
	return nil
}

func (r *Reader) position() int64 { return r.start + int64(len(r.block)-len(r.rest)) }

func (r *Reader) text(what string, most int) ([]byte, error) {
	start := r.position()
	n, err := r.varint(what)
	if err != nil {
		return nil, err
	}
	if n > uint64(most) {
		return nil, corrupt(start, "%s of %d bytes, want at most %d", what, n, most)
	}
	return r.bytes(int(n), what)
}

func (r *Reader) varint(what string) (uint64, error) {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || n > 1 && r.rest[n-1] == 0 {
		return 0, corrupt(r.position(), "%s: not a varint of the shortest form", what)
	}
	r.rest = r.rest[n:]
	return v, nil
}

// bytes reads n bytes of the block, valid until the next block.
func (r *Reader) bytes(n int, what string) ([]byte, error) {
	if n > len(r.rest) {
		return nil, corrupt(r.position(), "%s of %d bytes, but its block ends after %d", what, n, len(r.rest))
	}
	buffer := r.rest[:n:n]
	r.rest = r.rest[n:]
	return buffer, nil
}

// readPayload reads the next block and checks its sum.
func (r *Reader) readPayload() (kind byte, err error) {
	var head [blockHead]byte
	start := r.offset
	if err := r.fill(head[:], fmt.Sprintf("the head of block %d", r.blocks)); err != nil {
		return 0, err
	}
	kind = head[0]
	length := int64(binary.LittleEndian.Uint32(head[1:]))
	most := maxPayload(kind)
	if most == 0 {
		return 0, corrupt(start, "block %d is of unknown kind %d", r.blocks, kind)
	}
	if length > int64(most) {
		return 0, corrupt(start, "block %d has %d bytes, want at most %d", r.blocks, length, most)
	}
	// Memory grows with the bytes that come, not with the claimed length.
	r.start = r.offset
	r.block = r.block[:0]
	for left := int(length); left > 0; {
		n := min(left, blockSize)
		from := len(r.block)
		if cap(r.block)-from < n {
			r.block = append(make([]byte, 0, max(2*cap(r.block), from+n)), r.block...)
		}
		r.block = r.block[:from+n]
		if err := r.fill(r.block[from:], fmt.Sprintf("block %d", r.blocks)); err != nil {
			return 0, err
		}
		left -= n
	}
	r.sum = crc32.Update(crc32.Update(r.sum, castagnoli, head[:]), castagnoli, r.block)
	var sum [sumSize]byte
	if err := r.fill(sum[:], fmt.Sprintf("the checksum of block %d", r.blocks)); err != nil {
		return 0, err
	}
	if stored := binary.LittleEndian.Uint32(sum[:]); stored != r.sum {
		return 0, corrupt(start, "block %d: its checksum is %08x, want %08x", r.blocks, stored, r.sum)
	}
	r.blocks++
	return kind, nil
}

// readBlock reads the next block of entries. After the end block readBlock returns io.EOF.
func (r *Reader) readBlock() error {
	kind, err := r.readPayload()
	if err != nil {
		return err
	}
	r.rest = r.block
	switch kind {
	case entriesBlock:
		if len(r.block) == 0 {
			return corrupt(r.start, "block %d is empty", r.blocks-1)
		}
		return nil
	case endBlock:
		return r.end()
	}
	return corrupt(r.start-blockHead, "block %d is a second header", r.blocks-1)
}

// end checks the end block, and that nothing follows it.
func (r *Reader) end() error {
	if len(r.block) != endSize {
		return corrupt(r.start, "the end has %d bytes, want %d", len(r.block), endSize)
	}
	r.rest = nil
	count, last := binary.LittleEndian.Uint64(r.block), policy.Instant(binary.LittleEndian.Uint64(r.block[8:]))
	if count != r.count {
		return corrupt(r.start, "the file has %d keys, want %d", r.count, count)
	}
	if err := checkInstant(last); err != nil {
		return corrupt(r.start+8, "%v", err)
	}
	switch _, err := r.r.ReadByte(); {
	case err == nil:
		return corrupt(r.offset, "there is more behind the end")
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("state file: at byte %d: %w", r.offset, err)
	}
	r.last = last
	return io.EOF
}

// entry reads an entry of the block. isKey is false for a limit.
func (r *Reader) entry() (record Record, isKey bool, err error) {
	start := r.position()
	head, err := r.varint("entry")
	if err != nil {
		return Record{}, false, err
	}
	kind, n := head&3, head>>2
	switch kind {
	case limitAgainEntry:
		if n >= uint64(r.limits.count()) {
			return Record{}, false, corrupt(start, "limit number %d, want less than %d", n, r.limits.count())
		}
		r.limits.current = int(n)
		return Record{}, false, nil
	case limitEntry:
		if n > MaxText {
			return Record{}, false, corrupt(start, "limit of %d bytes, want at most %d", n, MaxText)
		}
		text, err := r.bytes(int(n), "limit")
		if err != nil {
			return Record{}, false, err
		}
		r.limits.define(string(text))
		return Record{}, false, nil
	}
	if n > MaxKey {
		return Record{}, false, corrupt(start, "key of %d bytes, want at most %d", n, MaxKey)
	}
	if kind == flaggedEntry {
		flags, err := r.bytes(1, "flags")
		if err != nil {
			return Record{}, false, err
		}
		if record.Flags = flags[0]; record.Flags == 0 || record.Flags&^ForeignTurn != 0 {
			return Record{}, false, corrupt(start, "flags are %#x, want %#x", record.Flags, ForeignTurn)
		}
	}
	if record.Key, err = r.bytes(int(n), "key"); err != nil {
		return Record{}, false, err
	}
	word, err := r.bytes(8, "word")
	if err != nil {
		return Record{}, false, err
	}
	if record.Word = binary.LittleEndian.Uint64(word); record.Word > policy.MaxWord {
		return Record{}, false, corrupt(start, "a word is %d, want at most %d", record.Word, uint64(policy.MaxWord))
	}
	record.Limit = r.limits.texts[r.limits.current]
	return record, true, nil
}
