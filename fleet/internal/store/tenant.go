package store

import (
	"context"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// TenantAsk asks for N units for a tenant of a group: see [Store.TakeTenant].
type TenantAsk struct {
	// Group is the group's key, with the limit for loans. Charge is a limit of the same pace, by which the group
	// is charged for guaranteed units.
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
	// Reserve is nil for a tenant whose guarantee was known in advance.
	Reserve *Reserve
}

// ReserveIdle is the least time for which a tenant that owes nothing keeps its grant.
const ReserveIdle = 5 * time.Minute

// Reserve makes a tenant's own funnel depend on a grant out of the group's reserve, which Redis keeps. A tenant
// keeps its grant until the tenant has owed nothing for ReserveIdle and another tenant needs the room.
type Reserve struct {
	Key string
	// Rest is the largest sum of all grants of the reserve.
	Rest Grant
	// Grant is the grant that the tenant's own funnel needs. If it has no rate, nothing is granted.
	Grant Grant
	// More is the time for which the tenant will owe beyond the debt in its word.
	More time.Duration
}

// Grant is a part of a reserve: units of a capacity, and a rate as a multiple of 2^-160 units a tick, rounded
// down. So grants whose exact rates fit a reserve always fit as rounded. Fewer than 2^30 grants exceed its rate by less
// than 2^-130 units a tick. That never comes to a tick of a word: words end at 2^63 ticks, and a unit has at most 2^62.
type Grant struct {
	Units int64
	Rate  *big.Int
}

const rateBits = 160

// NewGrant returns the grant of a capacity of units, and of a rate of count units in that many ticks.
func NewGrant(units int64, count, ticks *big.Int) Grant {
	rate := new(big.Int).Lsh(count, rateBits)
	return Grant{units, rate.Div(rate, ticks)}
}

// Plus returns the sum of g and of times as much as other.
func (g Grant) Plus(other Grant, times int64) Grant {
	return Grant{g.Units + times*other.Units, new(big.Int).Add(g.rate(), new(big.Int).Mul(big.NewInt(times), other.rate()))}
}

// Max returns the smallest grant into which each of g and other fits.
func (g Grant) Max(other Grant) Grant {
	if g.Units = max(g.Units, other.Units); g.rate().Cmp(other.rate()) < 0 {
		g.Rate = other.Rate
	}
	return g
}

// Within reports whether the grant is at most limit, in units and in rate.
func (g Grant) Within(limit Grant) bool {
	return g.Units <= limit.Units && g.rate().Cmp(limit.rate()) <= 0
}

func (g Grant) rate() *big.Int {
	if g.Rate == nil {
		return new(big.Int)
	}
	return g.Rate
}

// unitDigits and rateDigits are the lengths of a grant's text, with seven digits for each limb of lua/reserve.lua.
const unitDigits, rateDigits = 21, 49

// text is the grant in hexadecimal.
func (g Grant) text() string {
	return fmt.Sprintf("%0*x%0*x", unitDigits, g.Units, rateDigits, g.rate())
}

// parseGrant reads the text of a grant.
func parseGrant(text string) (grant Grant, err error) {
	rate, ok := new(big.Int).SetString(text[min(unitDigits, len(text)):], 16)
	if !ok || len(text) != unitDigits+rateDigits {
		return grant, fmt.Errorf("%w (a reserve of %d bytes)", ErrDisagrees, len(text))
	}
	grant.Rate = rate
	grant.Units, err = strconv.ParseInt(text[:unitDigits], 16, 64)
	return grant, err
}

// TenantKey is a key and its limit, a policy.Funnel.
type TenantKey struct {
	Limit *Limit
	Key   string
}

// Way says how a tenant's units were taken.
type Way int

const (
	// Refused: no units were taken.
	Refused Way = iota
	// Guaranteed: the units are of the tenant's own funnel, and the group was charged.
	Guaranteed
	// Lent: the units are of the group, and of the tenant's ceiling if it has one.
	Lent
	// Ahead: as Guaranteed, but the units are taken for a later turn, within the patience.
	Ahead
)

// TenantTaken is the answer to a TenantAsk.
type TenantTaken struct {
	// Way says how the units were taken. After a look it says how they would have been taken, but never Ahead.
	Way Way
	// Group, Own and Ceiling are the decisions of the limits on the units. Group is the decision about a loan,
	// unless the units are guaranteed. Without a limit a decision is zero. After equals Before unless units
	// were taken of that limit.
	Group, Own, Ceiling Taken
	// Granted reports whether the tenant has the grant of the Reserve. After a look it reports whether a take would
	// get the grant. A tenant without it has no own funnel. Given is the sum of all grants.
	Granted bool
	Given   Grant
}

// Decide returns the answer by the limits. words has the words of the group, of the tenant's own funnel and
// of its ceiling. isGranted reports whether the tenant has the grant of the Reserve, if there is one.
func (a TenantAsk) Decide(words [3]uint64, now policy.Instant, isGranted bool) (tenantTaken TenantTaken) {
	if tenantTaken.Granted = a.Reserve == nil || a.Reserve.Grant.Rate == nil || isGranted; !tenantTaken.Granted {
		a.Own = TenantKey{}
	}
	decide := func(limit *Limit, word uint64, patience time.Duration) Taken {
		if limit == nil {
			return Taken{At: now}
		}
		next, decision := limit.policy.Take(word, now, a.N, patience)
		return Taken{Decision: decision, Before: word, After: next, At: now}
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

// TakeTenant takes all units of an ask or none, in an atomic call of Redis. It tries three ways
// in order. First the units are taken of the tenant's own funnel, and the group is charged for them even if
// it has no room. Second the units are lent, if the group has room under the limit of loans, and the ceiling
// has room too. Third the units are taken of the own funnel ahead of time, within the patience, and the group
// is charged. In a cluster the names must share a hash tag.
func (s *Store) TakeTenant(ctx context.Context, tenantAsk TenantAsk) (tenantTaken TenantTaken, err error) {
	names := make([]string, 3)
	for i, tenantKey := range []TenantKey{tenantAsk.Group, tenantAsk.Own, tenantAsk.Ceiling} {
		if tenantKey.Limit == nil {
			names[i] = names[0] // the script does not use this name
		} else if names[i], err = nameIn(tenantKey.Limit.prefix, tenantKey.Key); err != nil {
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
	keys := logNames(names, names)
	if reserve := tenantAsk.Reserve; reserve != nil {
		name, err := nameIn(tenantAsk.Group.Limit.prefix, reserve.Key)
		if err != nil {
			return tenantTaken, err
		}
		member, looks := "", "0"
		if reserve.Grant.Rate != nil {
			member = reserve.Grant.text() + Tail(tenantAsk.Own.Key)
		}
		if tenantAsk.Looks {
			looks = "1"
		}
		keys = append(keys, name)
		args = append(args, member, reserve.Rest.text(), looks, strconv.FormatInt(ends(policy.Instant(reserve.More)), 10))
	}
	answer := read(s.runOne(ctx, s.scripts.tenant, keys, args...), names[0], 2, 5, 7)
	if answer.err == nil && len(answer.parts) == 2 { // the number of a key whose value is no word, and the value
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
	isGranted, given := false, Grant{}
	if tenantAsk.Reserve != nil {
		isGranted = answer.number() == 1
		part := answer.next()
		if text, _ := part.ToString(); answer.err == nil {
			given, answer.err = parseGrant(text)
		}
	}
	if answer.err != nil {
		return tenantTaken, answer.err
	}
	for i, tenantKey := range []TenantKey{tenantAsk.Group, tenantAsk.Own, tenantAsk.Ceiling} {
		if tenantKey.Limit == nil {
			words[i] = 0
		}
	}
	if tenantTaken = tenantAsk.Decide(words, instant(us), isGranted); tenantTaken.Way != way && tenantAsk.N != 0 && !tenantAsk.Looks {
		return TenantTaken{}, fmt.Errorf("%w (%s: words %v at %d, %d units, patience %v: the script says %d)",
			ErrDisagrees, shown(names[0]), words, instant(us), tenantAsk.N, tenantAsk.Patience, way)
	}
	tenantTaken.Given = given
	return tenantTaken, nil
}

// part returns the script's argument for a take under a limit. number is the number of its key in the script.
func (a *TenantAsk) part(number byte, limit *Limit, patience time.Duration) string {
	if a.Returns {
		return string(number) + notingKind + packed(limit.notingFigures(a.N, patience))
	}
	return string(number) + kinds[shape.Funnel] + packed(limit.figures(a.N, patience))
}

func (s *Store) tenantScript() *script {
	return s.newScript(timeLua, noteLua, takeFunctions(kinds[shape.Funnel], notingKind), strings.NewReplacer(
		"READ", strings.Replace(readLua, "local w = redis.call('GET', key)\n", "", 1), "WRITE", writeLua,
		"RESERVE", strings.ReplaceAll(lua("reserve"), "IDLE", strconv.FormatInt(ReserveIdle.Milliseconds(), 10)),
	).Replace(lua("tenant")))
}
