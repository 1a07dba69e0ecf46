package configured

import (
	"errors"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
)

// Room returns nil if Families of that configuration have room for a file's limits. The error joins
// a *configfile.Error for each limit without room, or with a warn-at that is refused. Set returns the same.
func Room(in families.Config, file *limitfile.File) error {
	return errors.Join(leasedFaults(in.Fleet, file), in.Room(needsOf(file)...))
}

func needsOf(file *limitfile.File) (all []families.Need) {
	for _, named := range file.All() {
		if !named.IsShared() {
			all = append(all, families.Need{Limit: named.Policy, At: named.Place})
		}
	}
	return all
}

// leasedFaults returns the fault of each limit with a warn-at or shares if the limits are leased.
func leasedFaults(fleet *families.Fleet, file *limitfile.File) (err error) {
	if fleet == nil || !fleet.Leased {
		return nil
	}
	for _, named := range file.All() {
		switch limit := named.Of; {
		case named.IsShared():
			err = errors.Join(err, limit.Fault("", errors.New("shares are accepted without -fleet leased: a lease is units taken ahead, which are not there for the tenant that they are guaranteed to")))
		case limit != nil && len(limit.WarnAt) > 0 && named.Name == limit.Name:
			err = errors.Join(err, limit.Fault("warn-at", errors.New("it is accepted without -fleet leased: a server knows its leases, not what remains of a limit")))
		}
	}
	return err
}

// bindingIn returns the names of limits that must keep their family: limits in force, and removed
// limits while keys owe. In Redis keys may owe to other servers, which do not know of a change.
func bindingIn(table map[string]*limit) map[string]bool {
	binding, gone := map[string]bool{}, map[families.InProcess]bool{}
	for name, one := range table {
		if here, ok := one.family.(families.InProcess); one.gone && ok {
			gone[here] = true
		} else {
			binding[name] = true
		}
	}
	for family := range gone {
		for key := range family.Owing() {
			name, ok := nameOf(key)
			if one := table[name]; ok && one != nil && one.family == family {
				binding[name] = true
			}
		}
	}
	return binding
}

// release lets go of the engines that no limit needs. The caller holds changing.
func (l *Limits) release() {
	inForce, remembered := map[families.Family]bool{}, map[families.Family]bool{}
	for _, one := range *l.table.Load() {
		if one.gone {
			remembered[one.family] = true
		} else {
			inForce[one.family] = true
		}
	}
	if err := l.config.Families.Release(inForce, remembered); err != nil {
		l.config.Log.Error("an engine that no limit needs any more has ended with an error", "error", err)
	}
}
