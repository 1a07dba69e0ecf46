package accesslog

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
)

const maxLine = 64 << 10 // bytes

var errLong = errors.New("the line is too long")

// Broken is a packed file whose end cannot be read.
type Broken struct {
	File string `json:"file"`
	// Lines counts the lines before the end, which were read.
	Lines int    `json:"lines_read"`
	Cause string `json:"cause"`
}

// files reads the lines of files, one file after the other.
type files struct {
	// names are the file that is open, if any, and the later files.
	names   []string
	stdin   io.Reader
	summary *Summary

	file   io.ReadCloser // nil between files
	reader *bufio.Reader
	name   string // of the open file, or of the last
	line   int    // of that file
	// opened counts the files that were opened.
	opened int
}

// maxSearched bounds the bytes in which the first entry of a file must come for the file's place among others.
const maxSearched = 1 << 20

// oldestFirst sorts files by the times of their first entries, since rotated logs are listed in any order. Files that
// cannot be read twice stay in their order, as standard input and pipes cannot.
func oldestFirst(config Config, names []string) []string {
	begins := map[string]int64{}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			return names
		}
		begins[name] = begin(config, name)
	}
	return slices.SortedStableFunc(slices.Values(names), func(a, b string) int { return cmp.Compare(begins[a], begins[b]) })
}

// begin returns when the first request of a file ended, or the latest instant for a file without requests.
func begin(config Config, name string) int64 {
	if file, err := os.Open(name); err == nil {
		defer file.Close()
		r, err := NewReader(config, io.LimitReader(file, maxSearched), "-")
		for e := (Entry{}); err == nil; {
			if err = r.Next(&e); err == nil && e.Verb != Start {
				return e.end()
			}
		}
	}
	return math.MaxInt64
}

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
	f.summary.Broken = append(f.summary.Broken, Broken{f.name, max(f.line-1, 0), cause})
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
