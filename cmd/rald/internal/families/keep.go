package families

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/policy"
)

// Need is a limit of a configuration, with its place for faults. The zero Place is none.
type Need struct {
	Limit policy.Policy
	At    configfile.Place
}

func (n Need) fault(err error) error {
	if n.At == (configfile.Place{}) {
		return err
	}
	return n.At.Error(err)
}

func (c Config) max() int {
	switch {
	case c.Max > 0:
		return c.Max
	case c.Fleet != nil && c.Fleet.Leased:
		return maxLeased
	}
	return defaultMax
}

// Room returns nil if the families of a configuration's limits do not exceed Max. Otherwise the
// error joins the fault of each limit without room. The result depends only on c and needs. Room
// makes no engine.
func (c Config) Room(needs ...Need) error {
	bound, n := c.max(), 0
	var families []policy.Policy
	leased := map[string]bool{}
	var faults []error
	for _, need := range needs {
		text := need.Limit.String()
		isLeased := c.isLeased(need.Limit)
		switch {
		case isLeased && leased[text], !isLeased && isOneOf(families, need.Limit):
			continue
		case n == bound:
			faults = append(faults, need.fault(tooMany(n, "configured")))
			continue
		case isLeased:
			leased[text] = true
		default:
			families = append(families, representative(need.Limit))
		}
		n++
	}
	return errors.Join(faults...)
}

func isOneOf(families []policy.Policy, limit policy.Policy) bool {
	relative, ok := limit.(policy.Relative)
	return ok && slices.ContainsFunc(families, relative.Reads)
}

// Keep returns the engines for the limits of a configuration, in their order, making them if
// needed. Engines of calls or of earlier configurations never prevent that. The error joins the
// fault of each limit without an engine; if there is no room for all of them no engine is made. The
// engines stay until Release. Only one owner may call Keep and Release.
func (s *Families) Keep(needs ...Need) ([]Family, error) {
	kept := make([]Family, len(needs))
	if err := s.config.Room(needs...); err != nil {
		return kept, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var faults []error
	for i, need := range needs {
		family, err := s.open(need.Limit, true)
		if err != nil {
			faults = append(faults, need.fault(err))
			continue
		}
		family.lifetime().kept = true
		kept[i] = family
	}
	return kept, errors.Join(faults...)
}

// Release names the engines that the configuration in force needs. The others then count as engines
// of calls. Each of the others is closed, and its saved state is deleted, unless it is remembered,
// keys owe in it, or Of has returned it. No call of the configuration may be under way in it. Keys
// in Redis stay there.
func (s *Families) Release(inForce, remembered map[Family]bool) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	var stay, end []Family
	for i, family := range *s.all.Load() {
		family.lifetime().kept = inForce[family]
		// The first family owns the client of Redis that the others use, so it stays.
		hasClient := i == 0 && s.config.Fleet != nil
		if inForce[family] || remembered[family] || hasClient || owes(family) || !family.lifetime().retire() {
			stay = append(stay, family)
		} else {
			end = append(end, family)
		}
	}
	s.all.Store(&stay)
	for _, family := range end {
		s.known.drop(family)
		err = errors.Join(err, s.end(family))
	}
	return err
}

// end ends an engine without keys that owe. The caller holds mu.
func (s *Families) end(family Family) error {
	family.lifetime().saving.Lock()
	defer family.lifetime().saving.Unlock()
	err := family.lifetime().close()
	if err != nil || s.config.Dir == "" {
		return err
	}
	// Without its file a restart forgets the family. The lock of the file is not needed, since the
	// directory is locked.
	for _, file := range []string{s.path(family.Limit()), s.path(family.Limit()) + ".lock"} {
		if wrong := os.Remove(file); !errors.Is(wrong, fs.ErrNotExist) {
			err = errors.Join(err, wrong)
		}
	}
	return err
}

// Users of a family, for Release.
const (
	// Only the configuration uses a configured family.
	configured = iota
	// Calls that bring their limit also use such a family.
	clients
	// A retired family has ended, or is about to end.
	retired
)

type lifetime struct {
	// close closes the engine or limiter.
	close func() error
	// kept means that the configuration keeps the family. Families.mu guards it.
	kept bool
	// users is configured, clients or retired.
	users atomic.Int32
	// saving is held by Sync, and while Release ends the family.
	saving sync.Mutex
}

func (l *lifetime) claim() bool {
	return l.users.Load() == clients || l.users.CompareAndSwap(configured, clients) || l.users.Load() == clients
}

// retire reports whether no call has claimed the family. None can from then on.
func (l *lifetime) retire() bool { return l.users.CompareAndSwap(configured, retired) }

func (l *lifetime) isOver() bool { return l.users.Load() == retired }

// health returns the fault that check finds, or nil if the family has ended.
func (l *lifetime) health(check func() error) error {
	if l.isOver() {
		return nil
	}
	return check()
}

func owes(family Family) bool {
	if here, ok := family.(InProcess); ok {
		for range here.Owing() {
			return true
		}
	}
	return false
}
