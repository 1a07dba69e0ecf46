package main

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/policy"
)

// admitted is a call that was admitted, in milliseconds.
type admitted struct{ sent, got int }

func (b *bound) all(calls []admitted) *bound {
	for _, c := range calls {
		b.admit(time.Duration(c.sent)*time.Millisecond, time.Duration(c.got)*time.Millisecond)
	}
	return b
}

// evenly is n calls, one each so many milliseconds, each answered in one.
func evenly(n, from, each int) (calls []admitted) {
	for i := range n {
		calls = append(calls, admitted{from + i*each, from + i*each + 1})
	}
	return calls
}

func TestBound(t *testing.T) {
	const rate = 100
	for name, v := range map[string]struct {
		calls []admitted
		now   int
		want  int64
	}{
		"nothing":             {nil, 5000, 0},
		"at the rate":         {evenly(500, 0, 10), 5000, 0},
		"at once":             {evenly(200, 1010, 0), 5000, 190}, // of the grain's own 10 it cannot tell
		"twice the rate, 1 s": {evenly(200, 1000, 5), 5000, 100},
		"a burst in between":  {append(evenly(500, 0, 10), evenly(70, 2500, 0)...), 5000, 70},
		// Two bursts that are apart add up, less what drains in between.
		"two bursts": {append(evenly(100, 1010, 0), evenly(100, 1510, 0)...), 5000, 200 - 60},
		// What was asked in one stretch and answered in another may have been decided in
		// either.
		"slow answers":        {[]admitted{{0, 900}, {0, 900}, {0, 900}}, 5000, 0},
		"long ago":            {evenly(200, 1010, 0), 1000*lookback/10 + 1500, 0},
		"not yet so long ago": {evenly(200, 1010, 0), 1000*lookback/10 + 900, 190},
		"after a long pause":  {append(evenly(200, 1010, 0), evenly(60, 61010, 0)...), 61100, 50},
	} {
		t.Run(name, func(t *testing.T) {
			b := (&bound{rate: rate}).all(v.calls)
			assert.Equal(t, v.want, b.burst(time.Duration(v.now)*time.Millisecond))
		})
	}
}

// What a limiter that keeps its limit exactly admits is never found to be more, however
// long its answers take; and one that admits 10 more is found out if they are quick.
func TestBoundIsFair(t *testing.T) {
	const capacity, rate = 50, 200.0
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		honest, generous := bound{rate: rate}, bound{rate: rate}
		// The level drains with time, and each admitted call adds one: each bound is
		// shown what such a limiter admits of a load that comes and goes.
		play := func(b *bound, capacity, delay float64) int64 {
			at, level := 0.0, 0.0
			for range 3000 {
				wait := random.ExpFloat64() / 600
				if random.IntN(300) == 0 {
					wait += random.Float64()
				}
				at += wait
				if level = max(0, level-rate*wait); level+1 > capacity {
					continue
				}
				level++
				before, after := delay*random.Float64(), delay*random.Float64()
				b.admit(seconds(max(0, at-before)), seconds(at+after))
			}
			return b.burst(seconds(at + delay))
		}
		assert.LessOrEqual(t, play(&honest, capacity, 0.3), int64(capacity), "seed %d", seed)
		// A grain at each end may hide what the rate allows in it.
		found := play(&generous, capacity+10+2*rate*grain.Seconds(), 0)
		assert.Greater(t, found, int64(capacity), "seed %d", seed)
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func TestMost(t *testing.T) {
	b := bound{capacity: 100, rate: 50}
	b.all([]admitted{{3000, 3010}, {2000, 4000}, {2500, 2600}})
	assert.EqualValues(t, 100+50*2, b.most())
}

// Each round of requests has as many for each server as its weight.
func TestSpread(t *testing.T) {
	for _, weights := range [][servers]float64{{1, 1, 1}, {8, 1, 1}, {1, 8, 1}} {
		var s spread
		for range 50 {
			var got [servers]float64
			for range int(weights[0] + weights[1] + weights[2]) {
				got[s.next(weights)]++
			}
			assert.Equal(t, weights, got)
		}
	}
	// Other weights begin at once.
	var s spread
	s.next([servers]float64{1, 1, 1})
	for range 8 {
		assert.Equal(t, 1, s.next([servers]float64{0, 8, 0}))
	}
}

// Of an even load each server is admitted as much, also if requests come at a fixed pace that
// is in step with the limit.
func TestEvenLoadIsServedEvenly(t *testing.T) {
	const rate, times, seconds = 100, 3, 100
	limit := policy.Must(policy.Funnel(rate, rate, time.Second))
	var s spread
	var word uint64
	var admitted [servers]int
	sum := 0
	for i := range rate * times * seconds {
		to := s.next([servers]float64{1, 1, 1})
		next, d := limit.Take(word, policy.Instant(time.Hour)+policy.Instant(i)*policy.Instant(time.Second)/(rate*times), 1, 0)
		if d.Allowed {
			word = next
			admitted[to]++
			sum++
		}
	}
	assert.InDelta(t, rate*(seconds+1), sum, 2)
	for i, n := range admitted { // within six standard deviations
		assert.InDelta(t, sum/servers, n, 300, "server %d of %v", i+1, admitted)
	}
}

// What Redis admits and what shares admit are held against the limit apart, and what passes
// without a limit against none.
func TestAudits(t *testing.T) {
	began := time.Now().Add(-3 * time.Second)
	c := newCounts(began, 100, 50)
	way := func(name string) int { return slices.Index(ways[:], name) }
	at := began.Add
	for name, n := range map[string]int{"exact": 40, "leased": 50, "local": 70, "open": 1000} {
		for range n {
			c.add(0, reply{sent: at(0), got: at(time.Second), by: way(name), admitted: true})
		}
	}
	c.add(1, reply{sent: at(0), got: at(time.Second), by: way("closed")})
	c.add(2, reply{sent: at(0), got: at(2 * time.Second), by: way("exact"), admitted: true})
	c.cut()
	got := c.sum()
	assert.EqualValues(t, 91, got.Redis.Admitted)
	assert.EqualValues(t, 100+2*50, got.Redis.Most)
	assert.EqualValues(t, 70, got.Shares.Admitted)
	assert.EqualValues(t, 100+50, got.Shares.Most)
	assert.EqualValues(t, 1161, got.Admitted)
	assert.EqualValues(t, 1, got.Refused)
}

func TestShifting(t *testing.T) {
	for at, busy := range map[time.Duration]int{0: 0, 3999 * time.Millisecond: 0, 4 * time.Second: 1, 8 * time.Second: 2, 13 * time.Second: 0} {
		for i, w := range patterns["shifting"](at) {
			assert.Equal(t, i == busy, w > 1, "at %v, server %d", at, i)
		}
	}
}

func TestLast(t *testing.T) {
	var all []int
	for i := range 10 {
		all = last(3, append(all, i))
	}
	assert.Equal(t, []int{7, 8, 9}, all)
	assert.LessOrEqual(t, cap(all), 4)
}

func TestLines(t *testing.T) {
	var got []string
	l := lines{to: func(line string) { got = append(got, line) }}
	for _, part := range []string{"one\ntw", "o\n", "", "\nthr", "ee"} {
		n, err := l.Write([]byte(part))
		assert.NoError(t, err)
		assert.Equal(t, len(part), n)
	}
	assert.Equal(t, []string{"one", "two", ""}, got)
}

// What was admitted is compared with what the limit allows up to the same call, also if that came
// after the last cut.
func TestSumComparesWithTheLimitOfTheSameInstant(t *testing.T) {
	began := time.Now()
	c := newCounts(began, 1, 10)
	for i := range 50 {
		at := began.Add(time.Duration(i) * time.Second / 10)
		for _, name := range []string{"exact", "local"} {
			c.add(0, reply{sent: at, got: at, by: slices.Index(ways[:], name), admitted: true})
		}
		if i == 0 {
			c.cut()
		}
		sum := c.sum()
		assert.LessOrEqual(t, sum.Redis.Admitted, sum.Redis.Most)
		assert.LessOrEqual(t, sum.Shares.Admitted, sum.Shares.Most)
	}
}
