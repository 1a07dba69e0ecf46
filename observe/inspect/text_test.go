package inspect

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
)

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
		assert.LessOrEqual(t, len(short), longestText+3)
		assert.True(t, utf8.ValidString(short))
		assert.True(t, strings.HasPrefix(text, strings.TrimSuffix(short, "...")) || short == text)

		// Typed text is no key, or its text leads to the same key.
		if typed, err := unquote(s); err == nil {
			assert.Equal(t, typed, must.Get(unquote(quote(typed))))
		}
	})
}
