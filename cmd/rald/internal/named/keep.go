package named

import (
	"errors"
	"fmt"

	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/spaces"
	"github.com/ral-limiter/ral/policy"
)

// Room returns nil if there is room for the limits of a file in Spaces of that configuration. The
// error joins a *fault.Error for each limit without room. Set returns the same.
func Room(of spaces.Config, file *limitfile.File) error {
	return errors.Join(faultsOf(file, of.Room(policiesOf(file)...))...)
}

// policiesOf returns the limits of a file in its order.
func policiesOf(file *limitfile.File) (all []policy.Policy) {
	for _, name := range file.Names() {
		all = append(all, file.Limits[name])
	}
	return all
}

// faultsOf returns a *fault.Error for each limit of a file that has no engine.
func faultsOf(file *limitfile.File, err error) (all []error) {
	var faults spaces.Faults
	errors.As(err, &faults)
	for i, fault := range faults {
		if fault != nil {
			all = append(all, file.Fault(file.Names()[i], fault))
		}
	}
	return all
}

// owingIn returns the names of limits that are in no file any more and of which keys owe.
func owingIn(table map[string]*limit) map[string]bool {
	gone := map[*spaces.Space]bool{}
	for _, one := range table {
		if one.gone && one.space.CanCarry() {
			gone[one.space] = true
		}
	}
	owing := map[string]bool{}
	for space := range gone {
		for key := range space.Owing() {
			name, ok := nameOf(key)
			if one := table[name]; ok && one != nil && one.space == space {
				owing[name] = true
			}
		}
	}
	return owing
}

// release lets go of the engines that no limit needs any more. The caller holds changing.
func (l *Limits) release() {
	table := *l.table.Load()
	if l.unsaved {
		// A saved state may be the only one that has what was carried from it.
		if err := l.saveEverything(table); err != nil {
			l.config.Log.Error("what keys owe since limits have changed is still not saved", "error", err)
			return
		}
		l.unsaved = false
	}
	inForce, remembered := map[*spaces.Space]bool{}, map[*spaces.Space]bool{}
	for _, one := range table {
		if one.gone {
			remembered[one.space] = true
		} else {
			inForce[one.space] = true
		}
	}
	if err := l.config.Spaces.Release(inForce, remembered); err != nil {
		l.config.Log.Error("an engine that no limit needs any more has ended with an error", "error", err)
	}
}

// saveEverything saves keys where they are and then where they were, and then says that none are
// on their way.
func (l *Limits) saveEverything(table map[string]*limit) error {
	for _, one := range table {
		if err := one.space.Sync(); err != nil {
			return fmt.Errorf("%s: %w", one.space.Name(), err)
		}
	}
	for space := range l.config.Spaces.All() {
		if err := space.Sync(); err != nil {
			return fmt.Errorf("%s: %w", space.Name(), err)
		}
	}
	return l.remember(table, nil)
}
