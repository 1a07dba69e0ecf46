package child

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// as, if set, selects another program for this test to be.
const as = "RAL_CHILD_TEST_AS"

func TestMain(m *testing.M) {
	switch os.Getenv(as) {
	case "":
		os.Exit(m.Run())
	case "sleeps":
		// The process ends by itself in case that the test does not end it.
		time.Sleep(2 * patience)
	case "panics", "is killed":
		parent(os.Getenv(as))
	}
}

// patience is for slow machines that do much else.
const patience = time.Minute

func program(what string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), as+"="+what)
	return cmd
}

// parent starts a process that does not end by itself, and dies without cleaning up.
func parent(how string) {
	child := program("sleeps")
	child.Stdout = os.Stdout
	if _, err := Start(child); err != nil {
		panic(err)
	}
	if how == "panics" {
		panic("as it was told")
	}
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	panic(fmt.Sprint("still alive: ", err))
}

func TestProcessEndsWithItsParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux sees to it")
	}
	for _, how := range []string{"panics", "is killed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			// The pipe ends when no process, including the child, writes to it any more.
			read, write, err := os.Pipe()
			require.NoError(t, err)
			defer read.Close()
			cmd := program(how)
			cmd.Stdout = write
			require.NoError(t, cmd.Start())
			require.NoError(t, write.Close())
			assert.Error(t, cmd.Wait(), "the program ended without an error")
			require.NoError(t, read.SetReadDeadline(time.Now().Add(patience)))
			_, err = read.WriteTo(new(strings.Builder))
			assert.NoError(t, err, "the child of a dead process is still there")
		})
	}
}

func TestKillEndsTheProcess(t *testing.T) {
	cmd := program("sleeps")
	var said strings.Builder
	cmd.Stdout = &said
	p, err := Start(cmd)
	require.NoError(t, err)
	assert.True(t, p.Runs())
	assert.Equal(t, cmd.Process.Pid, p.PID())

	p.Kill()
	assert.False(t, p.Runs())
	assert.Zero(t, p.PID())
	assert.Equal(t, -1, cmd.ProcessState.ExitCode(), "the process did not end by a signal")
	assert.ErrorIs(t, p.Signal(os.Interrupt), os.ErrProcessDone)
	// A second Kill is all right.
	p.Kill()
}

func TestProcessThatEndsByItself(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^$", "-test.v")
	var said strings.Builder
	cmd.Stdout = &said
	p, err := Start(cmd)
	require.NoError(t, err)
	<-p.Ended()
	assert.False(t, p.Runs())
	assert.Zero(t, cmd.ProcessState.ExitCode())
	assert.Contains(t, said.String(), "PASS", "all that it wrote")
	p.Kill()
}

func TestProcessThatWasNotStarted(t *testing.T) {
	p, err := Start(exec.Command("/no/such/program"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.False(t, p.Runs())
	assert.Zero(t, p.PID())
	p.Kill()
}

func TestAwaitListenerTellsIfTheProcessRuns(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p, err := Start(program("sleeps"))
	require.NoError(t, err)
	assert.NoError(t, p.AwaitListener("tcp", l.Addr().String(), patience))

	require.NoError(t, l.Close())
	missing := filepath.Join(t.TempDir(), "socket")
	assert.ErrorContains(t, p.AwaitListener("unix", missing, 0), "running: true")
	p.Kill()
	assert.ErrorContains(t, p.AwaitListener("unix", missing, patience), "running: false")
}
