package redisserver

import (
	"testing"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each key is found again by its text.
func TestKeyText(t *testing.T) {
	texts := map[string]string{}
	for key, want := range map[string]string{
		stored([]byte("ann")):                      "ann",
		stored([]byte("two words")):                "two words",
		configured.Prefix("login") + "ann":         `login "ann"`,
		configured.Prefix("login"):                 `login ""`,
		stored([]byte(`login "ann"`)):              `"login \"ann\""`,
		stored([]byte(" ann")):                     `" ann"`,
		stored([]byte("")):                         `""`,
		stored([]byte(mark + "x")):                 `"\x00x"`,
		stored([]byte(configured.Prefix("x"))):     `"\x00x\x00"`,
		configured.Prefix("login") + mark + "\xff": `login "\x00\xff"`,
		stored([]byte(`a\b`)):                      `"a\\b"`,
		stored([]byte("日本")):                       "日本",
	} {
		text := KeyText(key)
		assert.Equal(t, want, text)
		assert.Empty(t, texts[text])
		texts[text] = key
		back, err := ParseKey(text)
		require.NoError(t, err, text)
		assert.Equal(t, key, back, text)
	}
	for _, bad := range []string{`login"ann"`, `login "ann`, `a "b" c`, `"`, "\x00 \"a\""} {
		_, err := ParseKey(bad)
		assert.Error(t, err, bad)
	}
	back, err := ParseKey(`a\b`)
	require.NoError(t, err)
	assert.Equal(t, `a\b`, back, "what an operator types")
}
