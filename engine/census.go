package engine

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

const (
	// censusStep is about the number of keys in a step. The janitor, or run, takes a step a second.
	// With a million keys a step takes 5 to 12 ms of its goroutine (on two busy cores), and others
	// run meanwhile. The writer waits for no step.
	censusStep = 1 << 15
	// censusPart is about the number of keys before other goroutines may run.
	censusPart = 1 << 12
	// censusEvery is the interval of steps.
	censusEvery = time.Second
	// censusNow is the most keys, blocked or with refusals that count, that Stats counts by itself,
	// in less than 0.1 ms.
	censusNow = 1024
)

// census counts the keys of a table by use of their limit, a step at a time, again and again. A
// census calls no code of the user's except policies and PolicyFor.
type census[K comparable] struct {
	view  table.View[K]
	clock func() policy.Instant
	// chosen is PolicyFor, or nil without it.
	chosen func(K) policy.Policy
	seam   seam.Seam

	// last is nil before the first count has ended.
	last atomic.Pointer[KeysByUse]

	// The count under way, of the goroutine that calls step.
	counts KeysByUse
	// shard is the next shard to count.
	shard int
	// terms are the terms of most.
	terms *table.Terms
	// most is the number of units that remain to an unused key.
	most int64
}

func (c *census[K]) counted() KeysByUse {
	if last := c.last.Load(); last != nil {
		return *last
	}
	return KeysByUse{}
}

// run takes a step a second, in place of the janitor, until ctx ends. If PolicyFor blocks, only the
// counts grow old.
func (c *census[K]) run(ctx context.Context) error {
	c.begin()
	for {
		if _, event := seam.Receive[struct{}](c.seam, "census: tick", censusEvery, nil, ctx, nil); event == seam.Ended {
			return nil
		}
		c.step()
	}
}

func (c *census[K]) step() {
	defer func() {
		// A policy has panicked, so count anew.
		if recover() != nil {
			c.begin()
		}
	}()
	for seen := 0; seen < censusStep; {
		n := c.part()
		if c.ended() {
			c.counts.At = time.Now()
			last := c.counts
			c.last.Store(&last)
			c.begin()
			return
		}
		seen += n
		runtime.Gosched()
	}
}

func (c *census[K]) begin() { c.counts, c.shard = KeysByUse{}, 0 }

func (c *census[K]) ended() bool { return c.shard == c.view.Shards() }

// part counts some keys, by whole shards, and returns their number.
func (c *census[K]) part() (n int) {
	now := c.clock()
	for ; n < censusPart && !c.ended(); c.shard++ {
		for entry, reading := range c.view.Filed(c.shard) {
			c.classify(entry, reading, now)
			n++
		}
	}
	return n
}

// classify counts an entry by its use.
func (c *census[K]) classify(entry *table.Entry[K], reading table.Reading, now policy.Instant) {
	limit := reading.Terms.Policy
	if c.chosen != nil {
		if own := c.chosen(entry.Key()); own != nil && reading.Terms.ReadsWordsOf(own) {
			// Another family's limit refuses every call, and says nothing of the key's use.
			limit = own
		}
	}
	if c.chosen != nil || reading.Terms != c.terms {
		_, fresh := limit.Take(0, now, 0, 0)
		c.terms, c.most = reading.Terms, fresh.Remaining
	}
	if l, ok := limit.(interface {
		InUse(word uint64, now policy.Instant) (n int64, from, to time.Duration)
	}); ok {
		used, _, _ := l.InUse(reading.State, now)
		c.counts.UnitsInUse += uint64(used)
	}
	_, decision := limit.Take(reading.State, now, 0, 0)
	switch {
	case decision.Remaining == 0 && !allowsOne(limit, reading.State, now):
		c.counts.All++
	case decision.Remaining <= c.most/5:
		c.counts.Most++
	case decision.Remaining <= c.most/2:
		c.counts.Half++
	case decision.Remaining < c.most:
		c.counts.BelowHalf++
	default:
		c.counts.Unused++
	}
}

func allowsOne(limit policy.Policy, state uint64, now policy.Instant) bool {
	_, decision := limit.Take(state, now, 1, 0)
	return decision.Allowed
}
