package statefile

import (
	"io"
	"os"
)

// BlockSize is the payload of a block with several entries, at most.
const BlockSize = blockSize

// ReplaceNoting is Replace. It calls before with each step that makes a file last, which
// fails if that returns an error.
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
