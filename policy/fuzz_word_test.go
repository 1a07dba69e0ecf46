package policy_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
)

var kinds = []*kind{&funnels, &fixedWindows, &slidingWindows, &atMosts, &queues, &burstys, &warmingUps, &aligneds}

// wordSeeds begin with the number of a kind, then a limit's parameters.
func wordSeeds(f *testing.F, limits int, rest ...any) {
	for i, k := range kinds {
		var data []byte
		for range limits {
			data = append(data, byte(i))
			data = append(data, k.seeds[0]...)
		}
		f.Add(append(data, writeScript(rest...)...))
		for _, seed := range k.seeds {
			f.Add(append([]byte{byte(i)}, seed...))
		}
	}
}

// Any limit, asked for anything at any time with any word, keeps to the laws and does not panic.
// Promise: No word or argument makes a policy mint units.
func FuzzAnyWord(f *testing.F) {
	wordSeeds(f, 1, int64(1)<<62, int64(1)<<40, 1, 1<<30, int64(math.MaxInt64), 5, 7)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &script{data: data}
		limit := kinds[int(s.byte())%len(kinds)].read(s)
		word, now := min(s.number(), policy.MaxWord), policy.Instant(s.number())
		n, patience := int64(s.number()), time.Duration(s.number())
		taken, at, undone := min(s.number(), policy.MaxWord), policy.Instant(s.number()), int64(s.number())

		if fresh := limit.FreshAt(word); fresh < 0 || word == 0 && fresh != 0 {
			t.Fatalf("%v: FreshAt(%d) = %d", limit, word, fresh)
		}
		for _, n := range []int64{n, 0, 1, limit.limit} {
			for _, patience := range []time.Duration{patience, 0, math.MaxInt64} {
				limit.extreme(t, word, now, n, patience)
			}
			limit.extremeRefund(t, word, now, n)
		}
		next := limit.Policy.(policy.Refunder).Cancel(word, taken, at, now, n, undone)
		if next > policy.MaxWord || limit.FreshAt(next) > limit.FreshAt(word) {
			t.Fatalf("%v: Cancel(%d, %d, %d, %d, %d, %d) = %d", limit, word, taken, at, now, n, undone, next)
		}
	})
}

// A limit follows another. A word carried within the family is valid, and keeps units that
// count; strangers are told apart.
func FuzzCarry(f *testing.F) {
	wordSeeds(f, 2, int64(1)<<62, int64(1)<<40, 1, int64(1)<<30, int64(1)<<20, 2, int64(1)<<10, 0)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &script{data: data}
		i := int(s.byte()) % len(kinds)
		old := kinds[i].read(s)
		j := int(s.byte()) % len(kinds)
		limit := kinds[j].read(s)
		if model, ok := old.oracle.(*fromTo); ok && i == j { // an engine has a single zero
			limit.Policy = limit.Policy.(policy.Anchored).Anchor(time.Unix(0, model.zero))
		}

		from, to := old.Policy.(policy.Relative), limit.Policy.(policy.Relative)
		word, now := min(s.number(), policy.MaxWord), policy.Instant(s.number())
		next, ok := to.Carry(old.Policy, word, now)
		switch {
		case ok != (i == j):
			t.Fatalf("%v carries from %v: %v", limit, old, ok)
		case from.Reads(limit.Policy) != to.Reads(old.Policy) || to.Reads(old.Policy) && !ok:
			t.Fatalf("%v and %v read each other's words, or not", limit, old)
		case !to.Reads(limit.Policy):
			t.Fatalf("%v does not read its own words", limit)
		case next > policy.MaxWord:
			t.Fatalf("%v: Carry(%v, %d, %d) = %d", limit, old, word, now, next)
		}
		if ok {
			limit.chokes(t, next, now)
		}
		if !ok || i > 3 && kinds[i] != &aligneds { // another family, or Remaining counts no units
			return
		}
		word, now = 0, 1
		for range 4 {
			now += policy.Instant(s.number() % uint64(2*min(old.period, longestWindow)))
			if next, d := old.Take(word, now, 1+int64(s.number()%uint64(old.limit)), time.Duration(s.number())); d.Allowed {
				word = next
			}
		}
		now += policy.Instant(s.number() % uint64(2*min(old.period, longestWindow)))
		if now > min(old.end, limit.end)-policy.Instant(longestWindow) {
			return // time is about to stand still for either
		}
		next, _ = to.Carry(old.Policy, word, now)
		_, was := old.Take(word, now, 0, 0)
		_, is := limit.Take(next, now, 0, 0)
		if used := min(was.Limit-was.Remaining, is.Limit); is.Remaining > is.Limit-used {
			t.Fatalf("%v: Carry(%v, %d, %d) = %d: %+v, and before %+v", limit, old, word, now, next, is, was)
		}
	})
}

func FuzzRedisCell(f *testing.F) {
	f.Add(true, int64(5), int64(4), int64(0), int64(time.Second))
	f.Add(false, int64(5), int64(0), int64(1), int64(time.Second+1))
	f.Add(false, int64(5), int64(0), int64(policy.Never), int64(math.MaxInt64))
	f.Add(false, int64(0), int64(-1), int64(-1), int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, allowed bool, limit, remaining, retry, reset int64) {
		d := policy.Decision{
			Allowed: allowed, Limit: limit, Remaining: remaining,
			RetryAfter: time.Duration(retry), ResetAfter: time.Duration(reset),
		}
		up := func(nanos int64) int64 {
			return ceilInt(new(big.Rat).SetFrac(big.NewInt(nanos), big.NewInt(int64(time.Second)))).Int64()
		}
		want := [5]int64{1, limit, remaining, up(retry), up(reset)}
		if reset > 1 { // up to 100µs of it are a limit's own rounding
			want[4] = up(reset - min(reset-1, 100_000))
		}
		if allowed {
			want[0] = 0
		}
		if allowed || d.RetryAfter == policy.Never {
			want[3] = -1
		}
		if got := d.RedisCell(); got != want {
			t.Errorf("%+v: %v, want %v", d, got, want)
		}
	})
}
