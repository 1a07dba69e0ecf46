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
	at := func(name string) string { return filepath.Join(dir, name) }
	_, err := Read(at("none"))
	require.ErrorIs(t, err, fs.ErrNotExist)

	require.NoError(t, os.WriteFile(at("file"), []byte("text"), 0o600))
	require.NoError(t, os.Symlink("file", at("link")))
	text, err := Read(at("link"))
	require.NoError(t, err)
	assert.Equal(t, "text", string(text))

	require.NoError(t, syscall.Mkfifo(at("pipe"), 0o600))
	require.NoError(t, os.Symlink("pipe", at("leads to a pipe")))
	for _, name := range []string{"pipe", "leads to a pipe", "."} {
		_, err = Read(at(name))
		assert.EqualError(t, err, at(name)+": it is no regular file, which alone is accepted")
	}
	require.NoError(t, os.Symlink("none", at("dangling")))
	_, err = Read(at("dangling"))
	assert.EqualError(t, err, at("dangling")+": this link leads to no file")
	assert.False(t, errors.Is(err, fs.ErrNotExist), "it is not as if there were none")

	require.NoError(t, os.Truncate(at("file"), filewatch.MaxBytes))
	text, err = Read(at("file"))
	require.NoError(t, err)
	assert.Len(t, text, filewatch.MaxBytes)
	require.NoError(t, os.Truncate(at("file"), filewatch.MaxBytes+1))
	_, err = Read(at("file"))
	assert.EqualError(t, err, at("file")+": it has more than 16 MiB, the most that is accepted")
}
