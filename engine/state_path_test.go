package engine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// linked makes a symbolic link, or skips the test without support.
func linked(t *testing.T, to, from string) {
	t.Helper()
	if err := os.Symlink(to, from); err != nil {
		t.Skip(err)
	}
}

// taken opens an engine on a file, takes up to 3 units of 5, and closes it.
func taken(t *testing.T, path, limit string) (n int) {
	t.Helper()
	e, err := New[string](Config{Policy: parsed(t, limit), State: State{Path: path, Fresh: true}})
	require.NoError(t, err)
	for range 3 {
		if e.Choke("a") {
			n++
		}
	}
	require.NoError(t, e.Close())
	return n
}

// Promise: Changed links or working directories lead to no other state file.
func TestStateStaysWhereItWasOpened(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"1", "2"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	current := filepath.Join(dir, "current")
	linked(t, "1", current)
	t.Chdir(dir)
	config := Config{Policy: parsed(t, "window 5/h"), State: State{Path: "current/limits"}}
	old, err := New[string](config)
	require.NoError(t, err)
	require.True(t, old.Choke("a"))
	require.NoError(t, os.Remove(current))
	linked(t, "2", current)
	require.Equal(t, 3, taken(t, config.State.Path, "window 5/h"))
	t.Chdir(t.TempDir())
	require.NoError(t, old.Close())
	require.FileExists(t, filepath.Join(dir, "1/limits"))
	require.Equal(t, 2, taken(t, filepath.Join(dir, "2/limits"), "window 5/h"))
}

// The file is set aside and locked, not the link.
func TestFreshStateBehindALink(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "real"), 0o700))
	path := filepath.Join(dir, "limits")
	linked(t, "real/limits", path)
	require.Equal(t, 3, taken(t, path, "window 5/h"))
	require.Equal(t, 2, taken(t, path, "window 5/h"))
	e, err := New[string](Config{Policy: parsed(t, "funnel 5, 1/h"), State: State{Path: path, Fresh: true}})
	require.NoError(t, err)
	_, err = New[string](Config{Policy: parsed(t, "funnel 5, 1/h"), State: State{Path: filepath.Join(dir, "real/limits")}})
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, e.Close())
	require.FileExists(t, filepath.Join(dir, "real/limits.old"))
	require.Equal(t, 3, taken(t, path, "funnel 5, 1/h"))
	require.Equal(t, 2, taken(t, path, "funnel 5, 1/h"))
}

func parsed(t *testing.T, text string) policy.Policy {
	t.Helper()
	p, err := policy.Parse(text)
	require.NoError(t, err)
	return p
}
