package statefile_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/statefile"
	"github.com/ral-limiter/ral/internal/testkit/child"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

// locks names a file that the test binary locks until it is killed.
const locks = "RAL_STATEFILE_TEST_LOCKS"

func TestMain(m *testing.M) {
	path := os.Getenv(locks)
	if path == "" {
		os.Exit(m.Run())
	}
	unlock, err := statefile.Lock(path)
	if err != nil {
		panic(err)
	}
	_ = statefile.Replace(path, func(to io.Writer) error {
		_, _ = io.WriteString(to, "half of it")
		fmt.Println("locked")
		// The read lasts until the parent closes the pipe.
		_, err := io.ReadAll(os.Stdin)
		return err
	})
	_ = unlock()
}

func TestOneHasTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	before := func() error { return nil }
	for range 2 {
		unlock := must.Get(statefile.Lock(path))
		require.NoError(t, before(), "a lock is freed once")
		_, err := statefile.Lock(path)
		require.ErrorIs(t, err, statefile.ErrLocked)
		// The process, the file, and the remedy.
		for _, part := range []string{"another part of this process, " + strconv.Itoa(os.Getpid()), path + ".lock", "close that first, or use another path"} {
			assert.ErrorContains(t, err, part)
		}
		assert.NotContains(t, err.Error(), "stop")
		other := must.Get(statefile.Lock(path + "2"))
		require.NoError(t, other())
		require.NoError(t, unlock())
		before = unlock
	}
	_, err := os.Stat(path)
	assert.ErrorIs(t, err, os.ErrNotExist, "the file itself is left alone")
	_, err = statefile.Lock(filepath.Join(path, "state"))
	assert.ErrorIs(t, err, os.ErrNotExist, "it needs its directory")
	_, err = statefile.Lock("")
	assert.Error(t, err)
}

// The process holds the file and is about to replace it.
func TestKilledProcessLeavesTheFile(t *testing.T) {
	switch runtime.GOOS {
	case "js", "wasip1", "plan9", "solaris", "illumos", "aix":
		t.Skip("no lock between processes, or no processes")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), locks+"="+path)
	cmd.Stderr = os.Stderr
	stdin := must.Get(cmd.StdinPipe())
	defer func() { _ = stdin.Close() }()
	out, in, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = out.Close() }()
	cmd.Stdout = in
	process, err := child.Start(cmd)
	require.NoError(t, err)
	defer process.Kill()
	require.NoError(t, in.Close())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "locked\n", line)

	_, err = statefile.Lock(path)
	require.ErrorIs(t, err, statefile.ErrLocked)
	assert.ErrorContains(t, err, fmt.Sprintf("process %d, ", process.PID()))
	assert.ErrorContains(t, err, "stop that process, or use another path")
	require.Len(t, must.Get(os.ReadDir(dir)), 3, "the file, the lock, and a temporary file")

	process.Kill()
	unlock, err := statefile.Lock(path)
	require.NoError(t, err, "the kernel unlocked it")
	requireFile(t, path, "old")
	requireAlone(t, dir, "state", "state.lock")
	require.NoError(t, unlock())
}

// Temporary files of another state file stay.
func TestLockRemovesItsOwnTemporariesOnly(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".state.new-1", ".state2.new-1", ".state.new-", "state.new-1", "state"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".state.new-2"), 0o700))
	unlock := must.Get(statefile.Lock(filepath.Join(dir, "state")))
	require.NoError(t, unlock())
	requireAlone(t, dir, ".state2.new-1", "state.new-1", "state", ".state.new-2", "state.lock")
}
