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

// ErrLocked reports that another process, or another part of this one, has the file.
var ErrLocked = errors.New("the file is in use")

// errHeld is what tryLock returns if the lock is held elsewhere.
var errHeld = errors.New("held")

// Lock makes sure that one process has the file at path, until unlock or the end of the
// process, however it ends: the kernel releases the lock. It fails with ErrLocked at once
// if the file is in use; the text names the process, if that can be told. A path that is a
// symbolic link is locked as the file that it leads to.
//
// What is locked is a file beside it, with ".lock" behind its name, which holds the process
// ID and stays. It must not be removed while a process runs. A lock does not reach beyond
// a machine, except on a network file system that passes locks on.
//
// Plan 9, wasm, Solaris and AIX have no such lock. There only this process is kept from
// locking a file twice.
//
// Lock removes temporary files that Replace left when a process was killed. The caller
// must keep unlock for as long as the lock is to last, and may call it more than once.
func Lock(path string) (unlock func() error, err error) {
	path, err = target(path)
	if err != nil {
		return nil, fmt.Errorf("state file: %w", err)
	}
	name := path + ".lock"
	f, err := tryLock(name)
	if errors.Is(err, errHeld) {
		return nil, fmt.Errorf("state file: %w: %s belongs to %s, or use another path for each", ErrLocked, path, holder(name))
	}
	if err != nil {
		return nil, fmt.Errorf("state file: cannot lock %s: %w", name, err)
	}
	// The lock holds without this, which is for the text of an error.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	removeTemporaries(path)
	return sync.OnceValue(func() error { return release(f) }), nil
}

// holder names the process that wrote the lock file, and what to do about it.
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

// readPID returns the number in a lock file, 0 if there is none.
func readPID(name string) int {
	f, err := os.Open(name)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, 20))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}
