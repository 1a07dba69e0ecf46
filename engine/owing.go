package engine

import (
	"fmt"
	"math"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// OwingPage is a part of the list of the keys that owe something: see Engine.MostUsed.
type OwingPage[K comparable] struct {
	// Keys are sorted, the key that owes most first.
	Keys []OwingKey[K]
	// Total is the number of keys that owe something, on all pages together.
	Total int
	// Next begins the next page; the zero OwingCursor if there is none.
	Next OwingCursor
	// Age is the age of the list's instant when this page was complete.
	Age time.Duration
}

// OwingKey is a key with used units that still count.
type OwingKey[K comparable] struct {
	Key   K
	Limit policy.Policy
	// Share is the used share of the key's limit, 0 to 1: how far Remaining is below its most.
	Share float64
	// Decision is a look at the instant of the list, without blocks.
	policy.Decision
	// Next is the time from the instant of the list until one more unit can be taken, if no call
	// takes meanwhile; policy.Never if not at all.
	Next time.Duration
	// Blocked is the time until the key's block ends, from now on.
	Blocked time.Duration
	// After begins a page behind this key, to show one page as several.
	After OwingCursor
}

// OwingCursor is a place in the list of Engine.MostUsed; zero for its beginning. Its text serves
// the engine that made the cursor, while that engine lives.
type OwingCursor struct {
	// instant is the instant of the list. 0 begins a new list.
	instant policy.Instant
	// rank is the rank of the last key before the place.
	rank cell.Rank
}

// MostUsed returns the n keys that owe most after a cursor. The key with the largest used share of
// its own limit is first, then the key that will owe for longest. Beyond that the order is
// arbitrary but the same on each page. Keys that owe nothing are not in the list. With n of 0 or
// less MostUsed only counts. A closed engine has no keys.
//
// The figures are exact, from the words of the keys, at the instant of the first page. So while no
// calls come, pages continue exactly, however much time passes between them. A key that is used,
// given back to or evicted meanwhile may be missing or twice.
//
// MostUsed goes through all keys, some tens of milliseconds for a million, and needs memory for one
// page. MostUsed blocks neither calls nor the writer. PolicyFor is called for each used key, on
// this goroutine; a limit of another family is taken for the engine's own.
func (e *Engine[K]) MostUsed(n int, after OwingCursor) (page OwingPage[K]) {
	var place *cell.Rank
	if after.instant != 0 {
		place = &after.rank
	} else {
		after.instant = e.control.Now()
	}
	most, total := e.cell.Owing(n, after.instant, place)
	page.Total = total
	page.Keys = make([]OwingKey[K], len(most))
	for i, owing := range most {
		page.Keys[i] = OwingKey[K]{owing.Key, owing.Limit, owing.Share, owing.Decision, nextUnit(&owing, after.instant), e.Blocked(owing.Key), OwingCursor{after.instant, owing.Rank}}
	}
	if n > 0 && len(most) == n {
		page.Next = page.Keys[n-1].After
	}
	page.Age = time.Duration(max(e.control.Now()-after.instant, 0))
	return page
}

func nextUnit[K comparable](owing *cell.Owing[K], instant policy.Instant) time.Duration {
	remaining := func(after int64) int64 {
		_, decision := owing.Limit.Take(owing.State, instant+policy.Instant(after), 0, 0)
		return decision.Remaining
	}
	after, ok := shape.Earliest(remaining, owing.Decision.Remaining+1, 0, min(int64(owing.Decision.ResetAfter), math.MaxInt64-int64(instant)))
	if !ok {
		return policy.Never
	}
	return time.Duration(after)
}

// IsZero reports whether the cursor begins a list, or stands for no next page.
func (c OwingCursor) IsZero() bool { return c == OwingCursor{} }

// MarshalText implements encoding.TextMarshaler: printable ASCII without spaces, empty for the zero
// OwingCursor.
func (c OwingCursor) MarshalText() ([]byte, error) {
	if c.IsZero() {
		return nil, nil
	}
	return fmt.Appendf(nil, "%x.%x.%x.%x", int64(c.instant), math.Float64bits(c.rank.Share), int64(c.rank.Fresh), c.rank.Tie), nil
}

// UnmarshalText implements encoding.TextUnmarshaler. The error is a *policy.FieldError.
func (c *OwingCursor) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*c = OwingCursor{}
		return nil
	}
	var instant, fresh int64
	var share, tie uint64
	n, err := fmt.Sscanf(string(text), "%x.%x.%x.%x", &instant, &share, &fresh, &tie)
	made := OwingCursor{policy.Instant(instant), cell.Rank{Share: math.Float64frombits(share), Fresh: policy.Instant(fresh), Tie: tie}}
	// NaN is not known.
	known := made.rank.Share >= 0 && made.rank.Share <= 1
	if again, _ := made.MarshalText(); err != nil || n != 4 || instant <= 0 || !known || string(again) != string(text) {
		return &policy.FieldError{Of: "engine.OwingCursor", Field: "text", Value: fmt.Sprintf("%.80q", text), Want: "the text of OwingPage.Next"}
	}
	*c = made
	return nil
}
