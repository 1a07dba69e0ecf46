package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
)

const maxLine = 64 << 10 // bytes

var (
	errLong   = errors.New("the line is too long")
	errBroken = errors.New("the file is broken")
)

// files reads the lines of files, one file after the other.
type files struct {
	names []string // the file that is open, if any, and the later files
	stdin io.Reader

	file   io.ReadCloser // nil between files
	reader *bufio.Reader
	name   string // of the open file, or of the last
	line   int    // of that file
	read   int64  // bytes of all files
}

// next returns the next line without its end. It is valid until the next call.
func (f *files) next() ([]byte, error) {
	for {
		if f.file == nil {
			if len(f.names) == 0 {
				return nil, io.EOF
			}
			if err := f.open(); err != nil {
				return nil, err
			}
		}
		f.line++
		line, err := f.reader.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = f.reader.ReadSlice('\n')
			}
			if err == nil || errors.Is(err, io.EOF) {
				return nil, errLong // a file's end is found again by the next call
			}
		}
		switch {
		case err == nil, errors.Is(err, io.EOF) && len(line) > 0:
			return bytes.TrimRight(line, "\r\n"), nil
		case errors.Is(err, io.EOF):
			f.close()
		default:
			f.close()
			return nil, broken(err)
		}
	}
}

// broken returns errBroken for a file with a broken content, and other errors as they are.
func broken(err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return err
	}
	return errBroken
}

func (f *files) close() {
	_ = f.file.Close()
	f.file, f.names = nil, f.names[1:]
}

func (f *files) open() error {
	f.name, f.line = f.names[0], 0
	f.file = io.NopCloser(f.stdin)
	if f.name != "-" {
		file, err := os.Open(f.name)
		if err != nil {
			return err
		}
		f.file = file
	}
	packed := bufio.NewReaderSize(&counter{f.file, &f.read}, maxLine)
	f.reader = packed
	if magic, _ := packed.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(packed)
		if err != nil {
			f.close()
			return broken(err)
		}
		f.reader = bufio.NewReaderSize(unpacked, maxLine)
	}
	return nil
}

// size returns the bytes of the open and later files and those read before, or 0 if that is unknown.
func (f *files) size() (all int64) {
	for _, name := range f.names {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			return 0
		}
		all += info.Size()
	}
	return all
}

type counter struct {
	io.Reader
	n *int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	*c.n += int64(n)
	return n, err
}
