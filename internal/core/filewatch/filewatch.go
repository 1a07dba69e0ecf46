// Package filewatch notices that files change, by looking at their names, sizes and times. The
// package takes no file while a program writes it, unless the program pauses for longer than the
// time between two looks.
package filewatch

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Watch reads files when they have changed. Only a single goroutine may use a Watch.
type Watch[T any] struct {
	// Stamp returns a text that changes with the files: see Stamp.
	Stamp func() string
	// Read reads the files.
	Read func() (T, error)
	// Put takes the result of Read. Put is called if the files were the same at two looks and after
	// the reading.
	Put func(T, error)
	// Known is the stamp of the files that were put, and Last is the stamp at the last look.
	Known, Last string

	// forced reports whether the files are read although their text is known.
	forced bool
}

// Force makes a later Look read the files although nothing has changed.
func (w *Watch[T]) Force() { w.forced = true }

// Look looks at the files once, and reports whether it has called Put.
func (w *Watch[T]) Look() bool {
	before, stamp := w.Last, w.Stamp()
	w.Last = stamp
	if stamp != before || stamp == w.Known && !w.forced {
		return false
	}
	files, err := w.Read()
	if w.Last = w.Stamp(); w.Last != stamp {
		return false
	}
	w.Known, w.forced = stamp, false
	w.Put(files, err)
	return true
}

// Run looks every so often until the context ends. Each value of now is a Force.
func (w *Watch[T]) Run(ctx context.Context, every time.Duration, now <-chan os.Signal) {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			w.Look()
		case <-now:
			w.Force()
		}
	}
}

// Stamp returns a text that changes with the files of these names, by name, size and time, or with
// the errors of looking at these files. Links are followed, since a link may come to lead to
// another file of the same size and time.
func Stamp(names ...string) string {
	var text strings.Builder
	for _, name := range names {
		text.WriteString(name + " ")
		file, err := filepath.EvalSymlinks(name)
		var info os.FileInfo
		if err == nil {
			info, err = os.Stat(file)
		}
		if err != nil {
			text.WriteString(err.Error())
		} else {
			text.WriteString(file + info.ModTime().String())
			text.WriteString(" " + strconv.FormatInt(info.Size(), 10))
		}
		text.WriteByte('\n')
	}
	return text.String()
}
