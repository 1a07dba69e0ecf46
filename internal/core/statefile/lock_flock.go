//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package statefile

import (
	"errors"
	"os"
	"syscall"
)

// tryLock opens and locks a file, or returns errHeld.
func tryLock(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close() // the error before says more
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errHeld
		}
		return nil, err
	}
	return f, nil
}

// release unlocks a file: the kernel does, as no other file descriptor refers to what was
// opened.
func release(f *os.File) error { return f.Close() }
