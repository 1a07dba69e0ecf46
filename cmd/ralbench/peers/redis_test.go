package peers

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
)

func TestRedisIsGoneWhenItsLimiterIsClosed(t *testing.T) {
	server, found := FindRedis()
	require.True(t, found, "no redis-server is installed: make test does it, or on Debian apt-get install redis-server")
	l, err := Redis(server).New(bench.Setup{Limit: bench.Limit{Capacity: 1, Count: 1, Per: time.Hour}})
	require.NoError(t, err)
	running := l.(*redisRate).server
	assert.DirExists(t, running.folder)
	assert.True(t, l.Choke("a"))
	saves, err := l.(*redisRate).client.ConfigGet(t.Context(), "save").Result()
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"save": ""}, saves)
	files, err := os.ReadDir(running.folder)
	require.NoError(t, err)
	assert.Len(t, files, 1, "the socket, and nothing that was written to disk")

	require.NoError(t, l.Close())
	assert.NoDirExists(t, running.folder)
	assert.ErrorIs(t, running.process.Signal(syscall.Signal(0)), os.ErrProcessDone)

	assert.False(t, l.Choke("b"), "without an answer it is a no")
	assert.EqualValues(t, 1, l.(*redisRate).Counts().Unavailable)
}

func TestServerThatDoesNotStartLeavesNothingBehind(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	left := func() []os.DirEntry {
		files, err := os.ReadDir(os.TempDir())
		require.NoError(t, err)
		return files
	}
	_, err := Redis(filepath.Join(t.TempDir(), "none")).New(bench.Setup{})
	assert.ErrorContains(t, err, "none")
	assert.Empty(t, left())

	if ends, err := os.Executable(); assert.NoError(t, err) {
		// This very test, which does not know the flags and ends.
		_, err = Redis(ends).New(bench.Setup{})
		assert.ErrorContains(t, err, "ended")
		assert.Empty(t, left())
	}
}
