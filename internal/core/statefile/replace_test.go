package statefile_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/statefile"
)

func writes(text string) func(io.Writer) error {
	return func(to io.Writer) error {
		_, err := io.WriteString(to, text)
		return err
	}
}

func requireFile(t *testing.T, path, text string) {
	t.Helper()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}

// requireAlone fails unless dir has exactly these files.
func requireAlone(t *testing.T, dir string, names ...string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	require.NoError(t, err)
	var got []string
	for _, entry := range all {
		got = append(got, entry.Name())
	}
	require.ElementsMatch(t, names, got)
}

func TestReplacePutsAFileInPlace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	require.NoError(t, statefile.Replace(path, writes("old")))
	requireFile(t, path, "old")
	require.NoError(t, os.Chmod(path, 0o644))
	require.NoError(t, statefile.Replace(path, writes("new")))
	requireFile(t, path, "new")
	requireAlone(t, dir, "state")
	if runtime.GOOS != "windows" {
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
}

func TestReplaceInTheCurrentDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, statefile.Replace("state", writes("new")))
	requireFile(t, "state", "new")
	requireAlone(t, ".", "state")
}

func TestFailedReplaceLeavesTheOldFile(t *testing.T) {
	broken := errors.New("broken")
	for _, step := range []string{"write", "panic", "sync", "rename", "sync directory"} {
		t.Run(step, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "state")
			require.NoError(t, statefile.Replace(path, writes("old")))
			replace := func() error {
				return statefile.ReplaceNoting(func(s string) error {
					if s == step {
						return broken
					}
					return nil
				}, path, func(to io.Writer) error {
					require.NoError(t, writes("new")(to))
					switch step {
					case "write":
						return broken
					case "panic":
						panic(broken)
					}
					return nil
				})
			}
			switch step {
			case "panic":
				require.PanicsWithError(t, "broken", func() { _ = replace() })
			default:
				require.ErrorIs(t, replace(), broken)
			}
			requireAlone(t, dir, "state")
			if step == "sync directory" {
				requireFile(t, path, "new") // as it says
				return
			}
			requireFile(t, path, "old")
		})
	}
	missing := filepath.Join(t.TempDir(), "no", "state")
	assert.ErrorIs(t, statefile.Replace(missing, writes("new")), os.ErrNotExist)
	assert.Error(t, statefile.Replace("", writes("new")))
}

// Otherwise a loss of power may leave an empty file.
func TestContentLastsBeforeTheName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	var steps []string
	require.NoError(t, statefile.ReplaceNoting(func(step string) error {
		steps = append(steps, step)
		return nil
	}, path, func(to io.Writer) error {
		steps = append(steps, "write")
		return writes("new")(to)
	}))
	assert.Equal(t, []string{"write", "sync", "rename", "sync directory"}, steps)
}

func TestReplaceFollowsLinks(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	path, real := filepath.Join(dir, "state"), filepath.Join(elsewhere, "real")
	if err := os.Symlink(filepath.Join(dir, "second"), path); err != nil {
		t.Skip("no symbolic links: ", err)
	}
	relative, err := filepath.Rel(dir, real)
	require.NoError(t, err)
	require.NoError(t, os.Symlink(relative, filepath.Join(dir, "second")))
	for _, text := range []string{"the first, which the link waits for", "the next"} {
		require.NoError(t, statefile.Replace(path, writes(text)))
		requireFile(t, real, text)
		requireFile(t, path, text)
	}
	requireAlone(t, elsewhere, "real")
	requireAlone(t, dir, "state", "second")
	unlock, err := statefile.Lock(real)
	require.NoError(t, err)
	_, err = statefile.Lock(path)
	require.ErrorIs(t, err, statefile.ErrLocked)
	require.NoError(t, unlock())

	require.NoError(t, os.Symlink("round", filepath.Join(dir, "round")))
	assert.ErrorContains(t, statefile.Replace(filepath.Join(dir, "round"), writes("new")), "too many symbolic links")

	// ".." behind a link to a directory leads where the kernel says.
	for _, name := range []string{"app/releases/5", "app/shared", "shared"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
	}
	require.NoError(t, os.Symlink("releases/5", filepath.Join(dir, "app/current")))
	require.NoError(t, os.Symlink("../../shared/limits", filepath.Join(dir, "app/releases/5/limits")))
	require.NoError(t, statefile.Replace(filepath.Join(dir, "app/current/limits"), writes("there")))
	requireFile(t, filepath.Join(dir, "app/shared/limits"), "there")
}

func TestOnlyFilesAreReplaced(t *testing.T) {
	dir := t.TempDir()
	assert.ErrorContains(t, statefile.Replace(dir, writes("new")), "not a regular file")
	_, err := statefile.Lock(dir)
	assert.ErrorContains(t, err, "not a regular file")
	requireAlone(t, dir)
}

// While goroutines replace a file, a reader always meets a whole file, and no call fails or leaves
// a temporary file.
func TestFileIsWholeAtAnyMoment(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is open there cannot be replaced")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	text := func(i int) string { return strings.Repeat(fmt.Sprintf("%04d", i), 10_000) }
	require.NoError(t, statefile.Replace(path, writes(text(0))))
	var writers, reader sync.WaitGroup
	done := make(chan struct{})
	reader.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			got, err := os.ReadFile(path)
			if !assert.NoError(t, err) || !assert.Len(t, got, 40_000) ||
				!assert.Equal(t, strings.Repeat(string(got[:4]), 10_000), string(got)) {
				return
			}
		}
	})
	for w := range 4 {
		writers.Go(func() {
			for i := range 10 {
				assert.NoError(t, statefile.Replace(path, writes(text(w*10+i))))
			}
		})
	}
	writers.Wait()
	close(done)
	reader.Wait()
	requireAlone(t, dir, "state")
}
