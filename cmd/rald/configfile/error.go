package configfile

import (
	"errors"
	"fmt"
)

// ErrUnused is the Err of an Error, or is wrapped by it, if a file can be read but part of it would
// have no effect.
var ErrUnused = errors.New("it has no effect")

// Error tells what is wrong with a file, where, and what is accepted there.
type Error struct {
	File string
	Line int    // 0 if it is not known
	Key  string // the path to it, such as descriptors[0].rate_limit.unit; "" is the whole file
	Err  error
}

// Error returns file, line, key and Err, as far as they are known.
func (e *Error) Error() string {
	text := e.File
	if e.Line > 0 {
		text += fmt.Sprintf(":%d", e.Line)
	}
	if e.Key != "" {
		text += ": " + e.Key
	}
	return text + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
