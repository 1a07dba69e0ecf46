package statefile

import (
	"io"
	"os"
)

const BlockSize = blockSize

// ReplaceNoting is Replace. ReplaceNoting calls before with each step of syncing, and the step
// fails if before fails.
func ReplaceNoting(before func(step string) error, path string, write func(io.Writer) error) error {
	return disk{
		sync: func(f *os.File) error {
			if err := before("sync"); err != nil {
				return err
			}
			return realDisk.sync(f)
		},
		rename: func(from, to string) error {
			if err := before("rename"); err != nil {
				return err
			}
			return realDisk.rename(from, to)
		},
		syncDir: func(dir string) error {
			if err := before("sync directory"); err != nil {
				return err
			}
			return realDisk.syncDir(dir)
		},
	}.replace(path, write)
}
