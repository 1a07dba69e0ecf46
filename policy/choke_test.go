package policy_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
)

func (s subject) chokes(t *testing.T, word uint64, now policy.Instant) {
	t.Helper()
	next, allowed := s.Policy.(policy.Choker).Choke(word, now)
	if want, d := s.Take(word, now, 1, 0); next != want || allowed != d.Allowed {
		t.Fatalf("%v: Choke(%d, %d) = %d, %v, but Take of one %d, %+v", s, word, now, next, allowed, want, d)
	}
}

// On words that calls, changes of limits or nothing leave, around the instants at which the
// answer changes, at the ends of time, and outside of it.
// Promise: `Choke` answers as `Take` of 1.
func TestChokeIsTakeOfOne(t *testing.T) {
	for i, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s := &script{rng: rand.New(rand.NewPCG(uint64(i), 1))}
			admitted, refused := 0, 0
			for range 1000 / raceFactor {
				limit, other := k.read(s), k.read(s)
				word, now := uint64(0), policy.Instant(1)
				for range 60 {
					switch s.byte() % 16 {
					case 0:
						word = min(s.number(), policy.MaxWord)
					case 1:
						word = policy.MaxWord - s.number()%(1<<20)
					case 2: // of the other limit, as far as it is of the family
						if next, ok := limit.Policy.(policy.Relative).Carry(other.Policy, word, now); ok {
							word = next
						}
					case 3:
						word = limit.Policy.(policy.Refunder).Refund(word, now, s.between(-limit.limit, limit.limit))
					case 4:
						now = policy.Instant(s.number())
					case 5, 6:
						now = limit.FreshAt(word)
					default:
						now = shift(now, s.step()%int64(limit.period*2))
					}
					for _, at := range [...]policy.Instant{now, now - 1, now + 1, -now, 0, math.MinInt64,
						limit.end, limit.end + 1, math.MaxInt64} {
						limit.chokes(t, word, at)
					}
					next, d := limit.Take(word, now, s.between(1, limit.limit), max(0, time.Duration(s.number())))
					switch {
					case d.Allowed:
						admitted++
						word = next
					case d.RetryAfter < math.MaxInt64-time.Duration(max(now, 0)):
						limit.chokes(t, word, now+policy.Instant(d.RetryAfter)-1)
						limit.chokes(t, word, now+policy.Instant(d.RetryAfter))
						refused++
					}
				}
			}
			if admitted < 5000/raceFactor || refused < 5000/raceFactor {
				t.Errorf("%d admitted and %d refused: too few", admitted, refused)
			}
		})
	}
}
