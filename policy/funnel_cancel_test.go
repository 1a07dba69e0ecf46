package policy_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// taking is a take of a history. Instants are sixteenths of a nanosecond here.
type taking struct {
	units int64
	start int64 // when it may start, exactly
}

// history records the takes of a key of a small funnel: before, of, and since the cancelled
// take.
type history struct {
	p        policy.Policy
	interval int64 // sixteenths of a nanosecond
	depth    int64

	takes     []taking
	cancelled int // which of them
	taken     uint64
	word      uint64
}

// take makes every call wait for its turn: less patience has the same answer or no trace.
func (h *history) take(now policy.Instant, n int64) *history {
	next, d := h.p.Take(h.word, now, n, time.Hour)
	if !d.Allowed {
		panic("an hour is not enough")
	}
	after := *h
	after.word = next
	start := max(int64(now)*16, int64(next)-h.depth)
	after.takes = slices.Concat(h.takes, []taking{{n, start}})
	return &after
}

// without replays the history without the cancelled take, each other call starting when it was
// told. It returns the instant at which the bucket drains.
func (h *history) without() int64 {
	var drained int64
	for i, t := range h.takes {
		if i != h.cancelled {
			drained = max(drained, t.start) + t.units*h.interval
		}
	}
	return drained
}

// overfull searches for a window with more than the limit. After the cancellation left word, a
// call takes everything at from and at every nanosecond after that. It returns the window's
// length and units.
func (h *history) overfull(word uint64, from policy.Instant) (window, units int64, found bool) {
	kept := make([]taking, 0, 64)
	for i, t := range h.takes {
		if i != h.cancelled {
			kept = append(kept, t)
		}
	}
	last := h.takes[len(h.takes)-1].start/16 + 2
	for now := from; int64(now) <= max(last, int64(from)); now++ {
		if _, d := h.p.Take(word, now, 0, 0); d.Remaining > 0 {
			word, _ = h.p.Take(word, now, d.Remaining, 0)
			kept = append(kept, taking{d.Remaining, int64(now) * 16})
		}
	}
	for _, first := range kept {
		for _, last := range kept {
			if last.start < first.start {
				continue
			}
			var sum int64
			for _, t := range kept {
				if t.start >= first.start && t.start <= last.start {
					sum += t.units
				}
			}
			if window := last.start - first.start; sum*h.interval > h.depth+window {
				return window, sum, true
			}
		}
	}
	return 0, 0, false
}

// TestCancelGivesBackAllThatItMay cancels a take of each short history of small funnels at
// every instant. It must be safe: the key has no more to give than without the take, and no
// window gets too much. It must be tight: the two words may be of a history with no more to give
// back.
func TestCancelGivesBackAllThatItMay(t *testing.T) {
	for _, l := range []struct {
		capacity, count int64
		per             time.Duration
		since           int // how many takes come since
		exact           bool
	}{
		{1, 1, 1, 3, true},
		{2, 1, 1, 3, true},
		{3, 1, 1, 2, true},
		{4, 1, 1, 2, true},
		{1, 1, 2, 3, true}, // half a unit can drain
		{2, 1, 2, 3, true},
		{3, 1, 2, 2, true},
		{2, 1, 3, 2, true},
		// Turns between two nanoseconds. No call can come then, so some histories that would make
		// the bound tight are missing.
		{2, 2, 3, 2, false},
		{3, 16, 21, 2, false},
	} {
		p := policy.Must(policy.Funnel(l.capacity, l.count, l.per))
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			interval := sixteenths(unitTime(l.count, l.per)).Int64()
			if raceFactor > 1 { // too few takes come since to reach every word in every way
				l.since, l.exact = 1, false
			}
			c := cancellations{
				t: t, p: p, capacity: l.capacity, exact: l.exact,
				worst: map[cancellation]int64{},
			}
			h := &history{p: p, interval: interval, depth: l.capacity * interval}
			c.before(h, 1, 2, l.since)
			c.tight()
		})
	}
}

// cancellation holds the arguments of Cancel.
type cancellation struct {
	word, taken uint64
	now         policy.Instant
	n           int64
}

type cancellations struct {
	t        *testing.T
	p        policy.Policy
	capacity int64
	exact    bool
	worst    map[cancellation]int64 // the latest instant at which the bucket may drain
}

const (
	cancelledAt = 3 // when the take comes that will be cancelled
	horizon     = 4 // for how long takes come since
)

func (c *cancellations) before(h *history, from policy.Instant, more, since int) {
	for n := int64(1); n <= c.capacity; n++ {
		this := h.take(cancelledAt, n)
		this.cancelled, this.taken = len(h.takes), this.word
		c.since(this, cancelledAt, since)
	}
	if more == 0 {
		return
	}
	for now := from; now <= cancelledAt; now++ {
		for n := int64(1); n <= c.capacity; n++ {
			c.before(h.take(now, n), now, more-1, since)
		}
	}
}

// since cancels, or adds takes that come first.
func (c *cancellations) since(h *history, from policy.Instant, more int) {
	without, n := h.without(), h.takes[h.cancelled].units
	for now := from; now <= cancelledAt+horizon; now++ {
		key := cancellation{h.word, h.taken, now, n}
		c.worst[key] = max(c.worst[key], without)

		after := c.p.(policy.Refunder).Cancel(h.word, h.taken, 0, now, n, 0)
		if uint64(max(without, int64(now)*16)) > max(after, uint64(now)*16) {
			c.t.Fatalf("%+v: Cancel(%d, %d, %d, %d) = %d, but the bucket drains at %d",
				h.takes, h.word, h.taken, now, n, after, without)
		}
		for come := now; int64(come) <= max(int64(now), h.takes[len(h.takes)-1].start/16)+1; come++ {
			if window, units, found := h.overfull(after, come); found {
				c.t.Fatalf("%+v: Cancel(%d, %d, %d, %d) = %d, but from %d on %d units start in %d/16 ns",
					h.takes, h.word, h.taken, now, n, after, come, units, window)
			}
		}
	}
	if more == 0 {
		return
	}
	for now := from; now <= cancelledAt+horizon; now++ {
		for n := int64(1); n <= c.capacity; n++ {
			c.since(h.take(now, n), now, more-1)
		}
	}
}

// tight checks whether more could have been given back.
func (c *cancellations) tight() {
	given := 0
	for k, worst := range c.worst {
		t := int64(k.now) * 16
		after := int64(c.p.(policy.Refunder).Cancel(k.word, k.taken, 0, k.now, k.n, 0))
		if c.exact && max(after, t) != max(worst, t) {
			c.t.Fatalf("Cancel(%d, %d, %d, %d) = %d, but the bucket drains at %d at the latest", k.word, k.taken, k.now, k.n, after, worst)
		}
		if after < int64(k.word) {
			given++
		}
	}
	assert.Greater(c.t, given, len(c.worst)/20, "hardly anything was given back at all")
	require.Greater(c.t, len(c.worst), 30)
}
