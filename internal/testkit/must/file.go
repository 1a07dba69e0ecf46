package must

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write golden files anew")

// EqualFile checks that the file holds the text. With -update it writes the file first.
func EqualFile(t testing.TB, file, text string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), text, "if it is meant to differ: go test -update in this package")
}
