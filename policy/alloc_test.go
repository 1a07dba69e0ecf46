package policy_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
)

// Calls go through the interfaces, as in package cell.
func TestDecisionsAllocateNothing(t *testing.T) {
	const s = time.Second
	pairs := [][2]policy.Policy{
		{policy.Must(policy.Funnel(10, 700_000, s)), policy.Must(policy.Funnel(7, 1, time.Minute))},
		{policy.Must(policy.Queue(10, 700_000, s)), policy.Must(policy.Queue(20, 600_000, s))},
		{policy.Must(policy.Bursty(700_000, s, 10)), policy.Must(policy.Bursty(600_000, s, 20))},
		{policy.Must(policy.WarmingUp(100, s, 10*s, 3)), policy.Must(policy.WarmingUp(70, s, 10*s, 2))},
	}
	for _, w := range windowPolicies {
		pairs = append(pairs, [2]policy.Policy{policy.Must(w.make(5, s)), policy.Must(w.make(3, time.Minute))})
	}
	for _, pair := range pairs {
		p, other := pair[0], pair[1]
		now := policy.Instant(1_234_567_890_123)
		used, _ := p.Take(0, now, 3, 0)
		full, _ := p.Take(0, now, p.Limit(), 0)
		more, _ := p.Take(used, now, 1, math.MaxInt64)
		ahead, _ := p.Take(full, now, p.Limit(), math.MaxInt64)
		choker, refunder, relative := p.(policy.Choker), p.(policy.Refunder), p.(policy.Relative)
		for name, call := range map[string]func(){
			"Take, never used":      func() { p.Take(0, now, 1, 0) },
			"Take":                  func() { p.Take(used, now, 1, 0) },
			"Take, later":           func() { p.Take(used, now+1000, 1, 0) },
			"Take, of a full key":   func() { p.Take(full, now, 1, 0) },
			"Take, refused forever": func() { p.Take(used, now, math.MaxInt64, 0) },
			"Take, with patience":   func() { p.Take(full, now, 1, math.MaxInt64) },
			"Take, just looking":    func() { p.Take(full, now, 0, 0) },
			"Choke, never used":     func() { choker.Choke(0, now) },
			"Choke":                 func() { choker.Choke(used, now) },
			"Choke, later":          func() { choker.Choke(used, now+1000) },
			"Choke, of a full key":  func() { choker.Choke(full, now) },
			"FreshAt":               func() { p.FreshAt(full) },
			"Refund":                func() { refunder.Refund(used, now, 1) },
			"Refund, of a turn":     func() { refunder.Refund(ahead, now, 5) },
			"Refund, a charge":      func() { refunder.Refund(full, now, math.MinInt64) },
			"Cancel":                func() { refunder.Cancel(more, used, 0, now, 1, 0) },
			"Cancel, the last":      func() { refunder.Cancel(used, used, 0, now, 1, 0) },
			"Cancel, of a turn":     func() { refunder.Cancel(ahead, ahead, 0, now, 5, 0) },
			"Reads":                 func() { relative.Reads(other) },
			"Carry":                 func() { relative.Carry(other, full, now) },
			"RedisCell":             func() { _ = policy.Decision{Limit: 1}.RedisCell() },
		} {
			assert.Zero(t, testing.AllocsPerRun(100, call), fmt.Sprint(p, ": ", name))
		}
	}
}
