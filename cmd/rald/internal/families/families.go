// Package families keeps the keys of any number of limits in a few engines, one for each family of
// limits: see policy.Relative. A call finds the engine by its limit, so a thousand limits need no
// more goroutines than ten. With Config.Fleet limiters of package fleet replace the engines, and
// Redis keeps the keys. The package is a part of rald and may change in any release. Start reading
// at Families.Of, for the limits of calls, and at Families.Keep, for the limits of a configuration.
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

// Config configures Families. The zero value keeps no state.
type Config struct {
	// Name begins the names of the engines. The default is "rald".
	Name string
	// MaxKeys bounds the keys of each engine, by default as in engine.Config.
	MaxKeys int
	// Max bounds the families of configured limits: see Room. Calls may add as many further families.
	// Families of saved states and former configurations count among these. The default is 32, or 256
	// if Fleet is Leased.
	Max int
	// Fleet, if not nil, keeps the keys in Redis, and Dir must be empty.
	Fleet *Fleet
	// Dir is the directory of the saved states, created if missing. If empty nothing is saved.
	Dir string
	// Every is the pause between two saves: see engine.State.
	Every time.Duration
	// OnEvent is called with the events of the engines' goroutines.
	OnEvent func(engine.Event)
}

const (
	defaultMax = 32
	// suffix ends the name of a saved state, after the text of its limit.
	suffix = ".state"
	// lockName is the name of the lock of Config.Dir, before ".lock".
	lockName = "rald"
)

// Families holds the engines. It is safe for concurrent use.
type Families struct {
	config Config
	all    atomic.Pointer[[]Family]
	// known has the families by the limits of calls, over a fleet.
	known Known[policy.Policy, Family]

	// mu is held while an engine is added or released, and by Close.
	mu     sync.Mutex
	closed bool
	// unlock unlocks config.Dir, if that is not empty.
	unlock func() error
}

// ErrTooMany reports a limit that needs an engine beyond the bound.
var ErrTooMany = errors.New("no room for another family of limits")

// New returns Families with an engine for each state in config.Dir. It locks the directory until
// Close: New fails if another process has it.
func New(config Config) (*Families, error) {
	config.Max = config.max()
	config.Name = cmp.Or(config.Name, "rald")
	families := &Families{config: config, known: NewKnown[policy.Policy, Family]()}
	families.all.Store(new([]Family))
	if config.Fleet != nil {
		return families, families.connect()
	}
	if config.Dir == "" {
		return families, nil
	}
	err := os.MkdirAll(config.Dir, 0o700)
	if err == nil {
		families.unlock, err = statefile.Lock(filepath.Join(config.Dir, lockName))
	}
	var files []string
	if err == nil {
		files, err = filepath.Glob(filepath.Join(config.Dir, "*"+suffix))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the directory of the saved state: %w", err), families.Close())
	}
	for _, file := range files {
		limit, err := limitOf(file)
		if err == nil && fileOf(representative(limit)) != filepath.Base(file) {
			err = fmt.Errorf("a file of these keys is named %s", fileOf(representative(limit)))
		}
		if err == nil {
			_, err = families.add(limit)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("the saved state %s: %w", file, err), families.Close())
		}
	}
	return families, nil
}

// Of returns the engine for a call's limit, making it if needed. Release then never ends it. The
// error is ErrTooMany, engine.ErrClosed after Close, or the error of a saved state that cannot be
// loaded.
func (s *Families) Of(limit policy.Policy) (Family, error) {
	var family Family
	if s.config.Fleet != nil {
		family, _ = s.known.values.Load(limit)
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
		// Release, which also holds mu, has dropped a family that it ended.
		return s.known.Get(limit, func() (Family, error) { return family, nil })
	}
	return family, nil
}

// Find returns the existing engine for a limit. Unlike Of it lets Release end the engine.
func (s *Families) Find(limit policy.Policy) (family Family, ok bool) {
	if s.config.isLeased(limit) {
		family = s.find(limit, true)
	}
	if family == nil {
		family = s.find(limit, false)
	}
	return family, family != nil
}

func (s *Families) open(limit policy.Policy, kept bool) (family Family, err error) {
	if s.config.isLeased(limit) {
		family, err = s.openIn(limit, true, kept)
		if field := (*policy.FieldError)(nil); !errors.As(err, &field) || field.Field != "Policy" {
			return family, err
		}
		// The limit is too small to be leased, and is so on every server.
	}
	return s.openIn(limit, false, kept)
}

func (s *Families) openIn(limit policy.Policy, leased, kept bool) (Family, error) {
	if family := s.find(limit, leased); family != nil {
		return family, nil
	}
	if err := s.checkRoom(kept); err != nil {
		return nil, err
	}
	if s.config.Fleet != nil {
		return s.addShared(limit, leased)
	}
	return s.add(limit)
}

// find returns the limiter that leases the limit if leased is true, and otherwise the family of the
// limit. It returns nil if there is none.
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

func (s *Families) add(limit policy.Policy) (Family, error) {
	member := representative(limit)
	config := engine.Config{Name: s.config.Name + " " + familyName(member), Policy: member, MaxKeys: s.config.MaxKeys, OnEvent: s.config.OnEvent}
	if s.config.Dir != "" {
		config.State = engine.State{Path: s.path(member), Every: s.config.Every}
	}
	ledger := newLedger()
	limiter, err := engine.New(config, engine.KeyCodec("string", ledger.encode, ledger.decode))
	if err != nil {
		return nil, err
	}
	ledger.engine = limiter
	family := &local{limit: member, engine: limiter, ledger: ledger, life: lifetime{close: limiter.Close}}
	s.append(family)
	return family, nil
}

// checkRoom returns the reason that no engine can be added, or nil. Kept engines need no check, since
// Room has checked them. The caller holds mu.
func (s *Families) checkRoom(kept bool) error {
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
	if n < s.config.Max {
		return nil
	}
	return tooMany(n, "not configured")
}

func tooMany(n int, which string) error {
	return fmt.Errorf("%w: there are already %d that are %s", ErrTooMany, n, which)
}

func (s *Families) append(family Family) {
	more := slices.Concat(*s.all.Load(), []Family{family})
	s.all.Store(&more)
}

// All returns the engines in order of their making.
func (s *Families) All() iter.Seq[Family] {
	return func(yield func(Family) bool) {
		for _, family := range *s.all.Load() {
			if !yield(family) {
				return
			}
		}
	}
}

// Fleet returns the Redis that keeps the keys, or nil for engines.
func (s *Families) Fleet() *Fleet { return s.config.Fleet }

// Health returns the fault of the first engine that has one. Without Redis it returns no error, and the names and
// faults of the limiters in lines.
func (s *Families) Health() (without string, err error) {
	for family := range s.All() {
		err := family.Health()
		switch {
		case err == nil:
		case EngineOf(family) == nil:
			without += family.Name() + ": " + err.Error() + "\n"
		default:
			return without, fmt.Errorf("%s: %w", family.Name(), err)
		}
	}
	return without, nil
}

// Servers returns the number of servers that keep the keys in Redis, or 1 for engines. guess is as for
// [fleet.Limiter.Servers].
func (s *Families) Servers(guess bool) int {
	n := 1
	for family := range s.All() {
		if there, ok := family.(InRedis); ok {
			n = max(n, there.Fleet().Servers(guess))
		}
	}
	return n
}

// Close saves the states and ends the engines. Later calls are refused.
func (s *Families) Close() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	// The first family owns the client that the others use, so it is closed last.
	for _, family := range slices.Backward(*s.all.Load()) {
		err = errors.Join(err, family.lifetime().close())
	}
	if s.unlock != nil {
		err = errors.Join(err, s.unlock())
	}
	return err
}

// counted matches a windowed limit's text: its kind, the units, and the rest.
var counted = regexp.MustCompile(`^(window|sliding|at most) [^/]+(/.*)$`)

// representative returns the limit that stands for the family of a limit, whatever the limit's
// units. It names the family's saved state.
func representative(limit policy.Policy) policy.Policy {
	text := limit.String()
	// Short windows of many units are a different family.
	windows := []string{counted.ReplaceAllString(text, "$1 1$2"), counted.ReplaceAllString(text, "$1 1000000$2")}
	for _, text := range append([]string{"funnel 1, 1/s", "queue 1, 1/s", "bursty 1/s, 1"}, windows...) {
		of, err := policy.Parse(text)
		if relative, ok := limit.(policy.Relative); err == nil && ok && relative.Reads(of) {
			return of
		}
	}
	return limit
}

func familyName(of policy.Policy) string {
	kind, _, _ := strings.Cut(of.String(), ",")
	return strings.Replace(strings.TrimSuffix(kind, " 1"), " 1/", "/", 1)
}

func (s *Families) path(of policy.Policy) string { return filepath.Join(s.config.Dir, fileOf(of)) }

func fileOf(of policy.Policy) string {
	return url.PathEscape(strings.ReplaceAll(of.String(), " ", "_")) + suffix
}

func limitOf(file string) (policy.Policy, error) {
	text, err := url.PathUnescape(strings.TrimSuffix(filepath.Base(file), suffix))
	if err != nil {
		return nil, err
	}
	return policy.Parse(text)
}
