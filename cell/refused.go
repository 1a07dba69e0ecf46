package cell

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/core/frequent"
	"github.com/ral-limiter/ral/policy"
)

// The most refused keys are found from a sample of the refusals. Each refusal is in the sample with
// the same chance, whatever its key and whatever came before, and counts with the inverse of its
// chance. So an adversary cannot keep out of it, and the error is known. All first refusals of a
// window are in the sample, so a list of few is exact; then the chance falls.

const (
	// refusedCounters is the number of keys counted in a window. A key with more than 1 in so many
	// refusals is always among them. Two windows of string keys take 75 KB.
	refusedCounters = 512
	// refusedWindow is the length of each of a list's two windows.
	refusedWindow = time.Minute
	// Every samplesPerHalving samples halve the chance, down to 1 in maxWeight. A sample takes
	// about 200 ns, which is 0.1 ns a refusal.
	samplesPerHalving = 1024
	maxWeight         = 2048
	// errorChance bounds the chance that a figure is not between its bounds, on either side.
	errorChance = 1e-12
)

type refusedKeys[K comparable] struct {
	on bool
	// weight is the present weight, 0 while no refusals are sampled.
	weight atomic.Uint64

	mu sync.Mutex
	// called is when Tick or RefusedMost was last called.
	called policy.Instant
	// now and before are the present and last window.
	now, before refusedWindowOf[K]
}

type refusedWindowOf[K comparable] struct {
	from policy.Instant
	// refused is the tally's number of refusals when the window began.
	refused uint64
	// keys is nil if there was no refusal yet.
	keys    *frequent.Keys[K]
	samples int
	// weight is the largest weight of a sample.
	weight uint64
}

// stripeSample is the state of a stripe's draws, guarded by the lock of refusedKeys.
//
// Refusals by a limit are numbered in their stripe. stripe.next is the number of the next sampled
// refusal; the gap is drawn at random, so only that refusal takes the lock. drawn is the last
// number when the gap was drawn. A refusal up to drawn may still arrive with an earlier next;
// drawRefusal then draws for it alone. Refusals for other reasons have no numbers: see drawOne.
type stripeSample struct {
	drawn, weight uint64
	// late is a next of an earlier window whose refusal has not taken the lock yet.
	late, lateWeight uint64
}

func (c *Cell[K]) startRefused(on bool) {
	r := &c.refused
	r.on, r.called = on, c.first
	r.now = refusedWindowOf[K]{from: c.first, weight: 1}
	r.before = r.now
	if on {
		r.weight.Store(1)
	}
	for i := range c.tally.stripes {
		s := &c.tally.stripes[i]
		if s.next.Store(math.MaxUint64); on {
			s.draw(1)
		}
	}
}

// draw draws the stripe's next sampled refusal, each with the chance 1 in weight.
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
func (c *Cell[K]) sampleRefusal(key K, s *stripe, number uint64) {
	if weight := c.drawRefusal(s, number); weight != 0 {
		c.addRefusal(key, weight)
	}
}

// drawRefusal returns the weight of a refusal that may be in the sample, or 0 if it is not.
func (c *Cell[K]) drawRefusal(s *stripe, number uint64) (weight uint64) {
	r := &c.refused
	r.mu.Lock()
	defer r.mu.Unlock()
	switch next := s.next.Load(); {
	case number == next:
		weight = s.sample.weight
		s.draw(r.now.weight)
	case number == s.sample.late:
		weight, s.sample.late = s.sample.lateWeight, 0
	case s.sample.drawn < number && number < next:
	case rand.Uint64N(r.now.weight) == 0:
		weight = r.now.weight
	}
	return weight
}

// drawOne is drawRefusal for a refusal without a number in a stripe.
func (c *Cell[K]) drawOne() (weight uint64) {
	weight = c.refused.weight.Load()
	if weight > 1 && rand.Uint64N(weight) != 0 {
		return 0
	}
	return weight
}

// addRefusal counts a sampled refusal. It reads no clock.
func (c *Cell[K]) addRefusal(key K, weight uint64) {
	hash, ok := c.hash(key)
	if !ok {
		return
	}
	r := &c.refused
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &r.now
	if weight > w.weight {
		// The sample was drawn before this window began.
		w = &r.before
	}
	if w.keys == nil {
		w.keys = frequent.New[K](refusedCounters)
	}
	w.keys.Add(hash, key, weight, int64(r.called))
	if w.samples++; w == &r.now && w.samples%samplesPerHalving == 0 && w.weight < maxWeight {
		w.weight *= 2
		r.weight.Store(w.weight)
	}
}

func (c *Cell[K]) refusedInAll() uint64 {
	_, n, blocked := c.tally.Sum()
	for i := range c.refusedBy {
		n += c.refusedBy[i].Load()
	}
	return n + blocked
}

// turnWindow begins the next window if it is time. The lock is held.
func (c *Cell[K]) turnWindow(now policy.Instant) {
	r := &c.refused
	r.called = max(r.called, now)
	if !r.on || now-r.now.from < policy.Instant(refusedWindow) {
		return
	}
	r.before, r.now = r.now, r.before
	if r.now.keys != nil {
		r.now.keys.Clear()
	}
	r.now = refusedWindowOf[K]{from: now, keys: r.now.keys, weight: 1}
	r.weight.Store(1)
	r.now.refused = c.refusedInAll()
	for i := range c.tally.stripes {
		s := &c.tally.stripes[i]
		next, weight := s.next.Load(), s.sample.weight
		if s.draw(1); next <= s.sample.drawn {
			s.sample.late, s.sample.lateWeight = next, weight
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
	counted, most, weight := c.countedRefusals(&list)
	// Least is higher the more refusals of a key were counted for certain.
	slices.SortFunc(counted, func(a, b frequent.Counter[K]) int {
		return cmp.Or(cmp.Compare(b.Count-b.Over, a.Count-a.Over), cmp.Compare(b.Count, a.Count), cmp.Compare(b.Last, a.Last))
	})
	n = min(max(n, 0), len(counted))
	list.Keys = make([]Refused[K], n)
	for i, k := range counted[:n] {
		least := lowerBound(k.Count-k.Over, weight)
		most := max(min(upperBound(k.Count, weight), list.Total), least)
		count := min(max(k.Count-k.Over, least), most)
		list.Keys[i] = Refused[K]{k.Key, count, least, most, policy.Instant(k.Last)}
	}
	for _, k := range counted[n:] {
		most = max(most, k.Count)
	}
	list.Others = min(upperBound(most, weight), list.Total)
	return list
}

// countedRefusals returns the keys with counters, summed over both windows, the largest count of a
// key without a counter, and the largest weight. It fills in the rest of the list.
func (c *Cell[K]) countedRefusals(list *RefusedList[K]) (all []frequent.Counter[K], most, weight uint64) {
	now := c.now()
	r := &c.refused
	r.mu.Lock()
	defer r.mu.Unlock()
	c.turnWindow(now)
	list.From, list.To = r.before.from, r.called
	if !r.on {
		list.From = r.called
		return nil, 0, 1
	}
	list.Total = c.refusedInAll() - r.before.refused
	windows := [2]*frequent.Keys[K]{r.now.keys, r.before.keys}
	for i, w := range windows {
		if w == nil {
			continue
		}
		most += w.Floor()
		for _, k := range w.All() {
			other := frequent.Counter[K]{}
			if o := windows[1-i]; o != nil {
				var ok bool
				if other, ok = o.Find(&k); ok && i == 1 {
					// The key is in the list already.
					continue
				}
			}
			k.Count, k.Over, k.Last = k.Count+other.Count, k.Over+other.Over, max(k.Last, other.Last)
			all = append(all, k)
		}
	}
	return all, most, max(r.now.weight, r.before.weight)
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
	x, far := float64(count)/float64(weight), -math.Log(errorChance)
	return uint64(chernoff(x, x+2*far+2*math.Sqrt(2*x*far), x) * float64(weight))
}

// chernoff returns the mean, between the unlikely out and the likely in, that is just unlikely
// enough for x.
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
