//go:build unix

package configfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/filewatch"
)

// Links are followed. Blocking or very large files are refused.
func TestReadFollowsLinksAndRefusesPipes(t *testing.T) {
	dir := t.TempDir()
	inFolder := func(name string) string { return filepath.Join(dir, name) }
	_, err := Read(inFolder("none"))
	require.ErrorIs(t, err, fs.ErrNotExist)

	require.NoError(t, os.WriteFile(inFolder("file"), []byte("text"), 0o600))
	require.NoError(t, os.Symlink("file", inFolder("link")))
	text, err := Read(inFolder("link"))
	require.NoError(t, err)
	assert.Equal(t, "text", string(text))

	require.NoError(t, syscall.Mkfifo(inFolder("pipe"), 0o600))
	require.NoError(t, os.Symlink("pipe", inFolder("leads to a pipe")))
	for _, name := range []string{"pipe", "leads to a pipe", "."} {
		_, err = Read(inFolder(name))
		assert.EqualError(t, err, inFolder(name)+": it is no regular file, which alone is accepted")
	}
	require.NoError(t, os.Symlink("none", inFolder("dangling")))
	_, err = Read(inFolder("dangling"))
	assert.EqualError(t, err, inFolder("dangling")+": this link leads to no file")
	assert.False(t, errors.Is(err, fs.ErrNotExist), "it is not as if there were none")

	require.NoError(t, os.Truncate(inFolder("file"), filewatch.MaxBytes))
	text, err = Read(inFolder("file"))
	require.NoError(t, err)
	assert.Len(t, text, filewatch.MaxBytes)
	require.NoError(t, os.Truncate(inFolder("file"), filewatch.MaxBytes+1))
	_, err = Read(inFolder("file"))
	assert.EqualError(t, err, inFolder("file")+": it has more than 16 MiB, the most that is accepted")
}
