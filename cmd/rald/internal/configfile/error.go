package configfile

import (
	"errors"
	"fmt"
)

// ErrUnused is in the Err of an Error if part of a readable file would have no effect.
var ErrUnused = errors.New("it has no effect")

// Error is a fault of a file, with its place and the accepted values.
type Error struct {
	File string
	Line int    // 0 if unknown
	Key  string // its path, such as descriptors[0].rate_limit.unit; "" is the whole file
	Err  error
}

// Error returns file, line and key if known, and Err.
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
