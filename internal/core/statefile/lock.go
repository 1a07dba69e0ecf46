package statefile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
)

// ErrLocked reports that another process, or another part of this process, uses the file.
var ErrLocked = errors.New("the file is in use")

// errHeld reports that the lock is held elsewhere.
var errHeld = errors.New("held")

// Lock reserves the file at path for this process, until unlock or the end of the process, however
// it ends. Lock fails at once with ErrLocked if the file is in use; the text names the process if
// known. A symbolic link is locked as its target.
//
// The lock is on a file with ".lock" appended to the name. The file holds the process ID, stays,
// and must not be removed while a process runs. A lock is valid on one machine, or on a network
// file system that passes locks on. Plan 9, wasm, Solaris and AIX have no such lock: only this
// process cannot lock a file twice.
//
// Lock removes temporary files of killed calls of Replace. The caller must keep unlock as long as
// the lock should last, and may call it more than once.
func Lock(path string) (unlock func() error, err error) {
	path, err = target(path)
	if err != nil {
		return nil, fmt.Errorf("state file: %w", err)
	}
	name := path + ".lock"
	file, err := tryLock(name)
	if errors.Is(err, errHeld) {
		return nil, fmt.Errorf("state file: %w: %s belongs to %s, or use another path for each", ErrLocked, path, holder(name))
	}
	if err != nil {
		return nil, fmt.Errorf("state file: cannot lock %s: %w", name, err)
	}
	// The process ID is for the text of ErrLocked; the lock holds without it.
	if file.Truncate(0) == nil {
		_, _ = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	removeTemporaries(path)
	return sync.OnceValue(func() error { return release(file) }), nil
}

// holder names the process that wrote the lock file, and a remedy.
func holder(name string) string {
	process := "another process"
	switch pid := readPID(name); {
	case pid == os.Getpid():
		return fmt.Sprintf("another part of this process, %d, which holds %s: close that first", pid, name)
	case pid > 0:
		process = "process " + strconv.Itoa(pid)
	}
	return fmt.Sprintf("%s, which holds %s: stop that process", process, name)
}

// readPID returns the number in a lock file, or 0.
func readPID(name string) int {
	file, err := os.Open(name)
	if err != nil {
		return 0
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, 20))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}
