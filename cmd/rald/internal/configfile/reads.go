package configfile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
)

// Reloads are readings by their subject, such as "configuration".
type Reloads map[string]*Reads

// Fault returns the faults of the last readings, each after its subject, or nil.
func (r Reloads) Fault() (err error) {
	for _, subject := range slices.Sorted(maps.Keys(r)) {
		if fault := r[subject].Fault(); fault != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", subject, fault))
		}
	}
	return err
}

// Reads counts the readings of a configuration. The zero Reads is ready. It is safe for concurrent use.
type Reads struct {
	Good, Bad atomic.Uint64

	fault atomic.Pointer[error]
}

// Fail notes why the last reading is not in force or not all of it, or nil.
func (r *Reads) Fail(err error) { r.fault.Store(&err) }

// Fault returns the error of the last Fail.
func (r *Reads) Fault() error {
	if fault := r.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}
