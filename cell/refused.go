package cell

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ral-limiter/ral/internal/core/frequent"
	"github.com/ral-limiter/ral/policy"
)

const (
	// refusedCounters is the number of keys counted in a window. A key with more than 1 in
	// refusedCounters refusals is always among the counted keys. Two windows of string keys take 75
	// KB.
	refusedCounters = 512
	// refusedWindow is the length of each of a list's two windows.
	refusedWindow = time.Minute
	// errorChance bounds the chance that a figure is not between its bounds, on either side.
	errorChance = 1e-12
)

// refusedKeys counts the refusals of keys.
type refusedKeys[K comparable] struct {
	sample frequent.Sample[K]
	// mu guards the stripes' draws and the totals.
	mu sync.Mutex
	// total is the number of all refusals when the current window began. before is the number when the
	// previous window began.
	total, before uint64
}

// stripeSample is the state of a stripe's draws, guarded by the lock of refusedKeys.
//
// Refusals by a limit are numbered in their stripe. stripe.next is the number of the next sampled
// refusal; the gap is drawn at random, so only that refusal takes the lock. drawn is the last
// number when the gap was drawn. A refusal up to drawn may still arrive with an earlier next;
// drawRefusal then draws for it alone. Refusals for other reasons have no numbers, and are drawn alone.
type stripeSample struct {
	drawn, weight uint64
	// late is the number of a sampled refusal of an earlier window that has not taken the lock yet.
	// lateWeight is its weight.
	late, lateWeight uint64
}

func (c *Cell[K]) startRefused(on bool) {
	if on {
		c.refused.sample.Start(refusedCounters, int64(refusedWindow), int64(c.first))
	}
	for i := range c.tally.stripes {
		stripe := &c.tally.stripes[i]
		if stripe.next.Store(math.MaxUint64); on {
			stripe.draw(1)
		}
	}
}

// draw chooses at random the stripe's next refusal to be sampled. Each refusal is sampled with the
// chance 1 in weight.
func (s *stripe) draw(weight uint64) {
	further := uint64(1)
	if weight > 1 {
		further += uint64(rand.ExpFloat64() / -math.Log1p(-1/float64(weight)))
	}
	s.sample.drawn, s.sample.weight = s.refused.Load(), weight
	s.next.Store(s.sample.drawn + further)
}

// sampleRefusal counts a refusal that may be in the sample.
//
//go:noinline
func (c *Cell[K]) sampleRefusal(key K, stripe *stripe, number uint64) {
	if weight := c.drawRefusal(stripe, number); weight != 0 {
		c.addRefusal(key, weight)
	}
}

// drawRefusal returns the weight of a refusal that may be in the sample, or 0 if it is not.
func (c *Cell[K]) drawRefusal(stripe *stripe, number uint64) (weight uint64) {
	refusedKeys := &c.refused
	refusedKeys.mu.Lock()
	defer refusedKeys.mu.Unlock()
	switch next := stripe.next.Load(); {
	case number == next:
		weight = stripe.sample.weight
		stripe.draw(refusedKeys.sample.Weight())
	case number == stripe.sample.late:
		weight, stripe.sample.late = stripe.sample.lateWeight, 0
	case stripe.sample.drawn < number && number < next:
	default:
		weight = refusedKeys.sample.Draw()
	}
	return weight
}

// addRefusal counts a sampled refusal. It reads no clock.
func (c *Cell[K]) addRefusal(key K, weight uint64) {
	if hash, ok := c.hash(key); ok {
		c.refused.sample.Add(hash, key, weight)
	}
}

func (c *Cell[K]) refusedInAll() uint64 {
	_, n, blocked := c.tally.Sum()
	for i := range c.refusedBy {
		n += c.refusedBy[i].Load()
	}
	return n + blocked
}

// turnWindow begins the next window if it is time. The caller holds the lock.
func (c *Cell[K]) turnWindow(now policy.Instant) {
	refusedKeys := &c.refused
	begun := refusedKeys.sample.Turn(int64(now))
	if begun == 0 {
		return
	}
	for range begun {
		refusedKeys.before, refusedKeys.total = refusedKeys.total, c.refusedInAll()
	}
	for i := range c.tally.stripes {
		stripe := &c.tally.stripes[i]
		next, weight := stripe.next.Load(), stripe.sample.weight
		if stripe.draw(1); next <= stripe.sample.drawn {
			stripe.sample.late, stripe.sample.lateWeight = next, weight
		}
	}
}

// Refused is a key with the estimated Count of its refusals, between Least and Most.
type Refused[K comparable] struct {
	Key                K
	Count, Least, Most uint64
	// Last is the instant of the last sampled refusal.
	Last policy.Instant
}

// RefusedList lists the most refused keys of a period.
type RefusedList[K comparable] struct {
	Keys     []Refused[K]
	From, To policy.Instant
	// Total is the number of refusals of all keys.
	Total uint64
	// Others is the most refusals of a key outside Keys.
	Others uint64
}

// RefusedMost returns the n most refused keys of this window and the last.
func (c *Cell[K]) RefusedMost(n int) (list RefusedList[K]) {
	now := c.now()
	refusedKeys := &c.refused
	refusedKeys.mu.Lock()
	c.turnWindow(now)
	counted, most, weight := refusedKeys.sample.All()
	from, to := refusedKeys.sample.Span()
	list = RefusedList[K]{From: policy.Instant(from), To: policy.Instant(to), Total: c.refusedInAll() - refusedKeys.before}
	refusedKeys.mu.Unlock()
	if weight == 0 {
		// The list is off.
		list.From, list.Total, weight = list.To, 0, 1
	}
	// The order is by Least: it grows with the refusals that were counted for certain.
	slices.SortFunc(counted, func(a, b frequent.Counter[K]) int {
		return cmp.Or(cmp.Compare(b.Count-b.Over, a.Count-a.Over), cmp.Compare(b.Count, a.Count), cmp.Compare(b.Last, a.Last))
	})
	n = min(max(n, 0), len(counted))
	list.Keys = make([]Refused[K], n)
	for i, counter := range counted[:n] {
		least := lowerBound(counter.Count-counter.Over, weight)
		most := max(min(upperBound(counter.Count, weight), list.Total), least)
		count := min(max(counter.Count-counter.Over, least), most)
		list.Keys[i] = Refused[K]{counter.Key, count, least, most, policy.Instant(counter.Last)}
	}
	for _, counter := range counted[n:] {
		most = max(most, counter.Count)
	}
	list.Others = min(upperBound(most, weight), list.Total)
	return list
}

// lowerBound and upperBound bound the number of refusals behind a weighted sample count. Each refusal was
// sampled with probability 1/weight or more. They are Chernoff's bounds: for a mean m, a count of x
// or further off has at most the probability exp(x-m) (m/x)^x. They hold if the probability
// changes, unless it depends on later refusals.
func lowerBound(count, weight uint64) uint64 {
	if weight == 1 || count == 0 {
		return count
	}
	x := float64(count) / float64(weight)
	return max(uint64(math.Ceil(chernoff(x, 0, x)*float64(weight))), uint64(math.Ceil(x)))
}

func upperBound(count, weight uint64) uint64 {
	if weight == 1 {
		return count
	}
	value, far := float64(count)/float64(weight), -math.Log(errorChance)
	return uint64(chernoff(value, value+2*far+2*math.Sqrt(2*value*far), value) * float64(weight))
}

// chernoff returns the mean between out and in at which a count of x has about the chance
// errorChance. Under the mean out, a count of x is less likely than that, and under in more likely.
func chernoff(x, out, in float64) float64 {
	for range 64 {
		mean := (out + in) / 2
		exponent := mean - x
		if x > 0 {
			exponent += x * math.Log(x/mean)
		}
		if exponent > -math.Log(errorChance) {
			out = mean
		} else {
			in = mean
		}
	}
	return out
}
