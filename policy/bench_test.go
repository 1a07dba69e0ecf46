package policy_test

import (
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// The admitted calls carry their word on and move the clock by what a unit
// takes, so the bucket stays half full. The refused ones meet a full bucket.
//
// Calls go through the interfaces, as those of package cell do.
const benchInterval = policy.Instant(time.Millisecond)

func benchFunnel() (p policy.Policy, half, full uint64) {
	p = policy.Must(policy.Funnel(100, 1000, time.Second))
	half, _ = p.Take(0, engineStart, 50, 0)
	full, _ = p.Take(0, engineStart, 100, 0)
	return p, half, full
}

func BenchmarkChoke(b *testing.B) {
	p, half, full := benchFunnel()
	choker := p.(policy.Choker)
	b.Run("admitted", func(b *testing.B) {
		var allowed bool
		word, now := half, engineStart
		for b.Loop() {
			if word, allowed = choker.Choke(word, now); !allowed {
				b.Fatal("refused")
			}
			now += benchInterval
		}
	})
	b.Run("refused", func(b *testing.B) {
		for b.Loop() {
			if _, allowed := choker.Choke(full, engineStart); allowed {
				b.Fatal("admitted")
			}
		}
	})
}

func BenchmarkTake(b *testing.B) {
	p, half, full := benchFunnel()
	b.Run("admitted", func(b *testing.B) {
		word, now := half, engineStart
		for b.Loop() {
			var d policy.Decision
			if word, d = p.Take(word, now, 1, 0); !d.Allowed {
				b.Fatal("refused")
			}
			now += benchInterval
		}
	})
	b.Run("refused", func(b *testing.B) {
		for b.Loop() {
			if _, d := p.Take(full, engineStart, 1, 0); d.Allowed {
				b.Fatal("admitted")
			}
		}
	})
	b.Run("patient", func(b *testing.B) {
		for b.Loop() {
			if _, d := p.Take(full, engineStart, 1, time.Second); d.Wait == 0 {
				b.Fatal("no wait")
			}
		}
	})
}

func BenchmarkRefund(b *testing.B) {
	p, half, _ := benchFunnel()
	refunder := p.(policy.Refunder)
	b.Run("back", func(b *testing.B) {
		for b.Loop() {
			if refunder.Refund(half, engineStart, 1) == half {
				b.Fatal("nothing came back")
			}
		}
	})
	b.Run("charge", func(b *testing.B) {
		for b.Loop() {
			if refunder.Refund(half, engineStart, -1) == half {
				b.Fatal("nothing was charged")
			}
		}
	})
}

func BenchmarkCancel(b *testing.B) {
	p, half, full := benchFunnel()
	refunder := p.(policy.Refunder)
	waits, _ := p.Take(full, engineStart, 1, time.Second)
	for name, word := range map[string]uint64{"none since": half, "others since": full, "others wait": waits} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if refunder.Cancel(word, half, 0, engineStart, 50, 0) == word {
					b.Fatal("nothing came back")
				}
			}
		})
	}
}

func BenchmarkCarry(b *testing.B) {
	p, half, _ := benchFunnel()
	slower := policy.Must(policy.Funnel(100, 700, time.Second)).(policy.Relative)
	for b.Loop() {
		if _, ok := slower.Carry(p, half, engineStart); !ok {
			b.Fatal("not carried over")
		}
	}
}
