package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestErrorsOfFilesSayTheAcceptedText(t *testing.T) {
	for content, want := range map[string]string{
		"":                              "is empty",
		"BenchmarkX-2  100  12 ns":      "cannot be read as JSON",
		`{"schema": "one"}`:             "cannot be read as JSON",
		`{"name": "ral", "v": 3}`:       "has no schema",
		`{"schema": 2}`:                 "has no workloads",
		`{"schema": 2} {}`:              "goes on behind",
		`{"schema":2,"workloads":[{}]}`: "without a name",
	} {
		_, err := Decode(strings.NewReader(content))
		require.Error(t, err, content)
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "want a file that ralbench -json has written")
	}
	_, err := Decode(strings.NewReader(`{"schema": 99, "workloads": [{"name": "a"}]}`))
	assert.ErrorContains(t, err, "schema 99, but this ralbench reads schema 2")

	_, err = Read(filepath.Join(t.TempDir(), "none.json"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "want a file")
}
