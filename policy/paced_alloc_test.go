package policy_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
)

func TestPacedDecisionsAllocateNothing(t *testing.T) {
	const s = time.Second
	for _, pair := range [][2]policy.Policy{
		{policy.Must(policy.Queue(10, 700_000, s)), policy.Must(policy.Queue(20, 600_000, s))},
		{policy.Must(policy.Bursty(700_000, s, 10)), policy.Must(policy.Bursty(600_000, s, 20))},
		{policy.Must(policy.WarmingUp(100, s, 10*s, 3)), policy.Must(policy.WarmingUp(70, s, 10*s, 2))},
	} {
		p, other := pair[0], pair[1]
		now := policy.Instant(time.Hour)
		used, _ := p.Take(0, now, 3, 0)
		more, _ := p.Take(used, now, 1, math.MaxInt64)
		refunder, relative := p.(policy.Refunder), other.(policy.Relative)
		for name, call := range map[string]func(){
			"Take, never used":      func() { p.Take(0, now, 1, 0) },
			"Take":                  func() { p.Take(used, now, 1, 0) },
			"Take, later":           func() { p.Take(used, now+1000, 1, 0) },
			"Take, refused forever": func() { p.Take(used, now, math.MaxInt64, 0) },
			"Take, with patience":   func() { p.Take(used, now, 1, math.MaxInt64) },
			"Take, just looking":    func() { p.Take(used, now, 0, 0) },
			"Choke, never used":     func() { p.(policy.Choker).Choke(0, now) },
			"Choke":                 func() { p.(policy.Choker).Choke(used, now) },
			"Choke, later":          func() { p.(policy.Choker).Choke(used, now+1000) },
			"FreshAt":               func() { p.FreshAt(used) },
			"Refund":                func() { refunder.Refund(used, now, 1) },
			"Refund, a charge":      func() { refunder.Refund(used, now, math.MinInt64) },
			"Cancel":                func() { refunder.Cancel(more, used, 0, now, 1, 0) },
			"Cancel, the last":      func() { refunder.Cancel(used, used, 0, now, 1, 0) },
			"Reads":                 func() { relative.Reads(p) },
			"Carry":                 func() { relative.Carry(p, used, now) },
		} {
			assert.Zero(t, testing.AllocsPerRun(100, call), fmt.Sprint(p, ": ", name))
		}
	}
}
