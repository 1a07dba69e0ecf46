package policy_test

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// refuses fails unless err names that field of the constructor, its value and its bounds.
func refuses(t *testing.T, p policy.Policy, err error, of, name string, value any, want string) {
	t.Helper()
	assert.Nil(t, p)
	var field *policy.FieldError
	require.ErrorAs(t, err, &field)
	assert.Equal(t, of, field.Of)
	assert.Equal(t, name, field.Field)
	assert.Equal(t, value, field.Value)
	assert.Contains(t, field.Want, want)
	assert.Contains(t, err.Error(), fmt.Sprintf("ral: %s: %s is %v, want ", of, name, value))
}

func TestQueueAndBurstyRefuse(t *testing.T) {
	const most = math.MaxInt64
	for of, make := range map[string]func(units, count int64, per time.Duration) (policy.Policy, error){
		"Queue": policy.Queue, "Bursty": burstyOfUnits,
	} {
		units, full := "capacity", "a full queue must drain within 17 years"
		if of == "Bursty" {
			units, full = "maxBurst", "the store must fill within 17 years"
		}
		for _, c := range []struct {
			units, count int64
			per          time.Duration
			field        string
			value        any
			want         string
		}{
			{-1, 1, time.Second, units, int64(-1), "0 or more"},
			{math.MinInt64, 1, time.Second, units, int64(math.MinInt64), "0 or more"},
			{1, 0, time.Second, "count", int64(0), "1 or more"},
			{1, 1, 0, "per", time.Duration(0), "1ns or more"},
			{1, 1, longestDrain + 1, "per", longestDrain + 1, "17 years"},
			{1, 600_000_001, time.Second, "count", int64(600_000_001), "1.6875ns"},
			{1, 1, longestDrain, units, int64(1), "at most 0"},
			{540431955, 1, time.Second, units, int64(540431955), "at most 540431954: " + full},
			{most, 1, time.Second, units, int64(most), "at most 540431954"},
			{most, 16, 1, units, int64(most), "at most 8646911284551352319"},
		} {
			p, err := make(c.units, c.count, c.per)
			refuses(t, p, err, of, c.field, c.value, c.want)
		}
	}
}

// burstyOfUnits is policy.Bursty with its parameters in the order of policy.Queue.
func burstyOfUnits(units, count int64, per time.Duration) (policy.Policy, error) {
	return policy.Bursty(count, per, units)
}

func TestWarmingUpRefuses(t *testing.T) {
	for _, c := range []struct {
		count       int64
		per, warmup time.Duration
		coldFactor  float64
		field       string
		value       any
		want        string
	}{
		{0, time.Second, time.Second, 3, "count", int64(0), "1 or more"},
		{1, 0, time.Second, 3, "per", time.Duration(0), "1ns or more"},
		{1, longestPatience + 1, time.Second, 3, "per", longestPatience + 1, "at most 80063h59m36.151711744s at a count of 1: a unit must not take more than 9 years"},
		{3, 3*longestPatience + 1, time.Second, 3, "per", 3*longestPatience + 1, "at most 240191h58m48.455135232s at a count of 3"},
		{1, longestDrain + 1, time.Second, 3, "per", longestDrain + 1, "at most 80063h59m36.151711744s"},
		{600_000_001, time.Second, time.Second, 3, "count", int64(600_000_001), "1.6875ns"},
		{1, time.Second, 0, 3, "warmup", time.Duration(0), "1ns or more (Bursty is without a warm-up)"},
		{1, time.Second, math.MinInt64, 3, "warmup", time.Duration(math.MinInt64), "1ns or more"},
		{1, time.Second, longestPatience + 1, 3, "warmup", longestPatience + 1, "9 years"},
		{1, time.Second, math.MaxInt64, 3, "warmup", time.Duration(math.MaxInt64), "9 years"},
		{1, time.Second, time.Second, 0.999, "coldFactor", 0.999, "1 or more"},
		{1, time.Second, time.Second, -3, "coldFactor", -3.0, "1 or more"},
		{1, time.Second, time.Second, math.Inf(1), "coldFactor", math.Inf(1), "1 or more"},
		{1, time.Second, time.Second, math.Inf(-1), "coldFactor", math.Inf(-1), "1 or more"},
		{1, time.Second, time.Second, math.MaxFloat64, "coldFactor", math.MaxFloat64, "at most 2.882303761517117e+08: a unit must not cost more than 9 years"},
		{1, year, year, 9.2, "coldFactor", 9.2, "at most 9.139"},
		{100, time.Second, time.Hour, 3, "warmup", time.Hour, "a word has no room for more"},
		{66_700_000, time.Second, 1, 1, "count", int64(66_700_000), "62 million"},
		{100_000_000, time.Second, 1, 3, "count", int64(100_000_000), "62 million"},
	} {
		p, err := policy.WarmingUp(c.count, c.per, c.warmup, c.coldFactor)
		refuses(t, p, err, "WarmingUp", c.field, c.value, c.want)
	}
	p, err := policy.WarmingUp(1, time.Second, time.Second, math.NaN())
	assert.Nil(t, p)
	assert.EqualError(t, err, "ral: WarmingUp: coldFactor is NaN, want a number of 1 or more")
}

// The longest value in an error is accepted, and a nanosecond more is not.
func TestWarmingUpNamesTheLongest(t *testing.T) {
	for _, c := range []struct {
		count      int64
		per        time.Duration
		coldFactor float64
		about      time.Duration
	}{
		{100, time.Second, 3, 6250 * time.Second / 2},
		{1000, time.Second, 3, 62500 * time.Millisecond / 2},
		{10_000, time.Second, 3, 625 * time.Millisecond},
		{10_000, time.Second, 1, 416 * time.Millisecond},
		{1_000_000, time.Second, 3, 62 * time.Microsecond},
		{1_000_000, time.Second, 1000, 124 * time.Microsecond},
		{700_000, time.Second, 2.5, 120 * time.Microsecond},
	} {
		_, err := policy.WarmingUp(c.count, c.per, time.Hour, c.coldFactor)
		var field *policy.FieldError
		require.ErrorAs(t, err, &field)
		var text string
		_, err = fmt.Sscanf(field.Want, "at most %s at", &text)
		require.NoError(t, err, field.Want)
		longest, err := time.ParseDuration(text)
		require.NoError(t, err)
		assert.InEpsilon(t, c.about, longest, 0.05)

		_, err = policy.WarmingUp(c.count, c.per, longest, c.coldFactor)
		assert.NoError(t, err)
		_, err = policy.WarmingUp(c.count, c.per, longest+1, c.coldFactor)
		assert.Error(t, err)
	}
}

func TestWarmingUpNamesTheColdest(t *testing.T) {
	// In the last, the quotient of the two times as a float64 is too high.
	for _, per := range []time.Duration{time.Millisecond, time.Second, 24 * time.Hour, year, time.Microsecond} {
		_, err := policy.WarmingUp(1, per, 1, 1e300)
		var field *policy.FieldError
		require.ErrorAs(t, err, &field)
		var most float64
		_, err = fmt.Sscanf(strings.ReplaceAll(field.Want, ":", " "), "at most %g", &most)
		require.NoError(t, err, field.Want)
		_, err = policy.WarmingUp(1, per, 1, most)
		assert.NoError(t, err)
		_, err = policy.WarmingUp(1, per, 1, math.Nextafter(most, math.Inf(1)))
		assert.ErrorContains(t, err, fmt.Sprintf("want at most %g: ", most))
	}
}

func TestPacedAccepts(t *testing.T) {
	for _, c := range []struct {
		p     policy.Policy
		limit int64
		text  string
	}{
		{policy.Must(policy.Queue(10, 2, time.Second)), 11, "queue 10, 2/s"},
		{policy.Must(policy.Queue(0, 1, longestDrain)), 1, "queue 0, 1/540431955284459520ns"},
		{policy.Must(policy.Queue(16*int64(longestDrain)-1, 16, 1)), 16 * int64(longestDrain), "queue 8646911284551352319, 16/ns"},
		{policy.Must(policy.Bursty(2, time.Second, 10)), 576460742, "bursty 2/s, 10"},
		{policy.Must(policy.Bursty(1000, time.Second, 0)), math.MaxInt32, "bursty 1000/s, 0"},
		{policy.Must(policy.Bursty(1, time.Second, 288230376)), 1, "bursty 1/s, 288230376"},
		{policy.Must(policy.Bursty(1, time.Second, 540431954)), 1, "bursty 1/s, 540431954"},
		{policy.Must(policy.WarmingUp(100, time.Second, 10*time.Second, 3)), math.MaxInt32, "warming up 100/s over 10s, cold 3"},
		{policy.Must(policy.WarmingUp(1, longestPatience, 1, 1)), 1, "warming up 1/288230376151711744ns over 1ns, cold 1"},
	} {
		_, d := c.p.Take(0, engineStart, c.limit, 0)
		assert.True(t, d.Allowed, "%v", c.p)
		assert.Equal(t, c.limit, d.Limit, "%v", c.p)
		_, d = c.p.Take(0, engineStart, c.limit+1, math.MaxInt64)
		assert.Equal(t, policy.Never, d.RetryAfter, "%v", c.p)
		assert.Zero(t, c.p.FreshAt(0))
		assert.Equal(t, c.text, c.p.String())
	}
}

// Any limit is refused with an error that helps, or kept; see kept.
func FuzzQueueConstructor(f *testing.F) {
	fuzzPaced(f, "Queue", "capacity", policy.Queue)
}

func FuzzBurstyConstructor(f *testing.F) {
	fuzzPaced(f, "Bursty", "maxBurst", burstyOfUnits)
}

func fuzzPaced(f *testing.F, of, field string, create func(units, count int64, per time.Duration) (policy.Policy, error)) {
	const most, least = math.MaxInt64, math.MinInt64
	for _, seed := range [][3]int64{
		{1, 1, int64(time.Second)}, {0, 1, 1}, {-1, 1, 1}, {1, 0, 1}, {1, 1, 0}, {least, least, least}, {most, most, most},
		{0, 1, int64(longestDrain)}, {0, 1, int64(longestDrain) + 1}, {1, 1, int64(longestDrain)},
		{16*int64(longestDrain) - 1, 16, 1}, {16 * int64(longestDrain), 16, 1}, {16, 1, int64(year)}, {17, 1, int64(year)},
		{1, 600_000_001, int64(time.Second)}, {1, 16_000, 999_001}, {1, 700_000, int64(time.Second)}, {most, 16, 1},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, units, count, per int64) {
		p, err := create(units, count, time.Duration(per))
		var want string
		switch {
		case units >= 0:
			// A unit more than fits a funnel's bucket: the unit that leaves, or is taken.
			want = refusal(units+1, count, time.Duration(per))
			if units == math.MaxInt64 {
				want = refusal(units, count, time.Duration(per))
			}
		case of == "Queue" || refusal(1, count, time.Duration(per)) == "":
			want = "capacity"
		default:
			want = refusal(1, count, time.Duration(per))
		}
		if want == "capacity" {
			want = field
		}
		value := map[string]any{field: units, "count": count, "per": time.Duration(per)}[want]
		kept(t, p, err, of, want, value)
		if err != nil {
			return
		}
		// Sixteen units take a whole number of nanoseconds.
		var word uint64
		for range 16 {
			next, d := p.Take(word, 0, 1, math.MaxInt64)
			if !d.Allowed {
				return
			}
			word = next
		}
		after, _ := p.Take(word, policy.Instant(math.MaxInt64), 0, 0)
		took := p.FreshAt(after)
		if of == "Bursty" {
			took -= 1 + policy.Instant(ceil(mul(whole(units), unitTime(count, time.Duration(per)))))
		}
		if exact := mul(whole(16), unitTime(count, time.Duration(per))); took < policy.Instant(ceil(exact))-1 || took > policy.Instant(ceil(exact)) {
			t.Errorf("%v: 16 units take %d ns, want %s", p, took, exact.FloatString(4))
		}
	})
}

// kept checks the result of a constructor that must refuse the field want, if any.
func kept(t *testing.T, p policy.Policy, err error, of, want string, value any) {
	t.Helper()
	if err == nil {
		if want != "" {
			t.Fatalf("%v is kept, want %s = %v refused", p, want, value)
		}
		return
	}
	var field *policy.FieldError
	if !errors.As(err, &field) || p != nil {
		t.Fatalf("%v, %v", p, err)
	}
	if field.Of != of || field.Field != want || field.Value != value || field.Want == "" || !strings.Contains(err.Error(), field.Want) {
		t.Errorf("%v; want %s = %v refused", err, want, value)
	}
}

// A limit that is kept must warm up: as slow as requested when cold, and at the rate when warm.
func FuzzWarmingUpConstructor(f *testing.F) {
	for _, l := range warmingUpLimits {
		f.Add(l.count, int64(l.per), int64(l.warmup), l.coldFactor)
	}
	f.Add(int64(1), int64(time.Second), int64(time.Second), math.NaN())
	f.Add(int64(100), int64(time.Second), int64(time.Hour), 3.0)
	f.Add(int64(1), int64(year), int64(year), 9.2)
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), math.MaxFloat64)
	f.Fuzz(func(t *testing.T, count, per, warmup int64, coldFactor float64) {
		p, err := policy.WarmingUp(count, time.Duration(per), time.Duration(warmup), coldFactor)
		var field *policy.FieldError
		if err != nil {
			if !errors.As(err, &field) || p != nil || field.Want == "" {
				t.Fatalf("%v, %v", p, err)
			}
			return
		}
		if want := refusal(1, count, time.Duration(per)); want != "" || warmup < 1 || !(coldFactor >= 1) {
			t.Fatalf("%v is kept", p)
		}
		grid := policy.ReadWarmingUp(p, 0)
		unit := unitTime(count, time.Duration(per))
		part := new(big.Rat).SetFrac64(int64(grid.Unit), 16)
		if grid.PerUnit < 16 || mul(part, whole(16)).Cmp(unit) > 0 || grid.Unit < grid.Levels {
			t.Fatalf("%v is too coarse: %+v", p, grid)
		}
		if grid.End < policy.Instant(9*year) {
			t.Fatalf("%v stands still at %d", p, grid.End)
		}
		m := newWarmingModel(count, time.Duration(per), time.Duration(warmup), coldFactor)
		_, d := p.Take(0, 0, 0, 0)
		for _, n := range []int64{1, 2, min(d.Limit, 1000), d.Limit} {
			if n > d.Limit {
				continue
			}
			next, d := p.Take(0, 0, n, 0)
			if !d.Allowed {
				t.Fatalf("%v: %d of %d: %+v", p, n, d.Limit, d)
			}
			due := new(big.Rat).SetFrac(new(big.Int).SetUint64(policy.ReadWarmingUp(p, next).Due), big.NewInt(16))
			exact := m.price(n)
			late := sub(due, exact)
			most := add(whole(2), mul(exact, big.NewRat(1, 1<<35)))
			if policy.ReadWarmingUp(p, next).Level < grid.Levels {
				most = add(most, part)
			}
			if late.Sign() < 0 || late.Cmp(most) > 0 {
				t.Fatalf("%v: %d cost %s ns, want %s", p, n, due.FloatString(3), exact.FloatString(3))
			}
		}
	})
}
