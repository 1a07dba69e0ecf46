package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/internal/core/statefile"
)

const (
	// saveEvery is how often what is to be charged is written, if it has changed.
	saveEvery = time.Second
	// savePart is the part of the time, one in so many, in which it may be written.
	savePart = 10
)

// stateFile keeps in a file what a share let pass and what is not charged yet. Its methods
// except keep are for one goroutine at a time.
type stateFile struct {
	path, of string
	local    *share.Local
	unlock   func() error
	failed   atomic.Pointer[error] // why the last save failed, or nil
	kept     chan struct{}         // closed when keep has ended
}

// openState locks the file at Config.StateFile, and has the share read it if it is there.
func openState(c Config, local *share.Local) (*stateFile, error) {
	s := &stateFile{
		local: local, kept: make(chan struct{}),
		// Units are charged to the limit of this name.
		of: "limit " + strconv.Quote(c.Name) + " tag " + strconv.Quote(c.Tag),
	}
	// The file is resolved once: where the path leads later, this server has no lock.
	var err error
	if s.path, err = statefile.Resolve(c.StateFile); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStateFile, err)
	}
	if s.unlock, err = statefile.Lock(s.path); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStateFile, err)
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s was left as it is: %w", ErrStateFile, s.path, err), s.unlock())
	}
	return s, nil
}

// load has the share read the file, if it is there.
func (s *stateFile) load() error {
	f, err := os.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(s.local.Load(f, s.of), f.Close())
}

// save writes the file anew.
func (s *stateFile) save() error {
	err := statefile.Replace(s.path, func(w io.Writer) error { return s.local.Save(w, s.of) })
	if err == nil {
		s.failed.Store(nil)
		return nil
	}
	err = fmt.Errorf("%w, and is lost if this server ends: %w", ErrStateFile, err)
	s.failed.Store(&err)
	return err
}

// keep saves every now and then, as long as ctx lasts. It calls told after a save that
// failed, and after the next that did not.
func (s *stateFile) keep(ctx context.Context, told func()) {
	defer close(s.kept)
	timer := time.NewTimer(saveEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		before, begun := s.failed.Load(), time.Now()
		if before != nil || s.local.Changed() {
			if err := s.save(); err != nil || before != nil {
				told()
			}
		}
		timer.Reset(max(saveEvery, (savePart-1)*time.Since(begun)))
	}
}

// close saves for the last time and unlocks the file, after keep has ended.
func (s *stateFile) close() error { return errors.Join(s.save(), s.unlock()) }
