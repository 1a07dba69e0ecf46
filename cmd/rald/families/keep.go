package families

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ral-limiter/ral/policy"
)

// Faults are why limits of a configuration have no engine, in the order of the limits. It is nil
// for those without a fault.
type Faults []error

// Error implements error.
func (f Faults) Error() string { return errors.Join(f...).Error() }

// Unwrap returns the faults.
func (f Faults) Unwrap() []error { return f }

// most is Most, or its default.
func (c Config) most() int {
	switch {
	case c.Most > 0:
		return c.Most
	case c.Fleet != nil && c.Fleet.Leased:
		return mostLeased
	}
	return defaultMost
}

// Room returns nil if there is room for the families of all limits of a configuration, and
// otherwise Faults. It depends on nothing else, and makes no engine.
func (c Config) Room(limits ...policy.Policy) error {
	most, n := c.most(), 0
	var families []policy.Policy
	leased := map[string]bool{}
	var faults Faults
	for i, limit := range limits {
		text := limit.String()
		isLeased := c.isLeased(limit)
		switch {
		case isLeased && leased[text], !isLeased && isOneOf(families, limit):
			continue
		case n == most:
			if faults == nil {
				faults = make(Faults, len(limits))
			}
			faults[i] = tooMany(n, "configured")
			continue
		case isLeased:
			leased[text] = true
		default:
			families = append(families, representative(limit))
		}
		n++
	}
	if faults != nil {
		return faults
	}
	return nil
}

func isOneOf(families []policy.Policy, limit policy.Policy) bool {
	relative, ok := limit.(policy.Relative)
	return ok && slices.ContainsFunc(families, relative.Reads)
}

// Keep returns the engines for the limits of a configuration, in their order, and makes those that
// there are not. No number of engines of calls or of earlier configurations keeps them from being
// made. The error is Faults, and if there is no room for all of them no engine is made.
//
// The engines stay until Release. Only one owner may call Keep and Release.
func (s *Families) Keep(limits ...policy.Policy) ([]Family, error) {
	kept := make([]Family, len(limits))
	if err := s.config.Room(limits...); err != nil {
		return kept, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var faults Faults
	for i, limit := range limits {
		family, err := s.open(limit, true)
		if err != nil {
			if faults == nil {
				faults = make(Faults, len(limits))
			}
			faults[i] = err
			continue
		}
		family.lifetime().kept = true
		kept[i] = family
	}
	if faults != nil {
		return kept, faults
	}
	return kept, nil
}

// Release says which engines the configuration in force needs. The others count as those of calls
// from then on. Each of them ends, with its saved state, unless it is remembered, keys owe in it,
// or Of has returned it. No call of the configuration may be under way in one that ends. Keys in
// Redis stay there.
func (s *Families) Release(inForce, remembered map[Family]bool) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	var stay, end []Family
	for i, family := range *s.all.Load() {
		family.lifetime().kept = inForce[family]
		hasClient := i == 0 && s.config.Fleet != nil // of Redis, for the others
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
	err := family.close()
	if err != nil || family.Engine() == nil || s.config.Dir == "" {
		return err
	}
	// Without its file the family is forgotten over a restart, too. Its lock may go with it, as
	// the directory is locked.
	for _, file := range []string{s.path(family.Limit()), s.path(family.Limit()) + ".lock"} {
		if wrong := os.Remove(file); !errors.Is(wrong, fs.ErrNotExist) {
			err = errors.Join(err, wrong)
		}
	}
	return err
}

// The users of a family, for Release.
const (
	configured = iota // none but the configuration
	clients           // calls that bring their limit, too
	retired           // it has ended, or is about to
)

// lifetime says which users a family has.
type lifetime struct {
	kept   bool         // for the configuration; guarded by Families.mu
	users  atomic.Int32 // see claim
	saving sync.Mutex   // held by Sync, and while Release ends the family
}

// claim makes the family one of calls, and reports whether it has not ended.
func (l *lifetime) claim() bool {
	return l.users.Load() == clients || l.users.CompareAndSwap(configured, clients) || l.users.Load() == clients
}

// retire reports whether the family may end, as no call has claimed it. None can from then on.
func (l *lifetime) retire() bool { return l.users.CompareAndSwap(configured, retired) }

// isOver reports whether the family has ended, or is about to.
func (l *lifetime) isOver() bool { return l.users.Load() == retired }

// owes reports whether any key owes in this process.
func owes(family Family) bool {
	for range family.Owing() {
		return true
	}
	return false
}
