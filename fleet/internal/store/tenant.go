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
func (a *TenantAsk) Decide(words [3]uint64, now policy.Instant) (tenantTaken TenantTaken) {
	decide := func(limit *Limit, word uint64, patience time.Duration) Taken {
		if limit == nil {
			return Taken{At: now}
		}
		next, d := limit.policy.Take(word, now, a.N, patience)
		return Taken{Decision: d, Before: word, After: next, At: now}
	}
	tenantTaken.Own = decide(a.Own.Limit, words[1], 0)
	tenantTaken.Group, tenantTaken.Ceiling = decide(a.Group.Limit, words[0], 0), decide(a.Ceiling.Limit, words[2], 0)
	mayLend := !a.Barred && tenantTaken.Group.Allowed && (a.Ceiling.Limit == nil || tenantTaken.Ceiling.Allowed)
	switch {
	case tenantTaken.Own.Allowed:
		tenantTaken.Way = Guaranteed
	case mayLend && a.N != 0:
		tenantTaken.Way = Lent
	case a.Patience > 0 && !a.Looks && a.Own.Limit != nil:
		if tenantTaken.Own = decide(a.Own.Limit, words[1], a.Patience); tenantTaken.Own.Allowed {
			tenantTaken.Way = Ahead
		}
	}
	if tenantTaken.Way == Guaranteed || tenantTaken.Way == Ahead {
		tenantTaken.Group = decide(a.Charge, words[0], 0)
	}
	if tenantTaken.Way != Lent || a.Looks {
		tenantTaken.Ceiling.After = tenantTaken.Ceiling.Before
	}
	if tenantTaken.Way == Refused || a.Looks {
		tenantTaken.Group.After, tenantTaken.Own.After = tenantTaken.Group.Before, tenantTaken.Own.Before
	}
	return tenantTaken
}

// TakeTenant takes all units of an ask or none, in an atomic call of Redis. The tenant's own funnel comes
// first, and the group is charged with its units in any case. Otherwise the units are lent: the group
// must have room for them under the limit of loans, and so must the tenant's ceiling. Otherwise the own funnel is
// taken ahead, within the patience. In a cluster the names must share a hash tag.
func (s *Store) TakeTenant(ctx context.Context, tenantAsk TenantAsk) (tenantTaken TenantTaken, err error) {
	names := make([]string, 3)
	for i, k := range []TenantKey{tenantAsk.Group, tenantAsk.Own, tenantAsk.Ceiling} {
		if k.Limit == nil {
			names[i] = names[0] // which is not used under this number
		} else if names[i], err = nameIn(k.Limit.prefix, k.Key); err != nil {
			return tenantTaken, err
		}
	}
	if err := s.together(names); err != nil {
		return tenantTaken, err
	}
	args := make([]string, 6)
	if !tenantAsk.Looks && tenantAsk.Own.Limit != nil && tenantAsk.Own.Limit.canTake(tenantAsk.N) {
		args[0], args[1] = tenantAsk.part('2', tenantAsk.Own.Limit, 0), tenantAsk.part('1', tenantAsk.Charge, 0)
		if tenantAsk.Patience > 0 {
			args[4], args[5] = tenantAsk.part('2', tenantAsk.Own.Limit, tenantAsk.Patience), args[1]
		}
	}
	if mayLend := !tenantAsk.Looks && !tenantAsk.Barred && tenantAsk.Group.Limit.canTake(tenantAsk.N); mayLend && tenantAsk.Ceiling.Limit == nil {
		args[3] = tenantAsk.part('1', tenantAsk.Group.Limit, 0)
	} else if mayLend && tenantAsk.Ceiling.Limit.canTake(tenantAsk.N) {
		args[2], args[3] = tenantAsk.part('3', tenantAsk.Ceiling.Limit, 0), tenantAsk.part('1', tenantAsk.Group.Limit, 0)
	}
	answer := read(s.runOne(ctx, s.scripts.tenant, logNames(names, names), args...), names[0], 2, 5)
	if answer.err == nil && len(answer.parts) == 2 { // the key of that number holds something else
		i := answer.number()
		part := answer.next()
		if value, _ := part.ToString(); answer.err == nil && i >= 1 && i <= 3 {
			return tenantTaken, notAWord(names[i-1], value)
		}
		return tenantTaken, fmt.Errorf("%w (a reply about key %d)", ErrDisagrees, i)
	}
	us, way := answer.number(), Way(answer.number())
	var words [3]uint64
	for i := range words {
		if part := answer.next(); answer.err == nil {
			words[i], answer.err = parseWord(part, false, names[i])
		}
	}
	if answer.err != nil {
		return tenantTaken, answer.err
	}
	for i, k := range []TenantKey{tenantAsk.Group, tenantAsk.Own, tenantAsk.Ceiling} {
		if k.Limit == nil {
			words[i] = 0
		}
	}
	if tenantTaken = tenantAsk.Decide(words, instant(us)); tenantTaken.Way != way && tenantAsk.N != 0 && !tenantAsk.Looks {
		return TenantTaken{}, fmt.Errorf("%w (%s: words %v at %d, %d units, patience %v: the script says %d)",
			ErrDisagrees, shown(names[0]), words, instant(us), tenantAsk.N, tenantAsk.Patience, way)
	}
	return tenantTaken, nil
}

// part returns the argument for the word of a number under a limit.
func (a *TenantAsk) part(number byte, limit *Limit, patience time.Duration) string {
	if a.Returns {
		return string(number) + notingKind + packed(limit.notingFigures(a.N, patience))
	}
	return string(number) + kinds[shape.Funnel] + packed(limit.figures(a.N, patience))
}

func (s *Store) tenantScript() *script {
	return s.newScript(timeLua, noteLua, takeFunctions(kinds[shape.Funnel], notingKind), strings.NewReplacer(
		"READ", strings.Replace(readLua, "local w = redis.call('GET', key)\n", "", 1), "WRITE", writeLua,
	).Replace(lua("tenant")))
}
