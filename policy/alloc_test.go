package policy_test

import (
	"math"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
)

// A decision is made on every request, so it must leave nothing to collect. The
// calls go through the interfaces, as those of package cell do.
func TestDecisionsAllocateNothing(t *testing.T) {
	p := policy.Must(policy.Funnel(10, 700_000, time.Second))
	choker := p.(policy.Choker)
	now := engineStart
	full, _ := p.Take(0, now, 10, 0)
	refunder, relative := p.(policy.Refunder), p.(policy.Relative)
	other := policy.Must(policy.Funnel(7, 1, time.Minute))
	for name, call := range map[string]func(){
		"Take, admitted":        func() { p.Take(0, now, 1, 0) },
		"Take, refused":         func() { p.Take(full, now, 1, 0) },
		"Take, refused forever": func() { p.Take(full, now, 11, 0) },
		"Take, with patience":   func() { p.Take(full, now, 1, math.MaxInt64) },
		"Take, just looking":    func() { p.Take(full, now, 0, 0) },
		"Choke, admitted":       func() { choker.Choke(0, now) },
		"Choke, refused":        func() { choker.Choke(full, now) },
		"FreshAt":               func() { p.FreshAt(full) },
		"Refund":                func() { refunder.Refund(full, now, 3) },
		"Refund, a charge":      func() { refunder.Refund(full, now, math.MinInt64) },
		"Cancel":                func() { refunder.Cancel(full, full, 0, now, 3, 0) },
		"Reads":                 func() { relative.Reads(other) },
		"Carry":                 func() { relative.Carry(other, full, now) },
		"RedisCell":             func() { _ = policy.Decision{Limit: 1}.RedisCell() },
	} {
		assert.Zero(t, testing.AllocsPerRun(100, call), name)
	}
}
