package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strconv"
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
	// Reserve is nil for a tenant whose guarantee was known in advance.
	Reserve *Reserve
}

// ReserveIdle is how long a tenant that owes nothing keeps its grant at least.
const ReserveIdle = 5 * time.Minute

// Reserve has a tenant's own funnel depend on a grant out of the group's reserve, which Redis keeps. A tenant
// keeps its grant until it has owed nothing for ReserveIdle, and another tenant needs the room.
type Reserve struct {
	Key string
	// Rest is what all grants of the reserve may be together.
	Rest Grant
	// Grant is what the own funnel needs. Without a rate nothing is granted.
	Grant Grant
	// More is the time for which the tenant is about to owe beyond what its word says.
	More time.Duration
}

// Grant is a part of a reserve: units of a capacity, and a rate as a multiple of 2^-160 units a tick, rounded
// down. So grants whose exact rates fit a reserve always fit. Fewer than 2^30 grants exceed its rate by less
// than 2^-130 units a tick. That never comes to a tick of a word: words end at 2^63 ticks, and a unit has at most 2^62.
type Grant struct {
	Units int64
	Rate  *big.Int
}

const rateBits, limbBits = 160, 40

// NewGrant returns the grant of units, and of the rate of count units in so many ticks.
func NewGrant(units int64, count, ticks *big.Int) Grant {
	rate := new(big.Int).Lsh(count, rateBits)
	return Grant{units, rate.Div(rate, ticks)}
}

// Plus returns the sum of g and of times as much as other.
func (g Grant) Plus(other Grant, times int64) Grant {
	return Grant{g.Units + times*other.Units, new(big.Int).Add(g.rate(), new(big.Int).Mul(big.NewInt(times), other.rate()))}
}

// Max returns the smallest grant that both fit.
func (g Grant) Max(other Grant) Grant {
	if g.Units = max(g.Units, other.Units); g.rate().Cmp(other.rate()) < 0 {
		g.Rate = other.Rate
	}
	return g
}

// Within reports whether the grant is a part of limit.
func (g Grant) Within(limit Grant) bool {
	return g.Units <= limit.Units && g.rate().Cmp(limit.rate()) <= 0
}

func (g Grant) rate() *big.Int {
	if g.Rate == nil {
		return new(big.Int)
	}
	return g.Rate
}

// figures are the limbs of lua/reserve.lua.
func (g Grant) figures() string {
	limbs := []float64{float64(g.Units >> limbBits), float64(g.Units & (1<<limbBits - 1))}
	for shift := uint(rateBits - limbBits); ; shift -= limbBits {
		limb := new(big.Int).Rsh(g.rate(), shift)
		if len(limbs) > 2 {
			limb.And(limb, big.NewInt(1<<limbBits-1))
		}
		limbs = append(limbs, float64(limb.Int64()))
		if shift == 0 {
			return packed(limbs)
		}
	}
}

// granted returns the grant of such limbs.
func granted(figures string) Grant {
	g := Grant{Rate: new(big.Int)}
	for i := 0; i < len(figures)/8; i++ {
		limb := int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(figures[8*i:]))))
		if i < 2 {
			g.Units = g.Units<<limbBits + limb
		} else {
			g.Rate.Add(g.Rate.Lsh(g.Rate, limbBits), big.NewInt(limb))
		}
	}
	return g
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
	// Granted reports whether the tenant has the grant of the Reserve, or would have it if the call did not look.
	// Otherwise it has no own funnel. Given is the sum of all grants.
	Granted bool
	Given   Grant
}

// Decide returns the answer that the limits have for the words of the group, the tenant's own funnel and
// its ceiling. isGranted is for Reserve.
func (a TenantAsk) Decide(words [3]uint64, now policy.Instant, isGranted bool) (tenantTaken TenantTaken) {
	if tenantTaken.Granted = a.Reserve == nil || a.Reserve.Grant.Rate == nil || isGranted; !tenantTaken.Granted {
		a.Own = TenantKey{}
	}
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
	keys := logNames(names, names)
	if reserve := tenantAsk.Reserve; reserve != nil {
		name, err := nameIn(tenantAsk.Group.Limit.prefix, reserve.Key)
		if err != nil {
			return tenantTaken, err
		}
		member, looks := "", "0"
		if reserve.Grant.Rate != nil {
			member = reserve.Grant.figures() + Tail(tenantAsk.Own.Key)
		}
		if tenantAsk.Looks {
			looks = "1"
		}
		keys = append(keys, name)
		args = append(args, member, reserve.Rest.figures(), looks, strconv.FormatInt(ends(policy.Instant(reserve.More)), 10))
	}
	answer := read(s.runOne(ctx, s.scripts.tenant, keys, args...), names[0], 2, 5, 7)
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
	isGranted, given := false, Grant{}
	if tenantAsk.Reserve != nil {
		isGranted = answer.number() == 1
		part := answer.next()
		figures, _ := part.ToString()
		if len(figures) != len(given.figures()) && answer.err == nil {
			answer.err = fmt.Errorf("%w (a reserve of %d bytes)", ErrDisagrees, len(figures))
		}
		given = granted(figures)
	}
	if answer.err != nil {
		return tenantTaken, answer.err
	}
	for i, k := range []TenantKey{tenantAsk.Group, tenantAsk.Own, tenantAsk.Ceiling} {
		if k.Limit == nil {
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
		"RESERVE", strings.ReplaceAll(lua("reserve"), "IDLE", strconv.FormatInt(ReserveIdle.Milliseconds(), 10)),
	).Replace(lua("tenant")))
}
