//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package statefile

import (
	"os"
	"path/filepath"
	"sync"
)

// locked has the names of locked files. Other processes are not excluded here.
var locked sync.Map

// tryLock opens a file and notes its name, or returns errHeld.
func tryLock(name string) (*os.File, error) {
	if absolute, err := filepath.Abs(name); err == nil {
		name = absolute
	}
	if _, taken := locked.LoadOrStore(name, true); taken {
		return nil, errHeld
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		locked.Delete(name)
		return nil, err
	}
	return f, nil
}

func release(f *os.File) error {
	locked.Delete(f.Name())
	return f.Close()
}
