package statefile_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/statefile"
	"github.com/ral-limiter/ral/policy"
)

// entry is a Record whose key is kept.
type entry struct {
	Key   string
	Word  uint64
	Flags uint8
	Limit string
}

// content is all that a file says.
type content struct {
	Header  statefile.Header
	Entries []entry
	Last    policy.Instant
}

func write(t testing.TB, c content) []byte {
	t.Helper()
	var to bytes.Buffer
	w, err := statefile.NewWriter(&to, c.Header)
	require.NoError(t, err)
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

func TestWhatIsWrittenIsRead(t *testing.T) {
	c := content{
		Header: statefile.Header{Epoch: epoch, Limit: "funnel 100, 10/s", Codec: "string"},
		Entries: []entry{
			{"", 1, 0, "funnel 100, 10/s"},
			{"alice", policy.MaxWord, statefile.ForeignTurn, "funnel 100, 10/s"},
			{"bob", 7, 0, "funnel 50, 10/s"},
			{"carol", 0, 0, "funnel 100, 10/s"},
		},
		Last: 12345,
	}
	got, err := read(bytes.NewReader(write(t, c)))
	require.NoError(t, err)
	assert.Equal(t, c, got)
}
