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
)

// Any limit is refused with an error that helps, or accepted: never above the requested rate, and
// hardly below. Exact fractions tell which is right.
func FuzzFunnelConstructor(f *testing.F) {
	const most, least = math.MaxInt64, math.MinInt64
	for _, seed := range [][3]int64{
		{1, 1, int64(time.Second)},
		{0, 1, 1}, {1, 0, 1}, {1, 1, 0}, {-1, -1, -1}, {least, least, least},
		{most, most, most}, {most, 1, 1}, {1, most, 1}, {1, 1, most},
		{most, most, 1}, {most, 1, most}, {1, most, most},
		{16 * int64(longestDrain), 16, 1}, {16*int64(longestDrain) + 1, 16, 1}, {1, 18, most}, {1, 17, most}, {1, 16, most}, {1, 8, most}, {1, 7, most},
		{17, 1, int64(year)}, {18, 1, int64(year)},
		{1, 1, int64(longestDrain)}, {1, 1, int64(longestDrain) + 1}, {1, 2, 2*int64(longestDrain) + 1},
		{10, 1_000_000, int64(time.Second)}, {10, 999_999, int64(time.Second)},
		{10, 700_000, int64(time.Second)}, {10, 7, int64(time.Minute)},
		{1, 1_000_000_000, int64(time.Second)}, {1, 600_000_001, int64(time.Second)},
		{1, 15_999_999, int64(time.Second)}, {1, 16_016_016, int64(time.Second)},
		// 1 in 1000 too slow, which is accepted, and hardly more, which is not.
		{1, 16_000, 999_001}, {1, 16_000, 999_000}, {1, 16_000, 998_999}, {1, 1001 * 16, 1000}, {1, 1001 * 16, 999},
	} {
		var data []byte
		for _, n := range seed {
			data = appendNumber(data, uint64(n))
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &script{data: data}
		capacity, count, per := int64(s.number()), int64(s.number()), time.Duration(s.number())
		p, err := policy.Funnel(capacity, count, per)
		want := refusal(capacity, count, per)
		if err == nil {
			if want != "" {
				t.Fatalf("Funnel(%d, %d, %d) is kept, want %s refused", capacity, count, per, want)
			}
			checkRate(t, p, capacity, count, per)
			return
		}
		var field *policy.FieldError
		if !errors.As(err, &field) || p != nil {
			t.Fatalf("Funnel(%d, %d, %d) = %v, %v", capacity, count, per, p, err)
		}
		value := map[string]any{"capacity": capacity, "count": count, "per": per}[field.Field]
		switch text := err.Error(); {
		case field.Field != want || field.Of != "Funnel" || field.Value != value:
			t.Errorf("Funnel(%d, %d, %d): %v; want %q refused", capacity, count, per, err, want)
		case field.Want == "" || !strings.Contains(text, field.Want) || !strings.Contains(text, fmt.Sprint(value)):
			t.Errorf("Funnel(%d, %d, %d): %v; does not say enough", capacity, count, per, err)
		}
	})
}

// refusal is the field that Funnel must refuse, or "".
func refusal(capacity, count int64, per time.Duration) string {
	switch {
	case capacity < 1:
		return "capacity"
	case count < 1:
		return "count"
	case per < 1:
		return "per"
	}
	asked := big.NewRat(int64(per), count)
	kept := unitTime(count, per)
	if kept.Cmp(whole(int64(longestDrain))) > 0 {
		return "per"
	}
	if tooSlow(kept, asked, big.NewRat(1, 1000)) {
		return "count"
	}
	if new(big.Rat).Mul(kept, whole(capacity)).Cmp(whole(int64(longestDrain))) > 0 {
		return "capacity"
	}
	return ""
}

// tooSlow reports whether kept exceeds asked by more than 1 in parts.
func tooSlow(kept, asked, parts *big.Rat) bool {
	excess := sub(kept, asked)
	return excess.Quo(excess, asked).Cmp(parts) > 0
}

// checkRate takes unit after unit, with all patience, and sees when the last has drained. Sixteen
// units take a whole number of nanoseconds, so this is exact. Of units that take years it takes a
// few only, to a nanosecond.
func checkRate(t *testing.T, p policy.Policy, capacity, count int64, per time.Duration) {
	t.Helper()
	var word uint64
	units := int64(0)
	for units < 16 {
		next, d := p.Take(word, 0, 1, math.MaxInt64)
		if !d.Allowed {
			break
		}
		word = next
		units++
	}
	drained := p.FreshAt(word)
	if units == 0 || units > 1<<59 || drained <= 0 {
		t.Fatalf("%v: %d units drain in %d ns", p, units, drained)
	}
	asked := big.NewRat(int64(per), count)
	slowest := big.NewRat(int64(drained), units)
	if slowest.Cmp(asked) < 0 {
		t.Errorf("%v: a unit drains in %v ns, too fast", p, slowest)
	}
	// Rounding FreshAt up may have added all but a sixteenth of a nanosecond.
	kept := slowest
	if units < 16 {
		kept = new(big.Rat).Quo(sub(whole(int64(drained)), big.NewRat(15, 16)), whole(units))
	}
	parts := big.NewRat(1, 1000)
	if asked.Cmp(whole(1000)) >= 0 && asked.Cmp(whole(int64(year))) <= 0 {
		parts = big.NewRat(100, 1_000_000)
	}
	if tooSlow(kept, asked, parts) {
		t.Errorf("%v: a unit drains in %v ns, too slow", p, kept)
	}
	if units == 16 && kept.Cmp(unitTime(count, per)) != 0 {
		t.Errorf("%v: a unit drains in %v ns, want %v", p, kept, unitTime(count, per))
	}
	if _, d := p.Take(0, 0, capacity, 0); !d.Allowed || d.Limit != capacity || d.Remaining != 0 {
		t.Errorf("%v: a full bucket is %+v", p, d)
	}
}
