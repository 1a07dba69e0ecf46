package statefile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Version is the format's version, which a Writer writes and a Reader requires.
const Version = 1

const (
	// MaxKey is the length of the longest key, in bytes.
	MaxKey = 1 << 20
	// MaxText is the length of the longest limit or codec name, in bytes.
	MaxText = 4 << 10
)

// ForeignTurn flags a key that was promised a turn by another limit. Other flags are reserved.
const ForeignTurn uint8 = 1

var (
	// ErrCorrupt reports a damaged or foreign file. The text has the byte and the fault.
	ErrCorrupt = errors.New("the file is damaged")
	// ErrVersion reports a file of another version, or with hashes in place of keys.
	ErrVersion = errors.New("unknown version of the file")
	// ErrUnfit reports that the format has no room: a key longer than MaxKey, a word above
	// policy.MaxWord, a reserved flag. Nothing was written, and the Writer goes on.
	ErrUnfit = errors.New("does not fit the file")
)

// Header describes a whole file.
type Header struct {
	// Epoch is the wall time of instant 0. A Reader's is in UTC.
	Epoch time.Time
	// Limit is the text of the limit that made the words; see [Writer.SetLimit].
	Limit string
	// Codec is the name of the keys' codec.
	Codec string
}

// Record is a key and its state.
type Record struct {
	// Key is valid until the next call of Next.
	Key []byte
	// Word is at most policy.MaxWord.
	Word uint64
	// Flags is 0 or ForeignTurn.
	Flags uint8
	// Limit is the text of the limit that made the word.
	Limit string
}

const magic = "\x89RAL\r\n\x1a\n"

// hashedKeys flags a header of a file with hashes in place of keys.
const hashedKeys = 1

const (
	headerBlock byte = iota + 1
	entriesBlock
	endBlock
)

const (
	blockHead = 1 + 4
	sumSize   = 4
	// blockSize bounds the payload of a block with several entries.
	blockSize = 64 << 10
	// entryExtra bounds an entry's bytes beside its key or text.
	entryExtra = 4 + 1 + 8
	headerSize = 8 + 4 + 2*binary.MaxVarintLen16 + 2*MaxText + 1 + 1
	endSize    = 8 + 8
)

func maxPayload(kind byte) int {
	switch kind {
	case headerBlock:
		return headerSize
	case entriesBlock:
		return max(blockSize, entryExtra+MaxKey)
	case endBlock:
		return endSize
	}
	return 0
}

// The kinds of entries, in the two lowest bits of the head.
const (
	plainEntry = iota
	flaggedEntry
	limitEntry
	limitAgainEntry
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// limits has the limits with a number, the same for writer and reader.
type limits struct {
	texts   [16]string
	defined int
	// current is an index into texts.
	current int
}

// define makes text the current limit, with the next number.
func (l *limits) define(text string) {
	l.current = l.defined % len(l.texts)
	l.texts[l.current] = text
	l.defined++
}

func (l *limits) find(text string) (number int, known bool) {
	for i := range l.count() {
		if l.texts[i] == text {
			return i, true
		}
	}
	return 0, false
}

func (l *limits) count() int { return min(l.defined, len(l.texts)) }

func (h *Header) check() error {
	switch {
	case len(h.Limit) > MaxText:
		return fmt.Errorf("the limit is a text of %d bytes, want at most %d", len(h.Limit), MaxText)
	case len(h.Codec) > MaxText:
		return fmt.Errorf("the codec's name has %d bytes, want at most %d", len(h.Codec), MaxText)
	case h.Epoch.Year() < 1 || h.Epoch.Year() > 9999:
		return fmt.Errorf("the epoch is in the year %d, want 1 to 9999", h.Epoch.Year())
	}
	return nil
}

func (h *Header) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Epoch.Unix()))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.Epoch.Nanosecond()))
	dst = appendText(dst, h.Limit)
	dst = appendText(dst, h.Codec)
	return append(dst, 0, 0)
}

func appendText(dst []byte, text string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

func checkInstant(last policy.Instant) error {
	if last < 0 {
		return fmt.Errorf("the last instant is %d, want 0 or more", last)
	}
	return nil
}
