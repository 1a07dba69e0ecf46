//go:build unix

package statefile

import (
	"errors"
	"os"
	"syscall"
)

// syncDir makes the names in a directory last. A file system that syncs no directories says
// so by EINVAL or ENOTSUP, and is left to itself.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, f.Close())
}
