package inspect

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/adapter/pagejson"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

// Promise: Remembered IDs are bounded.
func TestRememberedIDsAreBounded(t *testing.T) {
	var s shown[int]
	const last = 10 * maxShown
	for i := range last + 1 {
		s.add(fmt.Sprint(i), i, 1)
		if i%(maxShown-1) == 0 {
			// The key was looked at of late.
			key, ok := s.key("0")
			assert.True(t, ok && key == 0, i)
		}
		assert.LessOrEqual(t, len(s.young)+len(s.old), 2*maxShown)
	}
	for i, known := range map[int]bool{1: false, maxShown: false, last - maxShown + 10: true, last: true} {
		key, ok := s.key(fmt.Sprint(i))
		assert.Equal(t, known, ok, i)
		assert.Equal(t, known, key == i && ok)
	}
}

// Promise: The points of a limit take at most 32 KiB.
func TestPointsAreBoundedInBytes(t *testing.T) {
	h := newHistory([]limit{&keyed[string]{}}, nil, nil)
	for i := range 3 * coarse * maxCoarse {
		h.note(h.noted.Add(time.Duration(i+1) * time.Millisecond))
	}
	points := cap(h.points[0]) + cap(h.coarse[0])
	assert.Equal(t, maxPoints+maxCoarse, points)
	assert.LessOrEqual(t, points*int(unsafe.Sizeof(pagejson.Point{})), 32<<10)
}

// Long keys are remembered for a shorter time.
func TestRememberedKeysAreBoundedInBytes(t *testing.T) {
	var s shown[string]
	const long = maxShownBytes / 8
	for i := range 100 {
		key := fmt.Sprint(i)
		s.add(key, key, long)
		bytes := 0
		for _, of := range []map[string]shownKey[string]{s.young, s.old} {
			for _, k := range of {
				bytes += k.bytes
			}
		}
		require.LessOrEqual(t, bytes, 2*maxShownBytes)
		// A look adds the key, too.
		for _, last := range []int{i, max(0, i-3)} {
			_, ok := s.key(fmt.Sprint(last))
			require.True(t, ok, "%d of %d", last, i)
		}
	}
	_, ok := s.key("1")
	assert.False(t, ok)
}

// Promise: Ral's own server drops slow clients.
func TestSlowClientsAreDropped(t *testing.T) {
	h, err := New(Config{AcceptNone: true})
	require.NoError(t, err)
	defer func() { assert.NoError(t, h.Close()) }()
	for slow, patience := range map[string]time.Duration{
		"fields": h.server.ReadHeaderTimeout, "a request": h.server.ReadTimeout, "an answer": h.server.WriteTimeout, "the next request": h.server.IdleTimeout,
	} {
		assert.Positive(t, patience, slow)
		assert.LessOrEqual(t, patience, time.Minute, slow)
	}
	assert.LessOrEqual(t, h.server.MaxHeaderBytes, 64<<10)
}

// A key's text is a printable line, and no other key's.
func FuzzTextOfKeys(f *testing.F) {
	for _, s := range []string{"", "plain", `"`, `"a"`, `\`, " a", "a\n", "\xff", "\u202e", "日本", "\x00", "a\\\"b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := quote(s)
		require.True(t, utf8.ValidString(text))
		assert.NotContains(t, text, "\n")
		require.Equal(t, s, must.Get(unquote(text)), "the text is of that key alone")

		short := shorten(text)
		assert.LessOrEqual(t, len(short), maxText+3)
		assert.True(t, utf8.ValidString(short))
		assert.True(t, strings.HasPrefix(text, strings.TrimSuffix(short, "...")) || short == text)

		// Typed text is no key, or its text leads to the same key.
		if typed, err := unquote(s); err == nil {
			assert.Equal(t, typed, must.Get(unquote(quote(typed))))
		}
	})
}
