package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/internal/core/statefile"
)

const (
	// saveEvery is how often changes are written.
	saveEvery = time.Second
	// Writing takes at most 1/savePart of the time.
	savePart = 10
)

// stateFile keeps a share's uncharged units in a file. Only keep may run beside other methods.
type stateFile struct {
	path, limit string
	// server is this server's ID on the roll.
	server string
	local  *share.Local
	unlock func() error
	// failed says why the last save failed, or is nil.
	failed atomic.Pointer[error]
	// kept is closed when keep has ended.
	kept chan struct{}
}

// openState locks the file at Config.StateFile, and has the share read it if present.
func openState(config Config, local *share.Local) (*stateFile, error) {
	file := &stateFile{
		local: local, kept: make(chan struct{}),
		// Units are charged to the limit of this name.
		limit: "limit " + strconv.Quote(config.Name) + " tag " + strconv.Quote(config.Tag),
	}
	// Resolve the path once: the lock is of this file, wherever the path leads later.
	var err error
	if file.path, err = statefile.Resolve(config.StateFile); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStateFile, err)
	}
	if file.unlock, err = statefile.Lock(file.path); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStateFile, err)
	}
	if err := file.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s was left as it is: %w", ErrStateFile, file.path, err), file.unlock())
	}
	if file.server, err = identity(file.path + ".id"); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrStateFile, err), file.unlock())
	}
	return file, nil
}

// identity returns the ID in the file of that name, which it makes if there is none. The successor
// of a killed server has the same ID, so that it does not count beside it.
func identity(path string) (string, error) {
	text, err := os.ReadFile(path)
	id := strings.TrimSpace(string(text))
	if err == nil && id != "" && len(id) <= maxIdentity || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	id = rand.Text()
	return id, statefile.Replace(path, func(w io.Writer) error {
		_, err := io.WriteString(w, id+"\n")
		return err
	})
}

// maxIdentity bounds the bytes of a server's ID.
const maxIdentity = 64

func (s *stateFile) load() error {
	file, err := os.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(s.local.Load(file, s.limit), file.Close())
}

func (s *stateFile) save() error {
	err := statefile.Replace(s.path, func(w io.Writer) error { return s.local.Save(w, s.limit) })
	if err == nil {
		s.failed.Store(nil)
		return nil
	}
	err = fmt.Errorf("%w, and is lost if this server ends: %w", ErrStateFile, err)
	s.failed.Store(&err)
	return err
}

// keep saves until ctx ends. It calls told after a failed save and after the next success.
func (s *stateFile) keep(ctx context.Context, changed func()) {
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
				changed()
			}
		}
		timer.Reset(max(saveEvery, (savePart-1)*time.Since(begun)))
	}
}

// close saves for the last time and unlocks the file. keep must have ended.
func (s *stateFile) close() error { return errors.Join(s.save(), s.unlock()) }
