package statefile_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/statefile"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

// The format again, by doc.go.
const magic = "\x89RAL\r\n\x1a\n"

const start = magic + "\x01\x00\x00\x00"

type block struct {
	kind    byte
	payload []byte
}

// sealed returns a file of blocks with right checksums.
func sealed(blocks ...block) []byte {
	table := crc32.MakeTable(crc32.Castagnoli)
	file, sum := []byte(start), crc32.Checksum([]byte(start), table)
	for _, b := range blocks {
		head := binary.LittleEndian.AppendUint32([]byte{b.kind}, uint32(len(b.payload)))
		sum = crc32.Update(crc32.Update(sum, table, head), table, b.payload)
		file = append(append(file, head...), b.payload...)
		file = binary.LittleEndian.AppendUint32(file, sum)
	}
	return file
}

func blocksOf(file []byte) (blocks []block) {
	for file = file[len(start):]; len(file) > 0; {
		n := 5 + int(binary.LittleEndian.Uint32(file[1:]))
		blocks = append(blocks, block{file[0], file[5:n]})
		file = file[n+4:]
	}
	return blocks
}

func end(count uint64, last int64) block {
	return block{3, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, count), uint64(last))}
}

// smallHeader has limit "l" and codec "c".
var smallHeader = block{1, []byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01l\x01c\x00\x00")}

func refused(t *testing.T, file []byte, says ...string) {
	t.Helper()
	_, err := read(bytes.NewReader(file))
	if assert.ErrorIs(t, err, statefile.ErrCorrupt) {
		for _, part := range append(says, "at byte ") {
			assert.ErrorContains(t, err, part)
		}
	}
}

// several returns a file with three blocks of entries.
func several(t testing.TB) (content, []byte) {
	c := content{Header: statefile.Header{Epoch: epoch, Limit: "funnel 100, 10/s", Codec: "string"}, Last: 1 << 40}
	for i := range 8 {
		c.Entries = append(c.Entries, entry{fmt.Sprintf("%d%s", i, strings.Repeat("x", statefile.BlockSize/3)), uint64(i), 0, c.Header.Limit})
	}
	file := write(t, c)
	require.Len(t, blocksOf(file), 6)
	return c, file
}

func TestFormatIsAsDescribed(t *testing.T) {
	c, file := several(t)
	assert.Equal(t, file, sealed(blocksOf(file)...))
	small := content{Header: statefile.Header{Limit: "l", Codec: "c"}, Last: 9, Entries: []entry{
		{"k", 5, 0, "l"}, {"f", 6, 1, "l"}, {"m", 7, 0, "other"}, {"n", 8, 0, "l"},
	}}
	small.Header.Epoch = time.Unix(0, 0).UTC()
	assert.Equal(t, sealed(smallHeader, block{2, []byte("" +
		"\x04k\x05\x00\x00\x00\x00\x00\x00\x00" +
		"\x05\x01f\x06\x00\x00\x00\x00\x00\x00\x00" +
		"\x16other" + "\x04m\x07\x00\x00\x00\x00\x00\x00\x00" +
		"\x03" + "\x04n\x08\x00\x00\x00\x00\x00\x00\x00")}, end(4, 9)), write(t, small))
	assert.Equal(t, c, must.Get(read(bytes.NewReader(file))))
}

func TestEveryTruncationIsNoticed(t *testing.T) {
	_, file := several(t)
	small := sealed(smallHeader, block{2, []byte("\x04k\x05\x00\x00\x00\x00\x00\x00\x00")}, end(1, 9))
	for n := range small {
		refused(t, small[:n], "ends within")
	}
	for n := 0; n < len(file); n += 997 {
		refused(t, file[:n], "ends within")
	}
}

// A checksum also covers everything before its block.
func TestEveryOtherOrderOfBlocksIsNoticed(t *testing.T) {
	c, file := several(t)
	blocks, rest := [][]byte{}, file[len(start):]
	for _, b := range blocksOf(file) {
		n := 5 + len(b.payload) + 4
		blocks, rest = append(blocks, rest[:n]), rest[n:]
	}
	for _, order := range [][]int{{0, 2, 1, 3, 4, 5}, {0, 1, 1, 2, 3, 4, 5}, {0, 1, 3, 4, 5}, {0, 5}, {1, 2, 3, 4, 5}, {0, 0, 1, 2, 3, 4, 5}, {0, 1, 2, 5, 3, 4}} {
		made := []byte(start)
		for _, i := range order {
			made = append(made, blocks[i]...)
		}
		refused(t, made)
	}
	// A block of another file with the same header and place.
	c.Entries[1].Word++
	other := write(t, c)
	at := len(start) + len(blocks[0]) + len(blocks[1])
	refused(t, append(append([]byte(nil), other[:at]...), file[at:]...), "block 2", "its checksum is")
}

func TestEveryFlippedBitIsNoticed(t *testing.T) {
	file := sealed(smallHeader, block{2, []byte("\x04k\x05\x00\x00\x00\x00\x00\x00\x00\x16other")}, end(1, 9))
	must.Get(read(bytes.NewReader(file)))
	for i := range file {
		for bit := range 8 {
			file[i] ^= 1 << bit
			_, err := read(bytes.NewReader(file))
			if i >= len(magic) && i < len(start) {
				assert.ErrorIs(t, err, statefile.ErrVersion, "byte %d bit %d", i, bit)
			} else {
				assert.ErrorIs(t, err, statefile.ErrCorrupt, "byte %d bit %d", i, bit)
			}
			file[i] ^= 1 << bit
		}
	}
	_, large := several(t)
	for i := 0; i < len(large); i += 1009 {
		large[i] ^= 0x10
		_, err := read(bytes.NewReader(large))
		assert.Error(t, err, "byte %d", i)
		large[i] ^= 0x10
	}
}

// The checksums are right.
func TestBytesOfNoWriterAreRefused(t *testing.T) {
	header := func(payload string) block { return block{1, []byte(payload)} }
	entries := func(payload string) block { return block{2, []byte(payload)} }
	const epoch = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	const word = "\x05\x00\x00\x00\x00\x00\x00\x00"
	key := entries("\x04k" + word)
	for _, c := range []struct {
		name, says string
		file       []byte
	}{
		{"another file", "not a state file", []byte("name: ral\nlimit: funnel 100, 10/s\n")},
		{"too few keys", "the file has 1 keys, want 2", sealed(smallHeader, key, end(2, 9))},
		{"more behind", "more behind the end", append(sealed(smallHeader, key, end(1, 9)), 0)},
		{"an instant below 0", "the last instant is -1", sealed(smallHeader, key, end(1, -1))},
		{"a short end", "the end has 15 bytes", sealed(smallHeader, key, block{3, make([]byte, 15)})},
		{"an empty block", "block 1 is empty", sealed(smallHeader, entries(""), end(0, 9))},
		{"an unknown block", "unknown kind 4", sealed(smallHeader, block{4, nil}, end(0, 9))},
		{"no header", "want 1, the header", sealed(key, end(1, 9))},
		{"a second header", "block 1 is a second header", sealed(smallHeader, smallHeader, end(0, 9))},
		{"half an epoch", "within the epoch", sealed(header(epoch[:11]), end(0, 9))},
		{"nanoseconds", "1000000000 nanoseconds", sealed(header(epoch[:8]+"\x00\xca\x9a\x3b\x01l\x01c\x00\x00"), end(0, 9))},
		{"a far epoch", "in the year", sealed(header("\xff\xff\xff\xff\xff\xff\xff\x7f"+epoch[8:]+"\x01l\x01c\x00\x00"), end(0, 9))},
		{"a cut limit", "limit of 3 bytes", sealed(header(epoch+"\x03l"), end(0, 9))},
		{"a long limit", "limit of 4097 bytes", sealed(header(epoch+"\x81\x20"+strings.Repeat("l", 4097)), end(0, 9))},
		{"a long codec", "codec of 4097 bytes", sealed(header(epoch+"\x01l\x81\x20"+strings.Repeat("c", 4097)), end(0, 9))},
		{"unknown flags", `ends with "\x02\x00"`, sealed(header(epoch+"\x01l\x01c\x02\x00"), end(0, 9))},
		{"a secret without hashes", `ends with "\x00\x01s"`, sealed(header(epoch+"\x01l\x01c\x00\x01s"), end(0, 9))},
		{"a long header", "want two zero bytes", sealed(header(string(smallHeader.payload)+"xx"), end(0, 9))},
		{"a long varint", "shortest form", sealed(smallHeader, entries("\x84\x00k"+word), end(1, 9))},
		{"an endless varint", "shortest form", sealed(smallHeader, entries(strings.Repeat("\xff", 11)), end(1, 9))},
		{"a cut key", "key of 2 bytes", sealed(smallHeader, entries("\x08k"), end(1, 9))},
		{"a long key", "key of 1048577 bytes", sealed(smallHeader, entries("\x84\x80\x80\x02k"+word), end(1, 9))},
		{"a cut word", "word of 8 bytes, but its block ends after 7", sealed(smallHeader, entries("\x04k"+word[1:]), end(1, 9))},
		{"a large word", "a word is 9223372036854775792", sealed(smallHeader, entries("\x04k\xf0\xff\xff\xff\xff\xff\xff\x7f"), end(1, 9))},
		{"flags of 0", "flags are 0x0", sealed(smallHeader, entries("\x05\x00k"+word), end(1, 9))},
		{"reserved flags", "flags are 0x3", sealed(smallHeader, entries("\x05\x03k"+word), end(1, 9))},
		{"no entry flags", "flags of 1 bytes", sealed(smallHeader, entries("\x05"), end(1, 9))},
		{"an unknown limit", "limit number 1, want less than 1", sealed(smallHeader, entries("\x07\x04k"+word), end(1, 9))},
		{"a long new limit", "limit of 4097 bytes", sealed(smallHeader, entries("\x86\x80\x01"+strings.Repeat("l", 4097)+"\x04k"+word), end(1, 9))},
		{"a cut new limit", "limit of 5 bytes", sealed(smallHeader, entries("\x16l"), end(1, 9))},
	} {
		t.Run(c.name, func(t *testing.T) { refused(t, c.file, c.says) })
	}
	must.Get(read(bytes.NewReader(sealed(smallHeader, key, end(1, 9)))))
}

func TestOtherVersionsAreNamed(t *testing.T) {
	hashed := must.Get(os.ReadFile(golden("hashed")))
	for says, file := range map[string][]byte{
		"version 2, this program reads version 1": []byte(strings.Replace(start, "\x01", "\x02", 1) + "whatever version 2 is"),
		"hashes in place of keys":                 hashed,
	} {
		_, err := read(bytes.NewReader(file))
		assert.ErrorIs(t, err, statefile.ErrVersion)
		assert.NotErrorIs(t, err, statefile.ErrCorrupt)
		assert.ErrorContains(t, err, says)
	}
}

func TestErrorNamesTheByte(t *testing.T) {
	const word = "\x05\x00\x00\x00\x00\x00\x00\x00"
	before := len(sealed(smallHeader)) + 5
	refused(t, sealed(smallHeader, block{2, []byte("\x04k" + word + "\x05\x02k" + word)}, end(2, 9)), fmt.Sprintf("at byte %d: flags", before+10))
	file := sealed(smallHeader, block{2, []byte("\x04k" + word)}, end(1, 9))
	refused(t, file[:before+3], fmt.Sprintf("at byte %d: the file ends", before+3))
	file[before] ^= 0x40
	refused(t, file, fmt.Sprintf("at byte %d: block 1: its checksum", before-5))
}

// For any claimed lengths.
func TestLengthsAreBoundedBeforeMemoryIs(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, kind := range []byte{1, 2, 3} {
		for _, length := range []uint32{1 << 20, 1<<20 + 13, 1<<20 + 14, 1 << 31, 1<<32 - 1} {
			head := binary.LittleEndian.AppendUint32([]byte{kind}, length)
			refused(t, append(sealed(smallHeader), head...))
			refused(t, append([]byte(start), head...))
		}
	}
	runtime.ReadMemStats(&after)
	// Each of the 30 has a buffer of 64 KiB, and 2 have another for the first part of a block.
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(30*2*statefile.BlockSize))
}

func TestErrorOfTheReaderIsNotDamage(t *testing.T) {
	_, file := several(t)
	broken := errors.New("the disk is broken")
	for _, n := range []int{0, 5, 20, 100, 70_000, len(file)} {
		_, err := read(readers(file[:n], broken))
		assert.ErrorIs(t, err, broken, n)
		assert.NotErrorIs(t, err, statefile.ErrCorrupt, n)
	}
	r := must.Get(statefile.NewReader(readers(file[:70_000], broken)))
	var err error
	for err == nil {
		_, err = r.Next()
	}
	assert.ErrorIs(t, err, broken)
	_, err = r.Next()
	assert.ErrorIs(t, err, broken)
	assert.Zero(t, r.Last())
}

func TestFileIsReadFromAnyReader(t *testing.T) {
	c, file := several(t)
	for _, from := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader} {
		assert.Equal(t, c, must.Get(read(from(bytes.NewReader(file)))))
	}
}

func readers(file []byte, err error) io.Reader {
	return io.MultiReader(bytes.NewReader(file), iotest.ErrReader(err))
}

// check reads a file, and writes and reads a whole file again.
func check(t *testing.T, file []byte) {
	c, err := read(bytes.NewReader(file))
	if err != nil {
		if !errors.Is(err, statefile.ErrCorrupt) && !errors.Is(err, statefile.ErrVersion) {
			t.Fatalf("neither damage nor version: %v", err)
		}
		return
	}
	require.Equal(t, c, must.Get(read(bytes.NewReader(write(t, c)))))
}

func FuzzReader(f *testing.F) {
	for name := range goldens() {
		file := must.Get(os.ReadFile(golden(name)))
		if len(file) < 1000 {
			f.Add(file)
			f.Add(file[:len(file)-1])
		}
	}
	f.Fuzz(check)
}

// Right checksums let damage reach the parser.
func FuzzSealed(f *testing.F) {
	for name := range goldens() {
		file := must.Get(os.ReadFile(golden(name)))
		blocks := blocksOf(file)
		if len(file) < 1000 {
			entries := append(blocks, block{})[1].payload
			f.Add(blocks[0].payload, entries, entries, blocks[len(blocks)-1].payload)
		}
	}
	f.Fuzz(func(t *testing.T, header, first, second, last []byte) {
		check(t, sealed(block{1, header}, block{2, first}, block{2, second}, block{3, last}))
		check(t, sealed(block{1, header}, block{2, first}, block{3, last}))
	})
}
