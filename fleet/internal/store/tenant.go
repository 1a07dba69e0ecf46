package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// TenantAsk asks for N units for a tenant of a group: see [Store.TakeTenant].
type TenantAsk struct {
	// Group has the limit of loans, and Charge is the limit of the same pace under which guaranteed units
	// are charged to the group.
	Group  TenantKey
	Charge *Limit
	// Own and Ceiling have no limit if the tenant has no guarantee or no ceiling.
	Own, Ceiling TenantKey
	// Barred reports whether the tenant must not borrow.
	Barred bool

	N int64
	// Patience is for the tenant's own funnel.
	Patience time.Duration
	// Returns is as in TakeAsk.
	Returns bool
	// Looks reports whether only the decision is wanted: nothing is taken.
	Looks bool
}

// TenantKey is a key and its limit, a policy.Funnel.
type TenantKey struct {
	Limit *Limit
	Key   string
}

// Way is how a tenant's units were taken.
type Way int

const (
	// Refused: no units were taken.
	Refused Way = iota
	// Guaranteed: the units are of the tenant's own funnel, and the group was charged.
	Guaranteed
	// Lent: the units are of the group, and of the tenant's ceiling if it has one.
	Lent
	// Ahead is Guaranteed for a turn within the patience.
	Ahead
)

// TenantTaken is the answer to a TenantAsk.
type TenantTaken struct {
	// Way of a look is how the units would have been taken, except for Ahead.
	Way Way
	// Group, Own and Ceiling are the decisions of the limits on the units, Group's about a loan unless the
	// units are guaranteed. A decision is zero without a limit. The words After are those before unless
	// units were taken.
	Group, Own, Ceiling Taken
}

// Decide returns the answer that the limits have for the words of the group, the tenant's own funnel and
// its ceiling.
func (a *TenantAsk) Decide(words [3]uint64, now policy.Instant) (t TenantTaken) {
	decide := func(l *Limit, word uint64, patience time.Duration) Taken {
		if l == nil {
			return Taken{At: now}
		}
		next, d := l.policy.Take(word, now, a.N, patience)
		return Taken{Decision: d, Before: word, After: next, At: now}
	}
	t.Own = decide(a.Own.Limit, words[1], 0)
	t.Group, t.Ceiling = decide(a.Group.Limit, words[0], 0), decide(a.Ceiling.Limit, words[2], 0)
	mayLend := !a.Barred && t.Group.Allowed && (a.Ceiling.Limit == nil || t.Ceiling.Allowed)
	switch {
	case t.Own.Allowed:
		t.Way = Guaranteed
	case mayLend && a.N != 0:
		t.Way = Lent
	case a.Patience > 0 && !a.Looks && a.Own.Limit != nil:
		if t.Own = decide(a.Own.Limit, words[1], a.Patience); t.Own.Allowed {
			t.Way = Ahead
		}
	}
	if t.Way == Guaranteed || t.Way == Ahead {
		t.Group = decide(a.Charge, words[0], 0)
	}
	if t.Way != Lent || a.Looks {
		t.Ceiling.After = t.Ceiling.Before
	}
	if t.Way == Refused || a.Looks {
		t.Group.After, t.Own.After = t.Group.Before, t.Own.Before
	}
	return t
}

// TakeTenant takes all units of an ask or none, in an atomic call of Redis. The tenant's own funnel comes
// first, and the group is charged with its units in any case. Otherwise the units are lent: the group
// must have room for them under the limit of loans, and so must the tenant's ceiling. Otherwise the own funnel is
// taken ahead, within the patience. In a cluster the names must share a hash tag.
func (s *Store) TakeTenant(ctx context.Context, a TenantAsk) (t TenantTaken, err error) {
	names := make([]string, 3)
	for i, k := range []TenantKey{a.Group, a.Own, a.Ceiling} {
		if k.Limit == nil {
			names[i] = names[0] // which is not used under this number
		} else if names[i], err = nameIn(k.Limit.prefix, k.Key); err != nil {
			return t, err
		}
	}
	if err := s.together(names); err != nil {
		return t, err
	}
	args := make([]string, 6)
	if !a.Looks && a.Own.Limit != nil && a.Own.Limit.canTake(a.N) {
		args[0], args[1] = a.part('2', a.Own.Limit, 0), a.part('1', a.Charge, 0)
		if a.Patience > 0 {
			args[4], args[5] = a.part('2', a.Own.Limit, a.Patience), args[1]
		}
	}
	if mayLend := !a.Looks && !a.Barred && a.Group.Limit.canTake(a.N); mayLend && a.Ceiling.Limit == nil {
		args[3] = a.part('1', a.Group.Limit, 0)
	} else if mayLend && a.Ceiling.Limit.canTake(a.N) {
		args[2], args[3] = a.part('3', a.Ceiling.Limit, 0), a.part('1', a.Group.Limit, 0)
	}
	r := read(s.runOne(ctx, s.scripts.tenant, logNames(names, names), args...), names[0], 2, 5)
	if r.err == nil && len(r.parts) == 2 { // the key of that number holds something else
		i := r.number()
		part := r.next()
		if value, _ := part.ToString(); r.err == nil && i >= 1 && i <= 3 {
			return t, notAWord(names[i-1], value)
		}
		return t, fmt.Errorf("%w (a reply about key %d)", ErrDisagrees, i)
	}
	us, way := r.number(), Way(r.number())
	var words [3]uint64
	for i := range words {
		if part := r.next(); r.err == nil {
			words[i], r.err = parseWord(part, false, names[i])
		}
	}
	if r.err != nil {
		return t, r.err
	}
	for i, k := range []TenantKey{a.Group, a.Own, a.Ceiling} {
		if k.Limit == nil {
			words[i] = 0
		}
	}
	if t = a.Decide(words, instant(us)); t.Way != way && a.N != 0 && !a.Looks {
		return TenantTaken{}, fmt.Errorf("%w (%s: words %v at %d, %d units, patience %v: the script says %d)",
			ErrDisagrees, shown(names[0]), words, instant(us), a.N, a.Patience, way)
	}
	return t, nil
}

// part returns the argument for the word of a number under a limit.
func (a *TenantAsk) part(number byte, l *Limit, patience time.Duration) string {
	if a.Returns {
		return string(number) + notingKind + packed(l.notingFigures(a.N, patience))
	}
	return string(number) + kinds[shape.Funnel] + packed(l.figures(a.N, patience))
}

func (s *Store) tenantScript() *script {
	return s.newScript(timeLua, noteLua, takeFunctions(kinds[shape.Funnel], notingKind), strings.NewReplacer(
		"READ", strings.Replace(readLua, "local w = redis.call('GET', key)\n", "", 1), "WRITE", writeLua,
	).Replace(lua("tenant")))
}
