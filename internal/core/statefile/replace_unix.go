//go:build unix

package statefile

import (
	"errors"
	"os"
	"syscall"
)

// syncDir syncs a directory's names, unless the file system cannot (EINVAL or ENOTSUP).
func syncDir(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = file.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, file.Close())
}
