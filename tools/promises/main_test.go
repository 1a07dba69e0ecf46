package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const source = `package some

// A fact.
//
// Promise: It holds.
// Promise: It lasts.
func TestFact(t *testing.T) {}
`

func tree(t *testing.T, text string) (root string) {
	t.Helper()
	root = t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "some"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "some", "a_test.go"), []byte(text), 0o600))
	return root
}

func TestPageHasEachPromise(t *testing.T) {
	var page strings.Builder
	t.Chdir(tree(t, source))
	require.NoError(t, write(&page, "."))
	assert.Equal(t, head+"\n## some\n\n|Promise|Test|\n|---|---|\n|It holds.|`TestFact`|\n|It lasts.|`TestFact`|\n", page.String())
}

func TestPromiseStandsAboveATestOnly(t *testing.T) {
	for _, wrong := range []string{
		strings.Replace(source, "TestFact", "fact", 1),
		strings.Replace(source, "func", "\nfunc", 1),
		strings.Replace(source, "{}", "{\n// Promise: Nothing.\n}", 1),
	} {
		assert.ErrorContains(t, write(io.Discard, tree(t, wrong)), "above a test only")
	}
}
