package suggest

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/ral/internal/accesslog"
	"github.com/ral-limiter/ral/cmd/ral/internal/replay"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// randomLog returns requests of keys that differ in their rates and bursts.
func randomLog(random *rand.Rand, n int, maxCost int64) (log []accesslog.Entry) {
	plans := []string{"gold", "free", ""}
	now := int64(1_700_000_000_000_000_000) + random.Int64N(1e15)
	step := int64(1) << (20 + random.IntN(13))
	keys := 9 + random.IntN(40)
	for len(log) < n {
		key := random.IntN(1 + random.IntN(keys))
		burst := 1
		if random.IntN(5) == 0 {
			burst += random.IntN(1 + key)
		}
		for range burst {
			log = append(log, accesslog.Entry{
				Key: fmt.Appendf(nil, "key %d", key), Plan: []byte(plans[key%3]), Arrival: now,
				Duration: time.Duration(random.Int64N(20 * step)), Cost: (1 + random.Int64N(maxCost)) * min(random.Int64N(30), 1),
			})
			now += random.Int64N(1 + step/int64(burst*burst))
		}
		now += random.Int64N(step)
		if random.IntN(200) == 0 {
			now += random.Int64N(100_000_000_000)
		}
	}
	return log
}

func replayed(c replay.Config, log []accesslog.Entry) *replay.Result {
	c.MaxKeys, c.Window, c.HasCost = 1_000, time.Hour, true
	r := must.Get(replay.New(c))
	for i := range log {
		r.Add(&log[i])
	}
	return r.Result()
}

// Promise: A limit that `ral suggest` proposes refuses exactly as many keys of the log as it says when it is replayed, and the next lower limit refuses more than allowed.
func TestSuggestionsHoldWhenReplayed(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 12))
	kinds := map[string]int{}
	for range 16 {
		s := must.Get(New(Config{
			Rates: []string{"7/9s", "1/s", "20/s", "90/m", "900/s", "20000/s"}, Periods: []string{"s", "1m", "3600001ms"}, MaxTime: "30s", Zone: "Europe/Berlin",
			MaxRefused: func(keys int64) int64 { return random.Int64N(keys) },
		}))
		log := randomLog(random, 700, []int64{1, 1, 6, 400}[random.IntN(4)])
		plans := s.Result(replayed(replay.Config{Gauges: s.Gauges}, log), true)
		require.Len(t, plans, 3)
		for _, plan := range plans {
			// The times of a policy begin at the same instant by a look at another key.
			own := []accesslog.Entry{{Key: []byte("first"), Arrival: log[0].Arrival}}
			for _, e := range log {
				if string(e.Plan) == plan.Plan {
					e.Plan = nil
					own = append(own, e)
				}
			}
			refused := func(limit policy.Policy) int64 {
				result := replayed(replay.Config{Limits: []policy.Policy{limit}}, own)
				require.Equal(t, plan.Keys+1, result.Keys)
				return result.Scenarios[0].RefusedKeys
			}
			for _, suggestion := range plan.Limits {
				limit := must.Get(policy.Parse(suggestion.Limit))
				require.LessOrEqual(t, suggestion.Refused, plan.MaxRefused)
				require.Equal(t, suggestion.Refused, refused(limit), suggestion.Limit)
				if suggestion.Lower < 0 {
					continue
				}
				kinds[strings.Fields(suggestion.Limit)[0]]++
				require.Greater(t, suggestion.Lower, plan.MaxRefused)
				require.Equal(t, suggestion.Lower, refused(lower(t, s, suggestion.Limit)), "below %s", suggestion.Limit)
			}
			for _, rate := range plan.Rates {
				funnel := func(capacity int64) int64 {
					return refused(must.Get(policy.Parse(fmt.Sprintf("funnel %d, %s", capacity, rate.Rate))))
				}
				for i, capacity := range plan.Capacities[:min(len(plan.Capacities), 4)] {
					require.Equal(t, rate.Refused[i], funnel(capacity))
				}
				for i, capacity := range rate.Quantiles {
					few := plan.Keys * (1000 - Shares[i]) / 1000
					require.LessOrEqual(t, funnel(capacity), few)
					if capacity > 1 {
						require.Greater(t, funnel(capacity-1), few)
					}
				}
			}
		}
	}
	for _, kind := range []string{"funnel", "queue", "bursty", "warming", "window", "sliding", "at", "in"} {
		assert.Greater(t, kinds[kind], 4, kind)
	}
}

// lower returns the limit of the same family that comes before a limit.
func lower(t *testing.T, s *Suggester, limit string) policy.Policy {
	t.Helper()
	capacity, _ := strconv.ParseInt(regexp.MustCompile(`\d+`).FindString(limit), 10, 64)
	for _, f := range s.families {
		for _, r := range f.ranges {
			for _, n := range []int64{r.low, capacity, capacity + 1} { // a queue has a unit less
				if r.low <= n && n <= r.high && f.text(n) == limit {
					return must.Get(policy.Parse(f.text(n - 1)))
				}
			}
		}
	}
	t.Fatalf("%s is of no family", limit)
	return nil
}

func TestNeedsOfALogOfYears(t *testing.T) {
	s := must.Get(New(Config{Rates: []string{"1/s", "1/d"}, MaxTime: "1m", Zone: "UTC", MaxRefused: func(int64) int64 { return 0 }}))
	var log []accesslog.Entry
	for year := range int64(7) {
		log = append(log, accesslog.Entry{Key: []byte("a"), Arrival: 1e18 + year*int64(365*24*time.Hour), Cost: 1})
	}
	plans := s.Result(replayed(replay.Config{Gauges: s.Gauges}, log), false)
	for i, want := range []string{"funnel 1, 1/d", "funnel 1, 1/s", "queue 0, 1/d", "queue 0, 1/s"} {
		assert.Equal(t, Suggestion{want, 0, -1}, plans[0].Limits[i])
	}
}

func TestNoLogNoSuggestions(t *testing.T) {
	s := must.Get(New(Config{Rates: []string{"1/s"}, MaxTime: "1m", Zone: "UTC"}))
	assert.Empty(t, s.Result(replayed(replay.Config{Gauges: s.Gauges}, nil), false))
	_, err := New(Config{Rates: []string{"1/s"}, MaxTime: "1m", Zone: "Nowhere"})
	assert.ErrorContains(t, err, "zone")
}
