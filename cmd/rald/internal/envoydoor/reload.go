package envoydoor

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
)

// reads counts how often the rules were read.
type reads struct {
	good, bad atomic.Uint64
	failing   atomic.Bool
}

// Reads returns how often the rules were read, from New on, and whether that failed the last
// time.
func (s *Service) Reads() (good, bad uint64, failing bool) {
	return s.reads.good.Load(), s.reads.bad.Load(), s.reads.failing.Load()
}

// Reload reads the rules again, and puts all of them in force at once. If any file is faulty
// the rules stay as they are, and the error is that of rules.Read. A request is decided by the
// rules at its beginning. Keys keep what they have used if their rule still has the same unit,
// or a limit of the same family.
func (s *Service) Reload() (err error) {
	s.reload.Lock()
	defer s.reload.Unlock()
	defer func() {
		s.reads.failing.Store(err != nil)
		if err != nil {
			s.reads.bad.Add(1)
		} else {
			s.reads.good.Add(1)
		}
	}()
	set, err := rules.Read(s.config.Dir, rules.Options{Merge: s.config.Merge})
	if err != nil {
		return err
	}
	counts := map[string]*Counts{}
	if s.table.Load() != nil {
		for rule, of := range s.Counts() {
			counts[rule.Path] = of
		}
	}
	t, err := newTable(set, s.config.Spaces, counts)
	if err != nil {
		return err
	}
	s.table.Store(t)
	return nil
}

// Watch looks every so often whether the files have changed, by their names, sizes and times,
// and reloads them then, until the context ends. What comes of it is logged.
func (s *Service) Watch(ctx context.Context, every time.Duration) {
	known := s.stamp()
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		now := s.stamp()
		if now == known {
			continue
		}
		known = now
		if err := s.Reload(); err != nil {
			s.config.Log.Error("the rules stay as they were: the directory cannot be read", "directory", s.config.Dir, "error", err)
		} else {
			s.config.Log.Info("new rules are in force", "directory", s.config.Dir, "rules", len(s.table.Load().set.Rules()))
		}
	}
}

// stamp is another text if the files have changed.
func (s *Service) stamp() string {
	names, err := rules.Files(s.config.Dir)
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	for _, name := range names {
		text.WriteString(name)
		if info, err := os.Stat(filepath.Join(s.config.Dir, name)); err != nil {
			text.WriteString(err.Error())
		} else {
			text.WriteString(info.ModTime().String())
			text.WriteString(" " + strconv.FormatInt(info.Size(), 10))
		}
		text.WriteByte('\n')
	}
	return text.String()
}
