package statefile_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/statefile"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

func writes(text string) func(io.Writer) error {
	return func(to io.Writer) error {
		_, err := io.WriteString(to, text)
		return err
	}
}

func requireFile(t *testing.T, path, text string) {
	t.Helper()
	require.Equal(t, text, string(must.Get(os.ReadFile(path))))
}

// requireAlone fails unless dir has exactly these files.
func requireAlone(t *testing.T, dir string, names ...string) {
	t.Helper()
	all := must.Get(os.ReadDir(dir))
	var got []string
	for _, entry := range all {
		got = append(got, entry.Name())
	}
	require.ElementsMatch(t, names, got)
}

func TestReplacePutsAFileInPlace(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, text := range []string{"old", "new"} {
		require.NoError(t, statefile.Replace("state", writes(text)))
		requireFile(t, "state", text)
		if runtime.GOOS != "windows" {
			assert.Equal(t, os.FileMode(0o600), must.Get(os.Stat("state")).Mode().Perm())
			require.NoError(t, os.Chmod("state", 0o644))
		}
	}
	requireAlone(t, ".", "state")
}

// Whatever fails leaves the old file, and no other. The content lasts before the name, or a loss of
// power may leave an empty file.
func TestFailedReplaceLeavesTheOldFile(t *testing.T) {
	broken := errors.New("broken")
	steps := []string{"write", "sync", "rename", "sync directory"}
	for failing := range len(steps) + 1 {
		dir := t.TempDir()
		path := filepath.Join(dir, "state")
		require.NoError(t, statefile.Replace(path, writes("old")))
		var done []string
		step := func(name string) error {
			if done = append(done, name); len(done) > failing {
				return broken
			}
			return nil
		}
		err := statefile.ReplaceNoting(step, path, func(to io.Writer) error {
			require.NoError(t, writes("new")(to))
			return step("write")
		})
		assert.Equal(t, steps[:min(failing+1, len(steps))], done)
		assert.Equal(t, failing < len(steps), errors.Is(err, broken))
		requireAlone(t, dir, "state")
		if failing < 3 {
			requireFile(t, path, "old")
		} else {
			// The file is new also if its name may be lost.
			requireFile(t, path, "new")
		}
	}
	path := filepath.Join(t.TempDir(), "state")
	assert.PanicsWithValue(t, broken, func() { _ = statefile.Replace(path, func(io.Writer) error { panic(broken) }) })
	requireAlone(t, filepath.Dir(path))
	assert.ErrorIs(t, statefile.Replace(filepath.Join(path, "state"), writes("new")), os.ErrNotExist)
	assert.Error(t, statefile.Replace("", writes("new")))
}

func TestReplaceFollowsLinks(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	path, real := filepath.Join(dir, "state"), filepath.Join(elsewhere, "real")
	if err := os.Symlink(filepath.Join(dir, "second"), path); err != nil {
		t.Skip("no symbolic links: ", err)
	}
	require.NoError(t, os.Symlink(must.Get(filepath.Rel(dir, real)), filepath.Join(dir, "second")))
	for _, text := range []string{"the first, which the link waits for", "the next"} {
		require.NoError(t, statefile.Replace(path, writes(text)))
		requireFile(t, real, text)
		requireFile(t, path, text)
	}
	requireAlone(t, elsewhere, "real")
	requireAlone(t, dir, "state", "second")
	unlock := must.Get(statefile.Lock(real))
	_, err := statefile.Lock(path)
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
