package statefile

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/ral-limiter/ral/policy"
)

// Writer writes a file, for one goroutine: the header at once, entries in blocks of up to 64 KiB,
// and the end in Close. Later calls repeat an error of the io.Writer, and the file is void.
type Writer struct {
	w io.Writer
	// sum is the sum of all bytes written, except sums.
	sum uint32
	// block is the next block: room for its head, then payload.
	block  []byte
	limits limits
	// count counts the keys written.
	count uint64
	// err is the error of w, or says that the Writer is closed.
	err error
}

// NewWriter writes the header of a file to w. NewWriter fails with ErrUnfit if the header does not
// fit.
func NewWriter(w io.Writer, header Header) (*Writer, error) {
	if err := header.check(); err != nil {
		return nil, fmt.Errorf("state file: header: %w: %w", ErrUnfit, err)
	}
	to := &Writer{w: w, block: make([]byte, blockHead, blockHead+blockSize+sumSize)}
	start := binary.LittleEndian.AppendUint32([]byte(magic), Version)
	to.sum = crc32.Checksum(start, castagnoli)
	if _, err := w.Write(start); err != nil {
		return nil, fmt.Errorf("state file: %w", err)
	}
	to.block = header.append(to.block)
	to.limits.define(header.Limit)
	if err := to.flush(headerBlock); err != nil {
		return nil, err
	}
	return to, nil
}

// SetLimit sets the limit of the next words. SetLimit fails with ErrUnfit for a text longer than
// MaxText.
func (w *Writer) SetLimit(text string) error {
	switch {
	case w.err != nil:
		return w.err
	case len(text) > MaxText:
		return fmt.Errorf("state file: %w: a limit is a text of %d bytes, want at most %d", ErrUnfit, len(text), MaxText)
	case text == w.limits.texts[w.limits.current]:
		return nil
	}
	if err := w.reserve(len(text)); err != nil {
		return err
	}
	if number, known := w.limits.find(text); known {
		w.limits.current = number
		w.block = binary.AppendUvarint(w.block, uint64(number)<<2|limitAgainEntry)
		return nil
	}
	w.limits.define(text)
	w.block = append(binary.AppendUvarint(w.block, uint64(len(text))<<2|limitEntry), text...)
	return nil
}

// Add adds a key, not checked for repetition, and its word. flags is 0 or ForeignTurn. Add fails
// with ErrUnfit for a key longer than MaxKey, a word above policy.MaxWord, or another flag. The key
// may be changed after the call.
func (w *Writer) Add(key []byte, word uint64, flags uint8) error {
	switch {
	case w.err != nil:
		return w.err
	case len(key) > MaxKey:
		return fmt.Errorf("state file: %w: a key has %d bytes, want at most %d", ErrUnfit, len(key), MaxKey)
	case word > policy.MaxWord:
		return fmt.Errorf("state file: %w: a word is %d, want at most %d", ErrUnfit, word, uint64(policy.MaxWord))
	case flags&^ForeignTurn != 0:
		return fmt.Errorf("state file: %w: flags are %#x, want 0 or %#x", ErrUnfit, flags, ForeignTurn)
	}
	if err := w.reserve(len(key)); err != nil {
		return err
	}
	kind := uint64(plainEntry)
	if flags != 0 {
		kind = flaggedEntry
	}
	w.block = binary.AppendUvarint(w.block, uint64(len(key))<<2|kind)
	if flags != 0 {
		w.block = append(w.block, flags)
	}
	w.block = binary.LittleEndian.AppendUint64(append(w.block, key...), word)
	w.count++
	return nil
}

// reserve writes the block if an entry with n bytes of key or text could make it too long.
func (w *Writer) reserve(n int) error {
	if len(w.block) > blockHead && len(w.block)-blockHead+n+entryExtra > blockSize {
		return w.flush(entriesBlock)
	}
	return nil
}

// Close ends the file, not the io.Writer. last, 0 or more, is the latest possible instant of words.
func (w *Writer) Close(last policy.Instant) error {
	if w.err != nil {
		return w.err
	}
	if err := checkInstant(last); err != nil {
		return fmt.Errorf("state file: %w: %w", ErrUnfit, err)
	}
	if len(w.block) > blockHead {
		if err := w.flush(entriesBlock); err != nil {
			return err
		}
	}
	w.block = binary.LittleEndian.AppendUint64(w.block, w.count)
	w.block = binary.LittleEndian.AppendUint64(w.block, uint64(last))
	if err := w.flush(endBlock); err != nil {
		return err
	}
	w.err = fmt.Errorf("state file: the file was closed")
	return nil
}

// flush writes the block and begins the next.
func (w *Writer) flush(kind byte) error {
	w.block[0] = kind
	binary.LittleEndian.PutUint32(w.block[1:], uint32(len(w.block)-blockHead))
	w.sum = crc32.Update(w.sum, castagnoli, w.block)
	w.block = binary.LittleEndian.AppendUint32(w.block, w.sum)
	if _, err := w.w.Write(w.block); err != nil {
		w.err = fmt.Errorf("state file: %w", err)
		return w.err
	}
	if cap(w.block) > 2*blockSize {
		// A long key has made the block large.
		w.block = make([]byte, 0, blockHead+blockSize+sumSize)
	}
	w.block = w.block[:blockHead]
	return nil
}
