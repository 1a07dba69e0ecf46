package envoyserver

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	types "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ral-limiter/ral/cmd/rald/internal/redistest"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
)

// sharedRules have windows that seldom end, and limits that drain slowly.
const sharedRules = `
domain: d
descriptors:
  - {key: day, rate_limit: {unit: day, requests_per_unit: 7, name: day}}
  - {key: month, rate_limit: {unit: month, requests_per_unit: 20}}
  - {key: year, rate_limit: {unit: year, requests_per_unit: 4000000000}}
  - {key: none, rate_limit: {unit: year, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true, replaces: [{name: day}]}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: quota, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: own, rate_limit: {limit: "funnel 9, 1/300d", candidate: window 4/300d}}
  - {key: log, rate_limit: {limit: at most 6/300d}}
  - {key: tried, rate_limit: {unit: day, requests_per_unit: 6, candidate: sliding 3/300d}}
`

// Codes, remaining hits and headers, also with all_or_nothing.
//
// Promise: Redis and engines give equal verdicts.
func TestVerdictsOverRedisAreThoseOfEngines(t *testing.T) {
	for name, head := range map[string]string{"one by one": "", "all or nothing": "all_or_nothing: true\n"} {
		t.Run(name, func(t *testing.T) {
			for {
				day := time.Now().UTC().YearDay()
				if compareShared(t, head+sharedRules, head != ""); day == time.Now().UTC().YearDay() {
					return
				}
			}
		})
	}
}

func compareShared(t *testing.T, config string, allOrNothing bool) {
	of, _ := redistest.Open(t, fleet.FallbackClosed)
	over := openIn(t, of, Config{Headers: true}, config)
	in := open(t, config)
	seed := testenv.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	day := time.Now().UTC().YearDay()
	steps := 600
	if testing.Short() {
		steps = 200
	}
	for step := range steps {
		request := anyRequest(random, allOrNothing)
		want, err := in.ShouldRateLimit(t.Context(), request)
		require.NoError(t, err)
		got, err := over.ShouldRateLimit(t.Context(), request)
		require.NoError(t, err)
		for _, r := range []*pb.RateLimitResponse{want, got} {
			for _, s := range r.Statuses {
				s.DurationUntilReset = rough(s.DurationUntilReset)
			}
			for _, h := range r.ResponseHeadersToAdd {
				if h.Key == "RateLimit-Reset" {
					h.Value = ""
				}
			}
		}
		if day != time.Now().UTC().YearDay() {
			// A window may have ended in between.
			return
		}
		require.Equal(t, fmt.Sprint(want), fmt.Sprint(got), "seed %d, step %d: %v", seed, step, request)
	}
	for rule, counts := range in.Counts() {
		for other, count := range over.Counts() {
			if other.Path == rule.Path {
				assert.Equal(t, [3]uint64{counts.Passed.Load(), counts.Refused.Load(), counts.WouldRefuse.Load()},
					[3]uint64{count.Passed.Load(), count.Refused.Load(), count.WouldRefuse.Load()}, rule.Path)
			}
		}
	}
}

// rough rounds a time to hide differences between calls and between beginnings of windows.
func rough(d *durationpb.Duration) *durationpb.Duration {
	if d.GetSeconds() == 0 {
		return d
	}
	const week = 7 * 24 * 3600
	return &durationpb.Duration{Seconds: min((d.Seconds+week/2)/week, 1)}
}

// anyRequest returns a request with up to three descriptors, of different keys if apart is set.
// Engines and Redis look at them in different orders, so a refused all_or_nothing request may report
// the second of a key with or without the units of the first.
func anyRequest(random *rand.Rand, apart bool) *pb.RateLimitRequest {
	keys := []string{"day", "month", "year", "none", "free", "shadow", "quota", "own", "log", "tried", "unknown"}
	request := &pb.RateLimitRequest{Domain: "d", HitsAddend: uint32(random.IntN(3))}
	for i := range 1 + random.IntN(3) {
		value := random.IntN(4)
		if apart {
			value += 4 * i
		}
		d := entries(fmt.Sprintf("%s=%d", keys[random.IntN(len(keys))], value))
		switch random.IntN(8) {
		case 0:
			d = hitting(d, uint64(random.IntN(9)))
		case 1:
			d = refunding(d, uint64(random.IntN(4)))
		case 2:
			d = hitting(d, 1<<random.IntN(64))
		case 3:
			d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(random.IntN(6)), Unit: types.RateLimitUnit_DAY}
		}
		request.Descriptors = append(request.Descriptors, d)
	}
	return request
}

// Refused hits do not count without Redis. A limit that Redis cannot keep is a fault of the file.
func TestVerdictsInAnOutage(t *testing.T) {
	of, r := redistest.Open(t, fleet.FallbackShare)
	d := openIn(t, of, Config{Headers: true}, sharedRules)
	d.write(sharedRules + `  - {key: own, value: x, rate_limit: {limit: "window 5/month in UTC"}}` + "\n")
	err := d.reload()
	assert.ErrorContains(t, err, "rules.yaml:14")
	assert.ErrorContains(t, err, "in UTC cannot be kept in Redis, want a funnel, queue")
	assert.Len(t, d.table.Load().set.Rules(), 10)
	admitted := func(n int) (all int) {
		for range n {
			if code, _ := d.ask(entries("month=x")); code == ok {
				all++
			}
		}
		return all
	}
	assert.Equal(t, 13, admitted(13))
	r.Kill()
	assert.Equal(t, 7, admitted(20))
	code, _ := d.ask(entries("none=x"))
	assert.Equal(t, over, code)
}
