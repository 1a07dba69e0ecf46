package filewatch

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// MaxBytes bounds a file that Read returns.
const MaxBytes = 16 << 20

// Read returns the text of a regular file of up to MaxBytes, following links. The error of a missing file is
// fs.ErrNotExist, unless a link leads to it. The text of an empty file is not nil.
func Read(path string) ([]byte, error) {
	// A pipe would block when it is opened.
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, other := os.Lstat(path); other == nil {
			return nil, errors.New("this link leads to no file")
		}
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file, which alone is accepted")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, MaxBytes+1))
	if err == nil && len(text) > MaxBytes {
		return nil, fmt.Errorf("it has more than %d MiB, the most that is accepted", MaxBytes>>20)
	}
	return text, err
}
