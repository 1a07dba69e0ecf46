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

var errLong = errors.New("the line is too long")

// Broken is a packed file whose end cannot be read.
type Broken struct {
	File string `json:"file"`
	// Lines counts the lines before the end, which were read.
	Lines int64  `json:"lines_read"`
	Cause string `json:"cause"`
}

// files reads the lines of files, one file after the other.
type files struct {
	// names are the file that is open, if any, and the later files.
	names []string
	stdin io.Reader
	// broken lists the files that could not be read to their end.
	broken *[]Broken

	file   io.ReadCloser // nil between files
	reader *bufio.Reader
	name   string // of the open file, or of the last
	line   int    // of that file
	// opened counts the files that were opened.
	opened int
}

// maxSearched bounds the bytes in which the first entry of a file must come for the file's place among others.
const maxSearched = 1 << 20

// next returns the next line without its end. It is valid until the next call.
func (f *files) next() ([]byte, error) {
	for {
		for f.file == nil {
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
			if f.line == 1 {
				line = bytes.TrimPrefix(line, []byte("\ufeff"))
			}
			return bytes.TrimRight(line, "\r\n"), nil
		case errors.Is(err, io.EOF):
			f.close()
		default:
			if err := f.stop(err); err != nil {
				return nil, err
			}
		}
	}
}

// stop closes a file that cannot be read on. It returns the error unless the file's content is broken.
func (f *files) stop(err error) error {
	f.close()
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return err
	}
	cause := "the file is damaged (" + err.Error() + ")"
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		cause = "the file is truncated, or other bytes follow its end"
	}
	*f.broken = append(*f.broken, Broken{f.name, int64(max(f.line-1, 0)), cause})
	return nil
}

func (f *files) close() {
	_ = f.file.Close()
	f.file, f.names = nil, f.names[1:]
}

func (f *files) open() error {
	f.name, f.line = f.names[0], 0
	f.opened++
	f.file = io.NopCloser(f.stdin)
	if f.name != "-" {
		file, err := os.Open(f.name)
		if err != nil {
			return err
		}
		f.file = file
	}
	packed := bufio.NewReaderSize(f.file, maxLine)
	f.reader = packed
	if magic, _ := packed.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(packed)
		if err != nil {
			return f.stop(err)
		}
		f.reader = bufio.NewReaderSize(unpacked, maxLine)
	}
	return nil
}
