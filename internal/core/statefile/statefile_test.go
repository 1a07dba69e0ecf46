package statefile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ral-limiter/ral/internal/core/statefile"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// entry is a Record with its own key.
type entry struct {
	Key   string
	Word  uint64
	Flags uint8
	Limit string
}

// content is a parsed file.
type content struct {
	Header  statefile.Header
	Entries []entry
	Last    policy.Instant
}

func write(t testing.TB, c content) []byte {
	t.Helper()
	var to bytes.Buffer
	w := must.Get(statefile.NewWriter(&to, c.Header))
	for _, e := range c.Entries {
		require.NoError(t, w.SetLimit(e.Limit))
		require.NoError(t, w.Add([]byte(e.Key), e.Word, e.Flags))
	}
	require.NoError(t, w.Close(c.Last))
	return to.Bytes()
}

func read(from io.Reader) (c content, err error) {
	r, err := statefile.NewReader(from)
	if err != nil {
		return c, err
	}
	c.Header = r.Header()
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			c.Last = r.Last()
			return c, nil
		}
		if err != nil {
			return c, err
		}
		c.Entries = append(c.Entries, entry{string(e.Key), e.Word, e.Flags, e.Limit})
	}
}

var epoch = time.Date(2026, 11, 22, 20, 54, 0, 123456789, time.UTC)

const funnel = "funnel 100, 10/s"

func TestWrittenRepliesAreRead(t *testing.T) {
	header := statefile.Header{Epoch: epoch, Limit: funnel, Codec: "string"}
	many := content{Header: header, Last: policy.Instant(1<<63 - 1)}
	for i := range 20_000 {
		e := entry{fmt.Sprintf("user-%d", i), uint64(i) << 40, uint8(i) & 1, funnel}
		if i%3 == 0 {
			// These are more limits than are known at a time.
			e.Limit = fmt.Sprintf("funnel %d, 10/s", i%40)
		}
		many.Entries = append(many.Entries, e)
	}
	long := content{Header: header, Entries: []entry{
		{"before", 1, 0, funnel},
		{strings.Repeat("k", statefile.MaxKey), 2, 1, funnel},
		{"between", 3, 0, strings.Repeat("l", statefile.MaxText)},
		{strings.Repeat("k", statefile.BlockSize), 4, 0, funnel},
		{"after", 5, 0, funnel},
	}}
	texts := content{Header: statefile.Header{
		Epoch: time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC),
		Limit: strings.Repeat("l", statefile.MaxText), Codec: strings.Repeat("c", statefile.MaxText),
	}}
	for name, c := range map[string]content{
		"many": many, "long": long, "texts": texts,
		"the last second":   {Header: statefile.Header{Epoch: time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)}},
		"no limit, no word": {Header: header, Entries: []entry{{"bob", 7, 0, ""}, {"carol", 0, 0, funnel}}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c, must.Get(read(bytes.NewReader(write(t, c)))))
		})
	}
}

// The zone is not kept.
func TestEpochIsAnInstant(t *testing.T) {
	c := content{Header: statefile.Header{Epoch: epoch.In(time.FixedZone("", 3600))}}
	assert.Equal(t, epoch, must.Get(read(bytes.NewReader(write(t, c)))).Header.Epoch)
}

func TestMisfitsAreRefused(t *testing.T) {
	var to bytes.Buffer
	for _, h := range []statefile.Header{
		{Limit: strings.Repeat("l", statefile.MaxText+1)},
		{Codec: strings.Repeat("c", statefile.MaxText+1)},
		{Epoch: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
		{Epoch: time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		_, err := statefile.NewWriter(&to, h)
		assert.ErrorIs(t, err, statefile.ErrUnfit)
	}
	assert.Zero(t, to.Len())

	w := must.Get(statefile.NewWriter(&to, statefile.Header{Epoch: epoch}))
	assert.ErrorIs(t, w.Add(make([]byte, statefile.MaxKey+1), 1, 0), statefile.ErrUnfit)
	assert.ErrorIs(t, w.Add(nil, policy.MaxWord+1, 0), statefile.ErrUnfit)
	assert.ErrorIs(t, w.Add(nil, 1, 2), statefile.ErrUnfit)
	assert.ErrorIs(t, w.SetLimit(strings.Repeat("l", statefile.MaxText+1)), statefile.ErrUnfit)
	assert.ErrorIs(t, w.Close(-1), statefile.ErrUnfit)
	require.NoError(t, w.Add([]byte("k"), 1, 0))
	require.NoError(t, w.Close(1))
	assert.Equal(t, []entry{{"k", 1, 0, ""}}, must.Get(read(&to)).Entries)
}

// full is a disk with limited room.
type full struct{ room int }

var errFull = errors.New("the disk is full")

func (f *full) Write(p []byte) (int, error) {
	n := min(len(p), f.room)
	f.room -= n
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

func TestErrorOfTheWriterStays(t *testing.T) {
	for _, room := range []int{0, 11, 30} {
		_, err := statefile.NewWriter(&full{room}, statefile.Header{Epoch: epoch, Limit: funnel})
		assert.ErrorIs(t, err, errFull, room)
	}
	for room, fill := range map[int]func(w *statefile.Writer) error{
		1000: func(w *statefile.Writer) (err error) {
			for range 2 * statefile.BlockSize {
				if err = w.Add([]byte("k"), 1, 0); err != nil {
					break
				}
			}
			return err
		},
		// Close writes the last block.
		100: func(w *statefile.Writer) error {
			require.NoError(t, w.Add(make([]byte, 100), 1, 0))
			return w.Close(1)
		},
		// Nothing is written after the end.
		150: func(w *statefile.Writer) error {
			require.NoError(t, w.Close(1))
			return errFull
		},
	} {
		disk := &full{room}
		w := must.Get(statefile.NewWriter(disk, statefile.Header{Epoch: epoch, Limit: funnel}))
		require.ErrorIs(t, fill(w), errFull)
		left := disk.room
		for _, err := range []error{w.Add(nil, 1, 0), w.SetLimit("l"), w.Close(1)} {
			assert.Error(t, err)
			assert.Equal(t, room != 150, errors.Is(err, errFull))
		}
		assert.Equal(t, left, disk.room)
	}
}

func golden(name string) string { return filepath.Join("testdata", name+".v1.state") }

// goldens are the contents of the golden files of version 1. The golden files never change: another
// format is a new version with its own files.
func goldens() map[string]content {
	blocks := content{Header: statefile.Header{Epoch: epoch, Limit: funnel, Codec: "uint64"}, Last: 3_600_000_000_000}
	for i := range 5000 {
		blocks.Entries = append(blocks.Entries, entry{fmt.Sprintf("%08x", i), uint64(i) * 1_000_003, 0, funnel})
	}
	keys := content{Header: statefile.Header{Epoch: epoch, Limit: funnel, Codec: "string"}, Last: 77_000_000_001, Entries: []entry{
		{"alice", 1_234_567_890_123_456, 0, funnel},
		{"", 1, 0, funnel},
		{"b\u00f6b", policy.MaxWord, statefile.ForeignTurn, funnel},
		{"192.0.2.1", 42, 0, "funnel 50, 10/s"},
		{"carol", 43, statefile.ForeignTurn, funnel},
	}}
	empty := content{Header: statefile.Header{Epoch: epoch, Limit: funnel, Codec: "string"}}
	return map[string]content{"empty": empty, "keys": keys, "blocks": blocks}
}

func TestGoldenFilesAreReadAndWritten(t *testing.T) {
	for name, c := range goldens() {
		t.Run(name, func(t *testing.T) {
			must.EqualFile(t, golden(name), string(write(t, c)))
			assert.Equal(t, c, must.Get(read(bytes.NewReader(must.Get(os.ReadFile(golden(name)))))))
		})
	}
}
