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
	for _, folder := range []string{"internal/some", "some", "some/internal/part"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, folder), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, folder, "a_test.go"), []byte(text), 0o600))
	}
	return root
}

func TestPageHasEachPromise(t *testing.T) {
	var page strings.Builder
	t.Chdir(tree(t, source))
	require.NoError(t, write(&page, "."))
	table := "\n\n|Promise|Test|\n|---|---|\n"
	rows := func(inner string) string {
		return "|It holds.|`" + inner + "TestFact`|\n|It lasts.|`" + inner + "TestFact`|\n"
	}
	assert.Equal(t, head+"\n## internal"+table+rows("internal/some.")+"\n## some"+table+rows("")+rows("internal/part."), page.String())
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
