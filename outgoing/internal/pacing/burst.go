package pacing

import (
	"math"
	"time"

	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/policy"
)

// Burst is how many calls a limit admits at once, and how its units come back.
type Burst struct {
	// Spaced means that the limit admits no calls at once, so that no draining is needed.
	Spaced bool
	// Max is the number of calls that a new key may send at once.
	Max int64
	// Lasts means that units beyond the limit count until drained. In windows such units end with
	// their window.
	Lasts bool
	// Unit is the nanoseconds to drain a unit.
	Unit float64
	// Left is the time until a key with a unit left is as new.
	Left time.Duration
}

// BurstOf returns the Burst of a limit, found by its decisions on a long unused key.
func BurstOf(limit policy.Policy) Burst {
	const now = policy.Instant(answer.MaxTime)
	_, unused := limit.Take(0, now, 0, 0)
	burst := Burst{Spaced: limit.Delays(), Max: max(min(unused.Remaining, math.MaxInt64/8), 1)}
	books, ok := limit.(policy.Refunder)
	if !ok {
		return burst
	}
	_, full := limit.Take(books.Refund(0, now, -burst.Max), now, 0, 0)
	_, owing := limit.Take(books.Refund(0, now, -8*burst.Max), now, 0, 0)
	// Windowed limits count at most two windows at a time.
	if burst.Lasts = owing.ResetAfter > 4*full.ResetAfter && full.ResetAfter > 0; burst.Lasts {
		burst.Unit = float64(full.ResetAfter) / float64(burst.Max)
		burst.Left = full.ResetAfter - time.Duration(burst.Unit)
	}
	return burst
}

// Excess returns how many units a key may have after a time, except the last. have is what it has now.
func (b Burst) Excess(have policy.Decision, after time.Duration) int64 {
	switch {
	case b.Spaced:
		return 0
	case b.Lasts:
		return int64((float64(after) + float64(b.Left) - float64(have.ResetAfter)) / b.Unit)
	}
	return have.Remaining - 1
}
