package policy_test

import (
	"math"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// hotKey is a limit with a key in use, its admitted calls on average just within the limit.
type hotKey struct {
	name  string
	limit policy.Policy
	every policy.Instant
}

func hotKeys() []hotKey {
	const ms = policy.Instant(time.Millisecond)
	return []hotKey{
		{"Funnel", policy.Must(policy.Funnel(100, 1000, time.Second)), ms},
		{"FixedWindow", policy.Must(policy.FixedWindow(1000, time.Second)), ms + ms/100},
		{"SlidingWindow", policy.Must(policy.SlidingWindow(1000, time.Second)), ms + ms/100},
		{"AtMost in 8", policy.Must(policy.AtMost(7, time.Second)), 300 * ms},
		{"AtMost in 2", policy.Must(policy.AtMost(1000, time.Second)), 2 * ms},
		{"Queue", policy.Must(policy.Queue(100, 1000, time.Second)), ms},
		{"Bursty", policy.Must(policy.Bursty(1000, time.Second, 100)), ms},
		{"WarmingUp, warm", policy.Must(policy.WarmingUp(1000, time.Second, 10*time.Second, 3)), ms},
		{"WarmingUp, cold", policy.Must(policy.WarmingUp(1000, time.Second, 10*time.Second, 3)), 8 * ms},
	}
}

// BenchmarkInFlight takes a unit and releases it, beside other units in use.
func BenchmarkInFlight(b *testing.B) {
	for name, n := range map[string]int64{"in 8": 6, "in 4": 100, "in 1": 100_000} {
		limit := policy.Must(policy.InFlight(n, time.Minute))
		choker, occupier := limit.(policy.Choker), limit.(policy.Occupier)
		b.Run(name, func(b *testing.B) {
			now := engineStart
			word, _ := limit.Take(0, now, n-1, 0)
			for b.Loop() {
				taken, allowed := choker.Choke(word, now)
				next, ok := occupier.Release(taken, taken, math.MaxInt64, 1)
				if !allowed || !ok {
					b.Fatal("refused")
				}
				word = next
			}
		})
	}
}

// busy returns a word that such calls have left, and an instant after the last of them.
func (k hotKey) busy() (word uint64, now policy.Instant) {
	now = engineStart
	for range 20_000 {
		next, decision := k.limit.Take(word, now, 1, 0)
		if word = next; decision.Allowed {
			now += k.every
		}
		now += policy.Instant(decision.RetryAfter)
	}
	return word, now
}

// full returns a word with no room for the call at that instant.
func (k hotKey) full() (word uint64, now policy.Instant) {
	for word, now = k.busy(); ; {
		next, d := k.limit.Take(word, now, 1, 0)
		if !d.Allowed {
			return word, now
		}
		word = next
	}
}

func BenchmarkChoke(b *testing.B) {
	for _, k := range hotKeys() {
		choker := k.limit.(policy.Choker)
		b.Run(k.name+"/admitted", func(b *testing.B) {
			var allowed bool
			word, now := k.busy()
			for b.Loop() {
				if word, allowed = choker.Choke(word, now); !allowed {
					b.Fatal("refused")
				}
				now += k.every
			}
		})
		b.Run(k.name+"/refused", func(b *testing.B) {
			word, now := k.full()
			for b.Loop() {
				if _, allowed := choker.Choke(word, now); allowed {
					b.Fatal("admitted")
				}
			}
		})
	}
}

func BenchmarkTake(b *testing.B) {
	for _, k := range hotKeys() {
		b.Run(k.name+"/admitted", func(b *testing.B) {
			word, now := k.busy()
			for b.Loop() {
				var d policy.Decision
				if word, d = k.limit.Take(word, now, 1, 0); !d.Allowed {
					b.Fatal("refused")
				}
				now += k.every
			}
		})
		b.Run(k.name+"/refused", func(b *testing.B) {
			word, now := k.full()
			for b.Loop() {
				if _, d := k.limit.Take(word, now, 1, 0); d.Allowed {
					b.Fatal("admitted")
				}
			}
		})
	}
}
