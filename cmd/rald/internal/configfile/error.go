package configfile

import (
	"errors"

	"github.com/ral-limiter/ral/limitfile"
)

// ErrUnused is in the Err of an Error if part of a readable file would have no effect.
var ErrUnused = errors.New("it has no effect")

// Error is a fault of a file, with its place and the accepted values. Key is a path, such as
// descriptors[0].rate_limit.unit.
type Error = limitfile.Fault
