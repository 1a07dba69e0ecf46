package engine

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// bucket is a policy.Funnel or a policy.InFlight. Shares need policy.Relative of a limit, to compare it with
// other limits.
type bucket interface {
	policy.Policy
	policy.Relative
}

// bucketOf returns a limit for units of the kind of longest, which is 0 for a funnel, and the longest time of units in use.
func bucketOf(limit policy.Policy, longest time.Duration) (b bucket, ok bool) {
	if b, ok = limit.(bucket); !ok || shape.IsNil(limit) || policy.MaxTimeInUse(limit) != longest {
		return nil, false
	}
	return b, longest > 0 || shapeOf(b).Kind == shape.Funnel
}

// shapeOf returns the shape of a funnel, and the zero Shape of a policy.InFlight.
func shapeOf(bucket bucket) (form shape.Shape) {
	if shaped, ok := bucket.(shape.Shaped); ok {
		form = shaped.Shape()
	}
	return form
}

// wanted says which limits a group of that kind can have.
func wanted(longest time.Duration) string {
	if longest > 0 {
		return fmt.Sprintf("a policy.InFlight with the longest time of Total, %v", longest)
	}
	return "a policy.Funnel, or a policy.InFlight if all limits are: what a window lends is not back before the window ends, and other limits have no part that can be reserved"
}

// ticksPerNano is how many ticks of shape.Shape a nanosecond has.
const ticksPerNano = 16

// withCapacity returns a limit that reads the words of another, with another capacity.
func withCapacity(b bucket, capacity int64) (other bucket, err error) {
	form := shapeOf(b)
	limit, err := policy.Funnel(capacity, form.Count, form.Per)
	if longest := policy.MaxTimeInUse(b); longest > 0 {
		limit, err = policy.InFlight(capacity, longest)
	}
	if err == nil {
		other = limit.(bucket)
	}
	return other, err
}

// grant is what a guarantee takes out of the reserve: a capacity, and a unit every interval, in ticks, which is as long as can be
// for units in use.
type grant struct {
	units    int64
	interval uint64
}

func grantOf(bucket bucket) grant {
	g := grant{bucket.Limit(), shapeOf(bucket).Interval}
	if g.interval == 0 {
		g.interval = math.MaxUint64
	}
	return g
}

// atLeast returns the smallest grant that both fit.
func (g grant) atLeast(other grant) grant {
	return grant{max(g.units, other.units), min(g.interval, other.interval)}
}

// reserve is what is left for guarantees. Rates are compared exactly, as a sum of fractions. Since
// their common denominator has no bound, they are first compared as multiples of 2^-126, each rounded
// down. The fractions are added up only if the sum is within a multiple a grant of the limit.
//
// Only the atomic fields may be read without Shares.mu.
type reserve struct {
	// units is the units left.
	units int64
	limit *big.Rat
	// scaledLimit is limit, as a multiple of 2^-126.
	scaledLimit *big.Int
	// scaled is the sum of the grants' rates, as multiples.
	scaled *big.Int
	// grants has the number of grants by interval.
	grants map[uint64]int64
	// number is the number of all grants.
	number  int64
	longest uint64 // interval of a grant so far, 0 if there was none

	// No grant fits that has more units than maxUnits or a shorter interval than minInterval.
	maxUnits    atomic.Int64
	minInterval atomic.Uint64
}

const scaleBits = 126

// unlimitedTicks bounds minInterval for units in use, whose rate is not limited: a unit a tick is more than all grants.
const unlimitedTicks = 2

// scale returns n/d as a multiple of 2^-126, rounded down.
func scale(n, d *big.Int) *big.Int {
	scaled := new(big.Int).Lsh(n, scaleBits)
	return scaled.Div(scaled, d)
}

func unsigned(n uint64) *big.Int { return new(big.Int).SetUint64(n) }

// init sets the reserve to units, and a rate of count units every so many ticks.
func (r *reserve) init(units int64, count, ticks *big.Int) {
	r.units, r.limit, r.scaledLimit = units, new(big.Rat).SetFrac(count, ticks), scale(count, ticks)
	r.scaled, r.grants = new(big.Int), map[uint64]int64{}
	r.publish()
}

// take takes a grant out of the reserve. It returns false if the rest is less.
func (r *reserve) take(grant grant) bool {
	if grant.units > r.units {
		return false
	}
	r.add(grant, 1)
	if !r.isEnough() {
		r.add(grant, -1)
		return false
	}
	r.longest = max(r.longest, grant.interval)
	r.publish()
	return true
}

func (r *reserve) release(grant grant) {
	r.add(grant, -1)
	r.publish()
}

func (r *reserve) add(grant grant, n int64) {
	r.units -= n * grant.units
	r.number += n
	r.scaled.Add(r.scaled, new(big.Int).Mul(big.NewInt(n), scale(big.NewInt(1), unsigned(grant.interval))))
	if r.grants[grant.interval] += n; r.grants[grant.interval] == 0 {
		delete(r.grants, grant.interval)
	}
}

// isEnough reports whether the rates of the grants are together at most the limit.
func (r *reserve) isEnough() bool {
	if above := new(big.Int).Add(r.scaled, big.NewInt(r.number)); above.Cmp(r.scaledLimit) <= 0 {
		return true
	}
	if r.scaled.Cmp(r.scaledLimit) > 0 {
		return false
	}
	sum := new(big.Rat)
	for interval, n := range r.grants {
		sum.Add(sum, new(big.Rat).SetFrac(big.NewInt(n), unsigned(interval)))
	}
	return sum.Cmp(r.limit) <= 0
}

// publish sets the atomic fields. The rest of the rate is below rest multiples of 2^-126, so a rate
// that fits has an interval above 2^126/rest.
func (r *reserve) publish() {
	r.maxUnits.Store(r.units)
	least := uint64(math.MaxUint64)
	if rest := new(big.Int).Sub(r.scaledLimit, r.scaled); rest.Sign() >= 0 {
		rest.Add(rest, big.NewInt(1))
		if bound := scale(big.NewInt(1), rest); bound.IsUint64() {
			least = min(bound.Uint64(), math.MaxUint64-1) + 1
		}
	}
	r.minInterval.Store(least)
}

// mayFit reports whether a grant may fit, without Shares.mu.
func (r *reserve) mayFit(grant grant) bool {
	return grant.units <= r.maxUnits.Load() && grant.interval >= r.minInterval.Load()
}

// rest says what a grant may have, for an error.
func (r *reserve) rest() string {
	text := fmt.Sprintf("a limit within the rest of the reserve: a capacity of at most %d", r.units)
	switch ticks := r.minInterval.Load(); {
	case ticks == math.MaxUint64:
		text += ", and nothing of the rate is left"
	case ticks > unlimitedTicks:
		text += ", and a rate of at most " + paceText(ticks, 1)
	}
	return text
}

// paceText writes the rate of a unit every so many ticks, rounded down to at most three decimals: as units a second, or
// below 1/s as the time from a unit to the next. With a slack of 1 tick the rate may be any that a constructor rounds to the ticks.
func paceText(ticks, slack uint64) string {
	const second = uint64(time.Second) * ticksPerNano
	if ticks > second {
		return fmt.Sprintf("a unit every %v", time.Duration((ticks-1)/ticksPerNano+1))
	}
	scale, n := uint64(1), uint64(0)
	for ; scale <= 1000; scale *= 10 {
		if n = (second*scale + ticks - 1) / ticks; n*(ticks-slack)+slack <= second*scale {
			return strconv.FormatFloat(float64(n)/float64(scale), 'f', -1, 64) + "/s"
		}
	}
	return strconv.FormatFloat(float64(n-1)/1000, 'f', -1, 64) + "/s"
}
