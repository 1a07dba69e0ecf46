package redisd

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestServerKeepsNothingAndLeavesNothing(t *testing.T) {
	binary, err := Find()
	require.NoError(t, err)
	for name, start := range map[string]func(string) (*Server, error){"on a socket": OnSocket, "on a port": OnPort} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			s, err := start(binary)
			require.NoError(t, err)
			assert.DirExists(t, s.folder)
			assert.Equal(t, []string{"save", ""}, ask(t, s, "CONFIG GET save"))
			assert.Equal(t, []string{"appendonly", "no"}, ask(t, s, "CONFIG GET appendonly"))
			assert.Equal(t, name == "on a port", s.Network == "tcp")

			require.NoError(t, s.Stop())
			assert.NoDirExists(t, s.folder)
			assert.ErrorIs(t, s.process.Signal(syscall.Signal(0)), os.ErrProcessDone)
		})
	}
}

// ask gives a command and returns the two strings of its answer.
func ask(t *testing.T, s *Server, command string) []string {
	c, err := net.Dial(s.Network, s.Addr)
	require.NoError(t, err)
	defer c.Close()
	fmt.Fprintf(c, "%s\r\n", command)
	r := bufio.NewScanner(c)
	var lines []string
	for len(lines) < 5 && r.Scan() {
		lines = append(lines, r.Text())
	}
	require.Len(t, lines, 5, "*2, and each string after its length")
	return []string{lines[2], lines[4]}
}

func TestServerThatDoesNotStartLeavesNothingBehind(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	left := func() []os.DirEntry {
		files, err := os.ReadDir(os.TempDir())
		require.NoError(t, err)
		return files
	}
	for _, start := range []func(string) (*Server, error){OnSocket, OnPort} {
		_, err := start(filepath.Join(t.TempDir(), "none"))
		assert.ErrorContains(t, err, "none")
		assert.Empty(t, left())

		// This very test, which does not know the flags and ends.
		ends, err := os.Executable()
		require.NoError(t, err)
		_, err = start(ends)
		assert.ErrorContains(t, err, "ended")
		assert.Empty(t, left())
	}
}

// Who is not the one that was started must not be measured.
func TestPortOfAnotherServerIsNotTaken(t *testing.T) {
	binary, err := Find()
	require.NoError(t, err)
	other, err := OnPort(binary)
	require.NoError(t, err)
	defer func() { assert.NoError(t, other.Stop()) }()
	_, err = launch(binary, func(s *Server) ([]string, error) {
		s.Network, s.Addr = "tcp", other.Addr
		_, port, err := net.SplitHostPort(other.Addr)
		return []string{"--bind", "127.0.0.1", "--port", port}, err
	})
	assert.ErrorIs(t, err, errTaken)
}

func TestMissingServerSaysHowToInstallIt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Find()
	require.ErrorIs(t, err, ErrMissing)
	for _, how := range []string{"apt-get install redis-server", "brew install redis"} {
		assert.True(t, strings.Contains(err.Error(), how), err)
	}
}
