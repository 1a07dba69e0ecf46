package policy_test

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
)

func errorOf(_ policy.Policy, err error) error { return err }

// Promise: Limits that cannot be kept as asked are refused.
func TestConstructorsSayWhatFits(t *testing.T) {
	const most, s = math.MaxInt64, time.Second
	for _, c := range []struct {
		err  error
		want string
	}{
		// The ticks of a full bucket are 2^64, which wraps to 0.
		{errorOf(policy.Funnel(1<<60, 1000, time.Microsecond)), "Funnel: capacity is 1152921504606846976, want at most "},
		{errorOf(policy.Funnel(0, 0, 0)), "Funnel: capacity is 0, want 1 or more"},
		{errorOf(policy.Funnel(1, math.MinInt64, s)), "Funnel: count is -9223372036854775808, want 1 or more"},
		{errorOf(policy.Funnel(1, 1, -time.Minute)), "Funnel: per is -1m0s, want 1µs or more"},
		// The caller forgot the unit of time.
		{errorOf(policy.Funnel(10, 10, 10)), "Funnel: per is 10ns, want 1µs or more"},
		{errorOf(policy.Queue(10, 10, 999)), "Queue: per is 999ns, want 1µs or more"},
		{errorOf(policy.Bursty(10, 60, 10)), "Bursty: per is 60ns, want 1µs or more"},
		{errorOf(policy.WarmingUp(10, 1, s, 3)), "WarmingUp: per is 1ns, want 1µs or more"},
		{errorOf(policy.SlidingWindow(1, 60)), "SlidingWindow: per is 60ns, want between 1µs and 366 days"},
		{errorOf(policy.FixedWindow(1, 60)), "FixedWindow: per is 60ns, want between 1ms and 366 days"},
		{errorOf(policy.AlignedWindow(1, 60)), "AlignedWindow: per is 60ns, want between 1ms and 366 days"},
		{errorOf(policy.AtMost(1, 60)), "AtMost: per is 60ns, want between 1ms and 366 days"},
		{errorOf(policy.InFlight(1, 60)), "InFlight: longest is 60ns, want between 1ms and 366 days"},
		{errorOf(policy.Funnel(1, 1, longestDrain+1)),
			"Funnel: per is 150119h59m15.284459521s, want at most 150119h59m15.28445952s at a count of 1: a unit must not take more than 17 years"},
		{errorOf(policy.Funnel(18, 1, year)), "Funnel: capacity is 18, want at most 17: a full bucket must drain within 17 years"},
		{errorOf(policy.Funnel(most, most, most)), "capacity is 9223372036854775807, want at most 540431955284459520"},
		// 1.67 ns would be kept as 1.6875: more than a percent too slow.
		{errorOf(policy.Funnel(1, 600_000_001, s)), "1.6875ns"},
		{errorOf(policy.Funnel(1, 17_000, time.Microsecond)), "16 million"},
		// The excess wraps round.
		{errorOf(policy.Funnel(1, 18_446_744_073_709_553, 17_293_822_569_102_706)), "unit every 1ns"},
		{errorOf(policy.Funnel(1, most, year)), "0.0625ns"},

		{errorOf(policy.Queue(540431955, 1, s)), "Queue: capacity is 540431955, want at most 540431954: a full queue must drain within 17 years"},
		{errorOf(policy.Bursty(1, s, 540431955)), "Bursty: maxBurst is 540431955, want at most 540431954: the store must fill within 17 years"},
		{errorOf(policy.Bursty(1, s, -1)), "Bursty: maxBurst is -1, want 0 or more"},

		{errorOf(policy.WarmingUp(0, s, s, 3)), "WarmingUp: count is 0, want 1 or more"},
		{errorOf(policy.WarmingUp(1, longestPatience+1, s, 3)), "want at most 80063h59m36.151711744s at a count of 1: a unit must not take more than 9 years"},
		{errorOf(policy.WarmingUp(600_000_001, s, s, 3)), "1.6875ns"},
		{errorOf(policy.WarmingUp(66_700_000, s, 1, 1)), "WarmingUp: count is 66700000, want a rate of at most 62 million a second"},
		{errorOf(policy.WarmingUp(1, s, 0, 3)), "WarmingUp: warmup is 0s, want 1ns or more (Bursty is without a warm-up)"},
		{errorOf(policy.WarmingUp(1, s, longestPatience+1, 3)), "9 years"},
		{errorOf(policy.WarmingUp(100, s, time.Hour, 3)), "a word has no room for more"},
		{errorOf(policy.WarmingUp(1, s, s, 0.999)), "WarmingUp: coldFactor is 0.999, want a number of 1 or more"},
		{errorOf(policy.WarmingUp(1, s, s, math.Inf(1))), "WarmingUp: coldFactor is +Inf, want "},
		{errorOf(policy.WarmingUp(1, s, s, math.MaxFloat64)), "at most 2.882303761517117e+08: a unit must not cost more than 9 years"},
		{errorOf(policy.WarmingUp(1, year, year, 9.2)), "WarmingUp: coldFactor is 9.2, want at most 9.139"},

		{errorOf(policy.SlidingWindow(4096, time.Millisecond)), "SlidingWindow: limit is 4096, want at most 4095: "},
		{errorOf(policy.AtMost(4194304, time.Hour)), "AtMost: limit is 4194304, want at most 4194303: "},
		{errorOf(policy.InFlight(0, s)), "InFlight: n is 0, want 1 or more"},
		{errorOf(policy.InFlight(2097151, time.Hour)), "InFlight: n is 2097151, want at most 2097150: "},
		{errorOf(policy.InFlight(1023, time.Millisecond)), "InFlight: n is 1023, want at most 1022: "},
		{errorOf(policy.InFlight(262143, time.Minute)), "InFlight: n is 262143, want at most 262142: "},
		{errorOf(policy.InFlight(1, time.Millisecond-1)), "InFlight: longest is 999.999µs, want between 1ms and 366 days"},
		{errorOf(policy.InFlight(1, maxWindow+1)), "InFlight: longest is 8784h0m0.000000001s, want between 1ms and 366 days"},
		{errorOf(policy.CalendarWindow(0, policy.Day, "UTC")), "CalendarWindow: limit is 0, want "},
		{errorOf(policy.CalendarWindow(1<<43, policy.Day, "UTC")), "CalendarWindow: limit is 8796093022208, want "},
		{errorOf(policy.CalendarWindow(1<<41, policy.Month, "UTC")), "CalendarWindow: limit is 2199023255552, want 1 to 2199023255551"},
		{errorOf(policy.CalendarWindow(1, policy.Month, "UTC", 0)), "CalendarWindow: from is 0, want a day from 1 to 31"},
		{errorOf(policy.CalendarWindow(1, policy.Month, "UTC", 32)), "CalendarWindow: from is 32, want a day from 1 to 31"},
		{errorOf(policy.CalendarWindow(1, policy.Month, "UTC", 3, 5)), "CalendarWindow: from is [3 5], want a single day"},
		{errorOf(policy.CalendarWindow(1, policy.Day, "UTC", 1)), "CalendarWindow: from is 1, want none: only the windows of a Month "},
		{errorOf(policy.CalendarWindow(1, 0, "UTC")), "CalendarWindow: unit is "},
		{errorOf(policy.CalendarWindow(1, policy.Year+1, "UTC")), "CalendarWindow: unit is "},
		{errorOf(policy.CalendarWindow(1, policy.Day, "Europe/Atlantis")),
			`ral: CalendarWindow: zone is "Europe/Atlantis", want a time zone that time.LoadLocation knows, such as UTC ` +
				`(unknown time zone Europe/Atlantis); on a machine without a time zone database a program must import time/tzdata`},
		{errorOf(policy.CalendarWindow(1, policy.Day, "../UTC")), "CalendarWindow: zone is "},
		{errorOf(policy.CalendarWindow(1, policy.Day, "Europe/Berlin, 5")), "CalendarWindow: zone is "},
		{errorOf(policy.CalendarWindow(1, policy.Day, "_UTC")), "CalendarWindow: zone is "},
	} {
		assert.ErrorContains(t, c.err, c.want)
	}
	_, err := policy.Funnel(0, 1, s)
	assert.PanicsWithValue(t, err, func() { policy.Must(nil, err) })
	wrapped := fmt.Errorf("limits.yaml: %w", &policy.FieldError{Of: "engine.Config", Field: "Idle", Value: -s, Want: "0 or more"})
	var field *policy.FieldError
	assert.ErrorAs(t, wrapped, &field)
	assert.EqualError(t, field, "ral: engine.Config: Idle is -1s, want 0 or more")
}

// keeps checks the result of a constructor that must refuse the field want, if any, with an error
// that helps. It reports whether the limit was kept.
func keeps(t *testing.T, limit policy.Policy, err error, constructor, want string, value any) bool {
	t.Helper()
	if err == nil {
		if want != "" {
			t.Fatalf("the constructor returns %v, want an error about %s = %v", limit, want, value)
		}
		return true
	}
	var field *policy.FieldError
	if !errors.As(err, &field) || limit != nil {
		t.Fatalf("%v, %v", limit, err)
	}
	if field.Of != constructor || field.Field != want || field.Value != value || field.Want == "" || !strings.Contains(err.Error(), field.Want) {
		t.Fatalf("the error is %v, want one about %s = %v", err, want, value)
	}
	return false
}

// mostOf returns the highest limit that an error states.
func mostOf(err error) (most int64, stated bool) {
	var field *policy.FieldError
	stated = errors.As(err, &field)
	if stated {
		_, err = fmt.Sscanf(field.Want, "at most %d:", &most)
	}
	return most, stated && err == nil
}

// refusesRate returns the field of a rate that must be refused, or "".
func refusesRate(count int64, per time.Duration) string {
	switch {
	case count < 1:
		return "count"
	case per < time.Microsecond:
		return "per"
	case unitTime(count, per).Cmp(whole(int64(longestDrain))) > 0:
		return "per"
	case tooSlow(count, per, big.NewRat(1, 1000)):
		return "count"
	}
	return ""
}

// tooSlow reports whether the time that a unit is given exceeds the time asked for by more than
// such a part.
func tooSlow(count int64, per time.Duration, part *big.Rat) bool {
	asked := big.NewRat(int64(per), count)
	excess := sub(unitTime(count, per), asked)
	return excess.Quo(excess, asked).Cmp(part) > 0
}

// bucketConstructor makes limits with units that come back one by one.
type bucketConstructor struct {
	// of is the name of the constructor, and units is the name of the parameter that bounds the units.
	of, units string
	// beside is the number of units that need room beside those.
	beside int64
	// last is set if the parameter comes after the rate.
	last bool
	make func(units, count int64, per time.Duration) (policy.Policy, error)
}

func (b bucketConstructor) refuses(units, count int64, per time.Duration) string {
	few := units < 1-b.beside
	if few && !b.last {
		return b.units
	}
	if field := refusesRate(count, per); field != "" {
		return field
	}
	if few || mul(unitTime(count, per), add(whole(units), whole(b.beside))).Cmp(whole(int64(longestDrain))) > 0 {
		return b.units
	}
	return ""
}

func FuzzFunnelConstructor(f *testing.F) {
	bucketConstructor{of: "Funnel", units: "capacity", make: policy.Funnel}.fuzz(f)
}

func FuzzQueueConstructor(f *testing.F) {
	bucketConstructor{of: "Queue", units: "capacity", beside: 1, make: policy.Queue}.fuzz(f)
}

func FuzzBurstyConstructor(f *testing.F) {
	bucketConstructor{of: "Bursty", units: "maxBurst", beside: 1, last: true,
		make: func(units, count int64, per time.Duration) (policy.Policy, error) {
			return policy.Bursty(count, per, units)
		}}.fuzz(f)
}

// Any limit is refused with an error that helps, or accepted: never above the requested rate, and
// hardly below. Exact fractions tell which is right.
func (b bucketConstructor) fuzz(f *testing.F) {
	const most, least, s = math.MaxInt64, math.MinInt64, int64(time.Second)
	const drain, aYear = int64(longestDrain), int64(year)
	for _, seed := range [][3]int64{
		{1, 1, s}, {0, 1, 1}, {1, 0, 1}, {1, 1, 0}, {-1, 1, 1}, {-1, -1, -1}, {least, least, least},
		{most, most, most}, {most, 1, 1}, {1, most, 1}, {1, 1, most}, {most, most, 1}, {most, 1, most}, {1, most, most}, {1, most, aYear},
		{16 * drain, 16_000, 1000}, {16*drain - 1, 16_000, 1000}, {16*drain + 1, 16_000, 1000}, {most, 16_000, 1000}, {1, 1, 999}, {1 << 60, 1, 1}, {540431956, 1, s}, {540431955, 1, s}, {540431954, 1, s},
		{1, 18, most}, {1, 17, most}, {1, 16, most}, {1, 8, most}, {1, 7, most}, {16, 1, aYear}, {17, 1, aYear}, {18, 1, aYear},
		{0, 1, drain}, {0, 1, drain + 1}, {1, 1, drain}, {1, 1, drain + 1}, {1, 2, 2*drain + 1},
		{10, 1_000_000, s}, {10, 999_999, s}, {10, 700_000, s}, {10, 7, 60 * s}, {3, 3, s}, {1, 1_000_000_000, s}, {1, 600_000_001, s},
		{1, 15_999_999, s}, {1, 16_016_016, s}, {1, 1<<50 + 1, 1 << 60}, {1, 18_446_744_073_709_553, 17_293_822_569_102_706},
		// 1 in 1000 too slow, which is accepted, and hardly more, which is not.
		{1, 16_000, 999_001}, {1, 16_000, 999_000}, {1, 16_000, 998_999}, {1, 1001 * 16, 1000}, {1, 1001 * 16, 999},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, units, count, nanos int64) {
		per := time.Duration(nanos)
		limit, err := b.make(units, count, per)
		want := b.refuses(units, count, per)
		value := map[string]any{b.units: units, "count": count, "per": per}[want]
		if !keeps(t, limit, err, b.of, want, value) {
			if most, ok := mostOf(err); ok && (b.refuses(most, count, per) != "" || b.refuses(most+1, count, per) == "") {
				t.Errorf("%v: the highest value that the error names is not the highest accepted value", err)
			}
			return
		}
		if per >= 1000*time.Duration(count) && per/year <= time.Duration(count) && tooSlow(count, per, big.NewRat(100, 1_000_000)) {
			t.Errorf("%v is slower by more than 100 parts per million", limit)
		}
		// Sixteen units take a whole number of nanoseconds.
		var word uint64
		for range 16 {
			next, d := limit.Take(word, 0, 1, math.MaxInt64)
			if !d.Allowed {
				return
			}
			word = next
		}
		took := limit.FreshAt(word)
		if b.of == "Bursty" {
			took -= 1 + policy.Instant(ceil(mul(whole(units), unitTime(count, per))))
		}
		if exact := mul(whole(16), unitTime(count, per)); took < policy.Instant(ceil(exact))-1 || took > policy.Instant(ceil(exact)) {
			t.Errorf("%v: 16 units take %d ns, want %s", limit, took, exact.FloatString(4))
		}
	})
}

// A limit that is kept must warm up: as slow as requested when cold, and at the rate when warm.
// The longest warm-up and the highest factor in an error are accepted, and the next above them
// is not.
func FuzzWarmingUpConstructor(f *testing.F) {
	for _, l := range warmingUpLimits {
		f.Add(l.count, int64(l.per), int64(l.warmup), l.coldFactor)
	}
	const s, hour, aYear = int64(time.Second), int64(time.Hour), int64(year)
	f.Add(int64(1), s, s, math.NaN())
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), math.MaxFloat64)
	for _, l := range []struct {
		count      int64
		coldFactor float64
	}{{100, 3}, {1000, 3}, {10_000, 3}, {10_000, 1}, {1_000_000, 3}, {1_000_000, 1000}, {700_000, 2.5}} {
		f.Add(l.count, s, hour, l.coldFactor)
	}
	// In the last, the quotient of the two times as a float64 is too high.
	for _, per := range []int64{s / 1000, s, 24 * hour, aYear, s / 1_000_000} {
		f.Add(int64(1), per, int64(1), 1e300)
	}
	f.Fuzz(func(t *testing.T, count, nanos, warmup int64, coldFactor float64) {
		per := time.Duration(nanos)
		limit, err := policy.WarmingUp(count, per, time.Duration(warmup), coldFactor)
		if err != nil {
			var field *policy.FieldError
			if !errors.As(err, &field) || limit != nil || field.Want == "" {
				t.Fatalf("%v, %v", limit, err)
			}
			checkWarmingUpBounds(t, field, count, per, coldFactor)
			return
		}
		if want := refusesRate(count, per); want != "" || warmup < 1 || !(coldFactor >= 1) {
			t.Fatalf("the constructor returns %v, want an error", limit)
		}
		grid := policy.ReadWarmingUp(limit, 0)
		unit := unitTime(count, per)
		part := new(big.Rat).SetFrac64(int64(grid.Unit), 16)
		if grid.PerUnit < 16 || mul(part, whole(16)).Cmp(unit) > 0 || grid.Unit < grid.Levels {
			t.Fatalf("%v has a coarser word than its constructor says: %+v", limit, grid)
		}
		if grid.End < policy.Instant(9*year) {
			t.Fatalf("time stands still for %v at %d, want 9 years or later", limit, grid.End)
		}
		m := newWarmingModel(count, per, time.Duration(warmup), coldFactor)
		for _, n := range []int64{1, 2, min(limit.Limit(), 1000), limit.Limit()} {
			if n > limit.Limit() {
				continue
			}
			next, d := limit.Take(0, 0, n, 0)
			if !d.Allowed {
				t.Fatalf("%v: %d of %d: %+v", limit, n, d.Limit, d)
			}
			due := new(big.Rat).SetFrac(new(big.Int).SetUint64(policy.ReadWarmingUp(limit, next).Due), big.NewInt(16))
			exact := m.price(n)
			late := sub(due, exact)
			most := add(whole(2), mul(exact, big.NewRat(1, 1<<35)))
			if policy.ReadWarmingUp(limit, next).Level < grid.Levels {
				most = add(most, part)
			}
			if late.Sign() < 0 || late.Cmp(most) > 0 {
				t.Fatalf("%v: %d cost %s ns, want %s", limit, n, due.FloatString(3), exact.FloatString(3))
			}
		}
	})
}

func checkWarmingUpBounds(t *testing.T, field *policy.FieldError, count int64, per time.Duration, coldFactor float64) {
	t.Helper()
	bound, stated := strings.CutPrefix(field.Want, "at most ")
	bound = strings.Fields(strings.ReplaceAll(bound, ":", " "))[0]
	var within, above error
	switch longest, err := time.ParseDuration(bound); {
	case stated && field.Field == "warmup" && err == nil:
		within, above = errorOf(policy.WarmingUp(count, per, longest, coldFactor)), errorOf(policy.WarmingUp(count, per, longest+1, coldFactor))
	case stated && field.Field == "coldFactor":
		most, err := strconv.ParseFloat(bound, 64)
		if err != nil {
			t.Fatalf("%v: %v", field, err)
		}
		within, above = errorOf(policy.WarmingUp(count, per, 1, most)), errorOf(policy.WarmingUp(count, per, 1, math.Nextafter(most, math.Inf(1))))
	default:
		return
	}
	if within != nil || above == nil {
		t.Fatalf("%v: at this bound %v, and above it %v", field, within, above)
	}
}

type windowPolicy struct {
	name string
	make func(limit int64, per time.Duration) (policy.Policy, error)
	// refuses returns the field that must be refused, or "".
	refuses func(limit int64, per time.Duration) string
	// of returns the limit on trial.
	of func(limit int64, per time.Duration) subject
	// locks returns the longest time for which a word counts after its last turn.
	locks func(limit int64, per time.Duration) time.Duration
}

var windowPolicies = []windowPolicy{
	{"FixedWindow", policy.FixedWindow,
		refusesOf(time.Millisecond, func(limit int64, per time.Duration) bool {
			_, full := fixedFigures(limit, per)
			return limit > full
		}),
		fixedWindowOf,
		func(limit int64, per time.Duration) time.Duration {
			m := newCounter(limit, per)
			return time.Duration(m.length + m.step)
		}},
	{"SlidingWindow", policy.SlidingWindow,
		refusesOf(time.Microsecond, func(limit int64, per time.Duration) bool { return limit >= 1<<slidingFigures(per) }),
		slidingWindowOf,
		func(_ int64, per time.Duration) time.Duration { return 2 * per }},
	{"AtMost", policy.AtMost,
		refusesOf(time.Millisecond, func(limit int64, per time.Duration) bool { return ringParts(limit, per, ringWord) == 0 }),
		atMostOf,
		func(limit int64, per time.Duration) time.Duration {
			m := newRing(limit, per, ringWord)
			return time.Duration((m.parts + 2) * m.part)
		}},
	{"AlignedWindow", policy.AlignedWindow,
		refusesOf(time.Millisecond, func(limit int64, per time.Duration) bool { return limit > alignedFull(per) }),
		alignedOf,
		func(_ int64, per time.Duration) time.Duration { return 2 * per }},
}

// refusesOf returns windowPolicy.refuses: per if that is below least or too long, limit if it is
// below 1 or does not fit.
func refusesOf(
	least time.Duration, noRoom func(limit int64, per time.Duration) bool,
) func(limit int64, per time.Duration) string {
	return func(limit int64, per time.Duration) string {
		switch {
		case limit < 1:
			return "limit"
		case per < least || per > maxWindow:
			return "per"
		case noRoom(limit, per):
			return "limit"
		}
		return ""
	}
}

// constructs makes a limit of any figures. It is kept, or refused with an error that helps.
func (w windowPolicy) constructs(t *testing.T, limit int64, per time.Duration) {
	t.Helper()
	p, err := w.make(limit, per)
	want := w.refuses(limit, per)
	if keeps(t, p, err, w.name, want, map[string]any{"limit": limit, "per": per}[want]) {
		newTrial(t, w.of(limit, per)).do(action{now: 1, n: limit})
		return
	}
	// The error names constructors that accept the limit.
	if want == "limit" && limit > 0 && w.name != "AlignedWindow" {
		_, fixed := policy.FixedWindow(limit, per)
		_, aligned := policy.AlignedWindow(limit, per)
		_, funnel := policy.Funnel(limit, limit, per)
		if strings.Contains(err.Error(), "; FixedWindow holds this limit") != (fixed == nil) ||
			strings.Contains(err.Error(), "; AlignedWindow holds this limit") != (aligned == nil) ||
			strings.Contains(err.Error(), fmt.Sprintf("; Funnel(%d, %[1]d, %v) is a bucket of this rate", limit, per)) != (funnel == nil) {
			t.Errorf("%v: FixedWindow says %v, AlignedWindow %v, Funnel %v", err, fixed, aligned, funnel)
		}
	}
	if most, ok := mostOf(err); ok && (w.refuses(most, per) != "" || w.refuses(most+1, per) == "" || limit <= most) {
		t.Errorf("%v: the highest value that the error names is not the highest accepted value", err)
	}
}

func (w windowPolicy) fuzzConstructor(f *testing.F) {
	const ms, s = int64(time.Millisecond), int64(time.Second)
	for _, seed := range [][2]int64{
		{1, s}, {0, s}, {-1, s}, {math.MinInt64, s}, {math.MaxInt64, s}, {1, 0}, {1, -1}, {1, 1}, {3, 1}, {3, 999}, {4, 1000}, {1, math.MaxInt64}, {1, math.MinInt64},
		{1, ms - 1}, {1, ms}, {2047, ms}, {2048, ms}, {4095, ms}, {4096, ms}, {1_000_000, ms}, {1_000_001, ms},
		{1_000_000, s}, {131071, s}, {131072, s}, {65535, s}, {65536, s}, {127, s}, {128, s}, {7, s}, {8, s}, {2, s},
		{1_000_000, int64(maxWindow)}, {1, int64(maxWindow)}, {1, int64(maxWindow) + 1}, {1 << 29, int64(maxWindow)}, {1 << 28, int64(maxWindow)},
		{1_000_001, 125 * ms}, {1_000_001, 125*ms - 1}, {1 << 24, 2 * s}, {1 << 28, 50 * s}, {1 << 32, 50 * s}, {1<<32 - 1, int64(maxWindow)}, {2_000_000, 1001 * ms},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, limit, per int64) { w.constructs(t, limit, time.Duration(per)) })
}

func FuzzFixedWindowConstructor(f *testing.F)   { windowPolicies[0].fuzzConstructor(f) }
func FuzzSlidingWindowConstructor(f *testing.F) { windowPolicies[1].fuzzConstructor(f) }
func FuzzAtMostConstructor(f *testing.F)        { windowPolicies[2].fuzzConstructor(f) }
func FuzzAlignedWindowConstructor(f *testing.F) { windowPolicies[3].fuzzConstructor(f) }

func TestWindowConstructorsKeepToTheirBounds(t *testing.T) {
	for _, windows := range windowPolicies {
		t.Run(windows.name, func(t *testing.T) {
			s := &script{rng: rand.New(rand.NewPCG(1, 2))}
			for range 2000 {
				windows.constructs(t, s.between(math.MinInt64, math.MaxInt64), time.Duration(s.between(0, int64(maxWindow)+1)))
				windows.constructs(t, s.between(0, 1<<30), time.Duration(s.between(1, int64(maxWindow))))
			}
		})
	}
}
