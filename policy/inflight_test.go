package policy_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
)

// crew is the model of an InFlight: a ring whose calls never have a turn ahead, and whose units come
// back out of their own part alone. Its words have a bit less for counts.
type crew struct{ ring }

const crewWord = ringWord - 1

func newCrew(n int64, longest time.Duration) *crew {
	return &crew{*newRing(n+1, (longest+7)/8*8, crewWord)}
}

func (m *crew) take(now policy.Instant, n int64, _ time.Duration) policy.Decision {
	instant, number := m.at(now)
	decision := policy.Decision{Limit: m.limit - 1}
	if asked(&decision, instant, n, 0, func() (int64, bool) {
		first := m.first(number, decision.Limit-n)
		if first == number {
			return instant, true
		}
		return first * m.part, first*m.part <= int64(endOfRing)
	}) {
		m.start = instant
		m.record(number, number, n)
	}
	decision.Remaining = decision.Limit - m.used(number)
	if m.used(number) > 0 || number*m.part > instant {
		decision.ResetAfter = time.Duration(m.first(number, 0)*m.part - instant)
	}
	return decision
}

func (m *crew) refund(policy.Instant, int64) *big.Rat { return new(big.Rat) }

// cancel does not advance the parts: a release reads no clock.
func (m *crew) cancel(now policy.Instant, taken any, n int64) *big.Rat {
	_, number := m.at(now)
	part := taken.(int64)
	if part < number-m.parts || m.taken.in(part) == 0 {
		return new(big.Rat)
	}
	back := min(n, m.taken.in(part))
	m.taken = m.taken.with(part, -back, m.number-m.parts)
	return whole(back)
}

// occupier lets the harness give back the units of an InFlight by their handles.
type occupier struct{ policy.Policy }

func (o occupier) Choke(word uint64, now policy.Instant) (uint64, bool) {
	return o.Policy.(policy.Choker).Choke(word, now)
}

func (o occupier) Reads(other policy.Policy) bool {
	return o.Policy.(policy.Relative).Reads(withoutHandles(other))
}

func (o occupier) Carry(from policy.Policy, word uint64, now policy.Instant) (uint64, bool) {
	return o.Policy.(policy.Relative).Carry(withoutHandles(from), word, now)
}

func withoutHandles(limit policy.Policy) policy.Policy {
	if o, ok := limit.(occupier); ok {
		return o.Policy
	}
	return limit
}

func (o occupier) Refund(word uint64, _ policy.Instant, _ int64) uint64 { return word }

// Cancel releases as many of n units as still count at now.
func (o occupier) Cancel(word, taken uint64, _, now policy.Instant, n, _ int64) uint64 {
	next := word
	for bit := 62; bit >= 0; bit-- {
		if part := int64(1) << bit; part <= n {
			if released, ok := o.Policy.(policy.Occupier).Release(next, taken, now, part); ok {
				next, n = released, n-part
			}
		}
	}
	_, before := o.Take(word, now, 0, 0)
	if _, after := o.Take(next, now, 0, 0); after.Remaining == before.Remaining {
		// The units had ended.
		return word
	}
	return next
}

func TestReleasesAllocateNothing(t *testing.T) {
	p := policy.Must(policy.InFlight(5, time.Second))
	limit, now := p.(policy.Occupier), policy.Instant(1_234_567_890_123)
	word, _ := p.Take(0, now, 3, 0)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		limit.Release(word, word, now, 1)
		limit.Extend(word, word, now+1, 1)
		limit.Vacate(word, now)
	}))
}

func inFlightOf(n int64, longest time.Duration) subject {
	model := newCrew(n, longest)
	return subject{
		Policy: occupier{policy.Must(policy.InFlight(n, longest))},
		oracle: model,
		limit:  n,
		end:    endOfRing,
		period: longest,
		within: func(units, window *big.Int) bool {
			parts := ceilInt(new(big.Rat).SetFrac(window, sixteenths(whole(model.part))))
			rows := ceilInt(new(big.Rat).SetFrac(parts.Add(parts, big.NewInt(1)), big.NewInt(model.parts+1)))
			return units.Cmp(rows.Mul(rows, big.NewInt(n))) <= 0
		},
		// A Refund gives nothing back.
		costly: true,
		// The units join, because their part is the current one.
		joins: true,

		clockless: true,
	}
}

var inFlights = kind{
	name: "InFlight",
	read: func(s *script) subject {
		longest := time.Duration(s.between(int64(time.Millisecond), int64(maxWindow)))
		_, bits := ringFigures([]int64{1, 2, 4, 8}[s.byte()&3], (longest+7)/8*8, crewWord)
		return inFlightOf(s.between(1, max(int64(1)<<bits-2, 1)), longest)
	},
}

// unit is a unit in use, as its user knows it.
type unit struct {
	taken uint64
	since policy.Instant
}

// audit knows each unit in use from outside.
type audit struct {
	longest time.Duration
	units   []unit
	// ended has the units that no release found. They may count until their part leaves.
	ended []unit
}

// bounds returns the number of units no older than longest, and of those that no limit of the family
// has ended yet.
func (a *audit) bounds(now policy.Instant) (young, counted int64) {
	for _, u := range a.units {
		if now < u.since+policy.Instant(a.longest) {
			young++
		}
	}
	for _, u := range append(a.ended, a.units...) {
		if now < u.since+policy.Instant(2*a.longest)+16 {
			counted++
		}
	}
	return young, counted
}

// Promise: An `InFlight` never has more units in use than the highest limit that admitted them, and loses no release.
func TestInFlightByOutsideAudit(t *testing.T) {
	for seed := range rounds(400) {
		random := rand.New(rand.NewPCG(seed, 7))
		longest := time.Duration(1+random.Int64N(1000)) * time.Millisecond
		highest := min(int64(1)<<random.IntN(16), 500)
		limits := []policy.Policy{policy.Must(policy.InFlight(highest, longest))}
		// Calls come with limits of the family in any order.
		for range 3 {
			limits = append(limits, policy.Must(policy.InFlight(1+random.Int64N(highest), longest)))
		}
		a := audit{longest: longest}
		word, now := uint64(0), policy.Instant(1)
		for range 2000 {
			now += policy.Instant(random.Int64N(int64(longest))) >> random.UintN(12)
			limit := limits[random.IntN(len(limits))]
			young, counted := a.bounds(now)
			_, d := limit.Take(word, now, 0, 0)
			used := limit.Limit() - d.Remaining
			assert.LessOrEqual(t, min(young, limit.Limit()), used, "seed %d: units in use are not counted", seed)
			assert.LessOrEqual(t, used, counted, "seed %d: units are counted and not in use", seed)
			if t.Failed() {
				return
			}
			switch i := random.IntN(len(a.units) + 1); {
			case i == len(a.units) || random.IntN(3) == 0:
				if next, d := limit.Take(word, now, 1, 0); d.Allowed {
					word, a.units = next, append(a.units, unit{next, now})
				}
			case random.IntN(3) == 0:
				next, ok := limit.(policy.Occupier).Extend(word, a.units[i].taken, now, 1)
				if word = next; ok {
					a.units[i] = unit{next, now}
				} else {
					a.lose(t, i, now)
				}
			default:
				next, ok := limit.(policy.Occupier).Release(word, a.units[i].taken, math.MaxInt64, 1)
				if !ok {
					next, ok = limit.(policy.Occupier).Release(word, a.units[i].taken, now, 1)
				}
				if word = next; ok {
					a.units = append(a.units[:i:i], a.units[i+1:]...)
				} else {
					a.lose(t, i, now)
				}
			}
		}
		for _, i := range random.Perm(len(a.units)) {
			word, _ = limits[0].(policy.Occupier).Release(word, a.units[i].taken, now, 1)
		}
		_, d := limits[0].Take(word, now+policy.Instant(2*longest)+16, 0, 0)
		assert.Equal(t, limits[0].Limit(), d.Remaining, "seed %d", seed)
	}
}

// lose ends a unit that no release found, which must be older than longest.
func (a *audit) lose(t *testing.T, i int, now policy.Instant) {
	assert.GreaterOrEqual(t, now, a.units[i].since+policy.Instant(a.longest), "a unit that no release finds is in use for its longest time")
	a.ended = append(a.ended, a.units[i])
	a.units = append(a.units[:i:i], a.units[i+1:]...)
}

// Promise: `InFlight`: a unit that is not released ends no more than a part after its longest time.
func TestUnreleasedUnitsEnd(t *testing.T) {
	const longest = time.Minute
	for n, parts := range map[int64]int{6: 8, 126: 4, 4094: 2, 4095: 1} {
		limit := policy.Must(policy.InFlight(n, longest))
		assert.Equal(t, parts, policy.Parts(limit))
		for range 1000 {
			now := policy.Instant(1 + rand.Int64N(int64(time.Hour)))
			word, decision := limit.Take(0, now, n, 0)
			assert.True(t, decision.Allowed)
			_, decision = limit.Take(word, now, 1, time.Hour)
			assert.False(t, decision.Allowed)
			assert.Greater(t, decision.RetryAfter, longest)
			assert.LessOrEqual(t, decision.RetryAfter, longest+longest/time.Duration(parts))
		}
	}
}

// Promise: Units of an `InFlight` in use are not clipped by a lower limit, or another longest time.
func TestChangedInFlightKeepsUnitsInUse(t *testing.T) {
	now := policy.Instant(time.Hour)
	ten := policy.Must(policy.InFlight(10, time.Minute))
	word, _ := ten.Take(0, now, 10, 0)
	for _, next := range []policy.Policy{
		policy.Must(policy.InFlight(3, time.Minute)), policy.Must(policy.InFlight(3, time.Hour)), policy.Must(policy.InFlight(1, time.Second)),
	} {
		carried, ok := next.(policy.Relative).Carry(ten, word, now)
		assert.True(t, ok)
		taken := carried
		for used := int64(10); used > 0; used-- {
			_, d := next.Take(carried, now, 1, 0)
			assert.Equal(t, used < next.Limit(), d.Allowed, "%d used of %v", used, next)
			carried, ok = next.(policy.Occupier).Release(carried, taken, now, 1)
			assert.True(t, ok)
		}
		assert.LessOrEqual(t, next.FreshAt(carried), now+2*policy.Instant(time.Hour))
	}
}

// No word of a millisecond holds 4,000 units, so it is full until they end, whatever is released.
func TestUncountableUnitsFillTheKeyUntilTheyEnd(t *testing.T) {
	now := policy.Instant(time.Hour)
	many, few := policy.Must(policy.InFlight(4000, time.Hour)), policy.Must(policy.InFlight(1000, time.Millisecond))
	word, _ := many.Take(0, now, 4000, 0)
	carried, _ := few.(policy.Relative).Carry(many, word, now)
	next, ok := few.(policy.Occupier).Release(carried, carried, now, 1)
	assert.False(t, ok)
	assert.Equal(t, carried, next)
	_, decision := few.Take(carried, now, 1, 0)
	assert.False(t, decision.Allowed)
	assert.LessOrEqual(t, decision.RetryAfter, 2*time.Millisecond)
	carried, _ = many.(policy.Relative).Carry(few, carried, now)
	_, decision = many.Take(carried, now, 1, 0)
	assert.False(t, decision.Allowed, "they count in full after the next change too")
}

// Promise: A release after its unit's longest time takes no other unit of an `InFlight`, whatever happened to the word.
func TestEndedUnitFreesNoOther(t *testing.T) {
	few, many := policy.Must(policy.InFlight(6, 80*time.Second)), policy.Must(policy.InFlight(1000, 80*time.Second))
	instantAt := func(seconds int) policy.Instant { return policy.Instant(seconds) * policy.Instant(time.Second) }
	// The unit is in the part from 80 s, which ends at 170 s.
	first, _ := few.Take(0, instantAt(81), 1, 0)
	second, _ := few.Take(first, instantAt(91), 1, 0)
	for _, c := range []struct {
		now policy.Instant
		// ended reports whether the first unit has ended.
		ended bool
	}{{instantAt(170) - 1, false}, {instantAt(170), true}} {
		word, decision := many.Take(second, c.now, 900, 0)
		assert.True(t, decision.Allowed)
		_, ok := many.(policy.Occupier).Release(word, first, math.MaxInt64, 1)
		assert.False(t, ok, "a release without an instant does not know whether the unit counts")
		next, ok := many.(policy.Occupier).Release(word, first, c.now, 1)
		assert.Equal(t, c.ended, !ok)
		assert.Equal(t, c.ended, next == word)
		next, ok = many.(policy.Occupier).Release(word, second, c.now, 1)
		assert.True(t, ok)
		_, decision = many.Take(next, c.now, 0, 0)
		if c.ended {
			assert.EqualValues(t, 100, decision.Remaining)
			_, ok = many.(policy.Occupier).Release(next, second, c.now, 1)
			assert.False(t, ok, "the part of the take has no unit left")
		}
	}
}

// Promise: A reset of an `InFlight` leaves nothing to release, and no word from before comes back.
func TestVacatedWordIsOfAnotherGeneration(t *testing.T) {
	for _, p := range []policy.Policy{
		policy.Must(policy.InFlight(2, time.Minute)), policy.Must(policy.InFlight(100, time.Minute)),
		policy.Must(policy.InFlight(4000, time.Minute)), policy.Must(policy.InFlight(10000, time.Minute)),
	} {
		limit := p.(policy.Occupier)
		now := policy.Instant(time.Hour)
		before, _ := p.Take(0, now, 1, 0)
		word := limit.Vacate(before, now)
		assert.LessOrEqual(t, p.FreshAt(word), now)
		for _, now := range []policy.Instant{now, now + policy.Instant(time.Second), now + policy.Instant(time.Hour)} {
			again, d := p.Take(word, now, 1, 0)
			assert.Equal(t, p.Limit()-1, d.Remaining)
			assert.NotEqual(t, before, again)
			_, ok := limit.Release(again, before, now, 1)
			assert.False(t, ok)
			_, ok = limit.Extend(again, before, now, 1)
			assert.False(t, ok)
			last, ok := limit.Release(again, again, now, 1)
			assert.True(t, ok)
			word = limit.Vacate(last, now)
		}
	}
}

func TestInFlightGivesBackByHandlesOnly(t *testing.T) {
	for _, limit := range []policy.Policy{policy.Must(policy.InFlight(10, time.Minute)), policy.Must(policy.FixedWindow(10, time.Minute))} {
		_, refunds := limit.(policy.Refunder)
		_, occupies := limit.(policy.Occupier)
		assert.NotEqual(t, refunds, occupies)
		assert.Equal(t, occupies, policy.MaxTimeInUse(limit) == time.Minute)
	}
	assert.Zero(t, policy.MaxTimeInUse(nil))
}
