// Package families keeps the keys of any number of limits in a few engines, one for each family
// of limits: see policy.Relative. A call names the limit that it is held to, and finds the
// engine by it, so that a thousand limits need no more goroutines than ten. With Config.Fleet
// limiters of package fleet take the place of engines, and Redis keeps the keys. The package is a part
// of rald and may change in any release.
package families

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/statefile"
	"github.com/ral-limiter/ral/policy"
)

// Config is the configuration of Families. The zero value keeps no state.
type Config struct {
	// Name begins the names of the engines. The default is "rald".
	Name string
	// MaxKeys is the most keys of each engine. The default is that of engine.Config.
	MaxKeys int
	// Most is the most families of limits of a configuration: see Room. Of makes as many engines
	// beside theirs, less those of saved states and of earlier configurations. The default is 32,
	// and 256 if Fleet is Leased.
	Most int
	// Fleet, if not nil, keeps the keys in Redis, and Dir must be empty.
	Fleet *Fleet
	// Dir is the directory of the engines' saved states. It is made if it is missing. If it is
	// empty nothing is saved.
	Dir string
	// Every is the pause between two saves: see engine.State.
	Every time.Duration
	// OnEvent is told what happens to the engines' goroutines.
	OnEvent func(engine.Event)
}

const (
	defaultMost = 32
	// suffix ends the name of a saved state. What comes before it is the text of a limit.
	suffix = ".state"
	// lockName is the name of the lock of Config.Dir, before the ".lock".
	lockName = "rald"
)

// Families are the engines. All methods may be called by any number of goroutines.
type Families struct {
	config Config
	all    atomic.Pointer[[]Family]
	known  bounded[Family] // by the limits of calls, over a fleet

	mu     sync.Mutex // held while an engine is added or released, and by Close
	closed bool
	unlock func() error // config.Dir, if it is not empty
}

// ErrTooMany reports that a limit needs one engine more than there may be.
var ErrTooMany = errors.New("no room for another family of limits")

// New returns Families with the engines whose states are in config.Dir, however many there are. The
// directory is theirs until Close: New fails if another process has it.
func New(config Config) (*Families, error) {
	config.Most = config.most()
	config.Name = cmp.Or(config.Name, "rald")
	s := &Families{config: config}
	s.all.Store(new([]Family))
	if config.Fleet != nil {
		return s, s.connect()
	}
	if config.Dir == "" {
		return s, nil
	}
	if err := os.MkdirAll(config.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("the directory of the saved state: %w", err)
	}
	var err error
	if s.unlock, err = statefile.Lock(filepath.Join(config.Dir, lockName)); err != nil {
		return nil, fmt.Errorf("the directory of the saved state: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(config.Dir, "*"+suffix))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the directory of the saved state: %w", err), s.Close())
	}
	for _, file := range files {
		limit, err := limitOf(file)
		if err == nil && fileOf(representative(limit)) != filepath.Base(file) {
			err = fmt.Errorf("a file of these keys is named %s", fileOf(representative(limit)))
		}
		if err == nil {
			_, err = s.add(limit)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("the saved state %s: %w", file, err), s.Close())
		}
	}
	return s, nil
}

// Of returns the engine for the limit of a call, and makes it if there is none. The error is
// ErrTooMany, engine.ErrClosed after Close, or that of a saved state that cannot be loaded. From
// then on Release leaves the engine alone.
func (s *Families) Of(limit policy.Policy) (Family, error) {
	var family Family
	if s.config.Fleet != nil {
		family, _ = s.known.load(limit)
	} else {
		family = s.find(limit, false)
	}
	if family != nil && family.lifetime().claim() {
		return family, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	family, err := s.open(limit, false)
	if err != nil {
		return nil, err
	}
	family.lifetime().claim()
	if s.config.Fleet != nil {
		s.known.store(limit, family)
	}
	return family, nil
}

// Find returns the engine for a limit, if there is one. Unlike Of it does not keep Release from
// ending the engine.
func (s *Families) Find(limit policy.Policy) (family Family, ok bool) {
	if s.config.isLeased(limit) {
		family = s.find(limit, true)
	}
	if family == nil {
		family = s.find(limit, false)
	}
	return family, family != nil
}

// open returns the engine for a limit, and makes it if there is none. The caller holds mu.
func (s *Families) open(limit policy.Policy, kept bool) (family Family, err error) {
	if s.config.isLeased(limit) {
		family, err = s.openIn(limit, true, kept)
		if field := (*policy.FieldError)(nil); !errors.As(err, &field) || field.Field != "Policy" {
			return family, err
		}
		// It is too small to be leased, on every server.
	}
	return s.openIn(limit, false, kept)
}

func (s *Families) openIn(limit policy.Policy, leased, kept bool) (Family, error) {
	if family := s.find(limit, leased); family != nil {
		return family, nil
	}
	if err := s.isFull(kept); err != nil {
		return nil, err
	}
	if s.config.Fleet != nil {
		return s.addShared(limit, leased)
	}
	return s.add(limit)
}

// find returns the limiter that leases units of a limit, or otherwise the one for its family. It is nil
// if there is none.
func (s *Families) find(limit policy.Policy, leased bool) Family {
	relative, _ := limit.(policy.Relative)
	for _, family := range *s.all.Load() {
		switch {
		case isLease(family) != leased:
		case leased && family.Limit().String() == limit.String(), !leased && relative != nil && relative.Reads(family.Limit()):
			return family
		}
	}
	return nil
}

// add makes an engine. The caller holds mu, except in New.
func (s *Families) add(limit policy.Policy) (Family, error) {
	of := representative(limit)
	config := engine.Config{Name: s.config.Name + " " + familyName(of), Policy: of, MaxKeys: s.config.MaxKeys, OnEvent: s.config.OnEvent}
	if s.config.Dir != "" {
		config.State = engine.State{Path: s.path(of), Every: s.config.Every}
	}
	e, err := engine.New[string](config)
	if err != nil {
		return nil, err
	}
	family := &local{limit: of, engine: e}
	s.append(family)
	return family, nil
}

// isFull returns why there can be no further engine. For one that is kept Room has said so. The
// caller holds mu.
func (s *Families) isFull(kept bool) error {
	if s.closed {
		return engine.ErrClosed
	}
	if kept {
		return nil
	}
	n := 0
	for family := range s.All() {
		if !family.lifetime().kept {
			n++
		}
	}
	if n < s.config.Most {
		return nil
	}
	return tooMany(n, "not configured")
}

func tooMany(n int, which string) error {
	return fmt.Errorf("%w: there are already %d that are %s", ErrTooMany, n, which)
}

// append adds a family. The caller holds mu, except in New.
func (s *Families) append(family Family) {
	more := slices.Concat(*s.all.Load(), []Family{family})
	s.all.Store(&more)
}

// All returns the engines that there are, in the order in which they were made.
func (s *Families) All() iter.Seq[Family] {
	return func(yield func(Family) bool) {
		for _, family := range *s.all.Load() {
			if !yield(family) {
				return
			}
		}
	}
}

// Fleet returns the Redis that keeps the keys, or nil if engines keep them.
func (s *Families) Fleet() *Fleet { return s.config.Fleet }

// Close saves the states and ends the engines. Later calls are refused.
func (s *Families) Close() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, family := range slices.Backward(*s.all.Load()) { // the first has the client of the others
		err = errors.Join(err, family.close())
	}
	if s.unlock != nil {
		err = errors.Join(err, s.unlock())
	}
	return err
}

// counted is the text of a limit of windows: its kind, the units, and the rest.
var counted = regexp.MustCompile(`^(window|sliding|at most) [^/]+(/.*)$`)

// representative returns the limit that stands for the family of a limit. It does not depend
// on the limit's units, as it names the saved state.
func representative(limit policy.Policy) policy.Policy {
	var texts []string
	text := limit.String()
	switch kind, _, _ := strings.Cut(text, " "); kind {
	case "funnel":
		texts = []string{"funnel 1, 1/s"}
	case "queue":
		texts = []string{"queue 1, 1/s"}
	case "bursty":
		texts = []string{"bursty 1/s, 1"}
	default:
		// The short windows of many units are a family apart.
		texts = []string{counted.ReplaceAllString(text, "$1 1$2"), counted.ReplaceAllString(text, "$1 1000000$2")}
	}
	for _, text := range texts {
		of, err := policy.Parse(text)
		if relative, ok := limit.(policy.Relative); err == nil && ok && relative.Reads(of) {
			return of
		}
	}
	return limit
}

// familyName is the name of an engine: its limit without the units.
func familyName(of policy.Policy) string {
	kind, _, _ := strings.Cut(of.String(), ",")
	return strings.Replace(strings.TrimSuffix(kind, " 1"), " 1/", "/", 1)
}

// path returns the file for the state of an engine.
func (s *Families) path(of policy.Policy) string { return filepath.Join(s.config.Dir, fileOf(of)) }

// fileOf returns the name of the file for the state of an engine.
func fileOf(of policy.Policy) string {
	return url.PathEscape(strings.ReplaceAll(of.String(), " ", "_")) + suffix
}

// limitOf returns the limit whose keys are in a file.
func limitOf(file string) (policy.Policy, error) {
	text, err := url.PathUnescape(strings.TrimSuffix(filepath.Base(file), suffix))
	if err != nil {
		return nil, err
	}
	return policy.Parse(text)
}
