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

// Which keys are refused most is found from a sample of the refusals. Each refusal is in the
// sample with the same chance, whatever its key and whatever came before, and counts for as
// many as that chance stands for. So an adversary cannot keep out of it, and the error of the
// result can be told.
//
// The first refusals of a window are all in the sample. The more there are, the lower the
// chance, so that a list of few refusals is exact and many cost little.

const (
	// refusedCounters is the number of keys that are counted in a window. A key with more
	// than one in so many refusals is always among them. Two windows of string keys take 75
	// KB.
	refusedCounters = 512
	// refusedWindow is the length of a window. A list covers this one and the one before.
	refusedWindow = time.Minute
	// samplesPerHalving is after how many samples the chance of a refusal is halved, down
	// to 1 in mostWeight. A sample takes about 200 ns, so that it costs a refusal 0.1 ns.
	samplesPerHalving = 1024
	mostWeight        = 2048
	// doubt bounds the chance that a figure is not between its bounds, on either side.
	doubt = 1e-12
)

// refusedKeys counts the refusals of keys.
type refusedKeys[K comparable] struct {
	on     bool
	weight atomic.Uint64 // that of now, 0 while no refusals are sampled

	mu sync.Mutex
	at policy.Instant // when Tick or RefusedMost was last called
	// now is the present window, and before the one that it came after. Their counters are
	// nil until the first refusal.
	now, before refusedWindowOf[K]
}

// refusedWindowOf counts the refusals from one instant to the next window's.
type refusedWindowOf[K comparable] struct {
	from    policy.Instant
	refused uint64            // by the tally, when it began
	keys    *frequent.Keys[K] // nil if there was no refusal yet
	samples int
	weight  uint64 // the largest of a sample: for how many refusals it stands
}

// stripeSample is what has been drawn of the refusals in a stripe. The lock of refusedKeys
// guards it.
//
// The refusals by limits are numbered in their stripe. Of those after drawn, none before stripe.next is in
// the sample, and that one is, with a weight. It is drawn at random how far off that is, and
// only there a refusal meets the lock. Those up to drawn were numbered when it was drawn. The
// ones among them that may be in the sample, as they had read an earlier next, are drawn one by
// one as they come to the lock. Those for other reasons have no numbers: see drawOne.
type stripeSample struct {
	drawn, weight uint64
	// late is an earlier next, of an earlier window, that has not come to the lock yet.
	late, lateWeight uint64
}

// startRefused begins to count the refusals of keys, or sees that none is.
func (c *Cell[K]) startRefused(on bool) {
	r := &c.refused
	r.on, r.at = on, c.first
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

// draw draws which refusal in the stripe is the next one in the sample, if each is with the
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
func (c *Cell[K]) sampleRefusal(key K, s *stripe, number uint64) {
	if weight := c.drawRefusal(s, number); weight != 0 {
		c.addRefusal(key, weight)
	}
}

// drawRefusal returns the weight of a refusal that may be in the sample: 0 if it is not.
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

// drawOne draws whether a refusal that has no number in a stripe is in the sample, and returns
// its weight: 0 if it is not.
func (c *Cell[K]) drawOne() (weight uint64) {
	weight = c.refused.weight.Load()
	if weight > 1 && rand.Uint64N(weight) != 0 {
		return 0
	}
	return weight
}

// addRefusal counts a refusal that is in the sample. It reads no clock.
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
		w = &r.before // it was drawn before this window began
	}
	if w.keys == nil {
		w.keys = frequent.New[K](refusedCounters)
	}
	w.keys.Add(hash, key, weight, int64(r.at))
	if w.samples++; w == &r.now && w.samples%samplesPerHalving == 0 && w.weight < mostWeight {
		w.weight *= 2
		r.weight.Store(w.weight)
	}
}

// refusedInAll returns the number of refusals, for whatever reason.
func (c *Cell[K]) refusedInAll() uint64 {
	_, n, blocked := c.tally.sum()
	for i := range c.refusedBy {
		n += c.refusedBy[i].Load()
	}
	return n + blocked
}

// turnWindow begins the next window if it is time. The lock is held.
func (c *Cell[K]) turnWindow(now policy.Instant) {
	r := &c.refused
	r.at = max(r.at, now)
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

// Refused is a key with the number of its refusals: Count by estimate, and not below Least
// nor above Most.
type Refused[K comparable] struct {
	Key                K
	Count, Least, Most uint64
	Last               policy.Instant // of the last one that was in the sample
}

// RefusedList is the list of the keys that were refused most in a time.
type RefusedList[K comparable] struct {
	Keys     []Refused[K]
	From, To policy.Instant
	Total    uint64 // refusals of all keys
	Others   uint64 // the most that a key which is not in Keys can have
}

// RefusedMost returns the n keys that were refused most in this window and the one before.
func (c *Cell[K]) RefusedMost(n int) (list RefusedList[K]) {
	counted, most, weight := c.countedRefusals(&list)
	// The more of a key were counted for certain, the higher is Least.
	slices.SortFunc(counted, func(a, b frequent.Counter[K]) int {
		return cmp.Or(cmp.Compare(b.Count-b.Over, a.Count-a.Over), cmp.Compare(b.Count, a.Count), cmp.Compare(b.Last, a.Last))
	})
	n = min(max(n, 0), len(counted))
	list.Keys = make([]Refused[K], n)
	for i, k := range counted[:n] {
		least := leastOf(k.Count-k.Over, weight)
		most := max(min(mostOf(k.Count, weight), list.Total), least)
		count := min(max(k.Count-k.Over, least), most)
		list.Keys[i] = Refused[K]{k.Key, count, least, most, policy.Instant(k.Last)}
	}
	for _, k := range counted[n:] {
		most = max(most, k.Count)
	}
	list.Others = min(mostOf(most, weight), list.Total)
	return list
}

// countedRefusals returns the keys that have counters, with what they counted in both
// windows, the most that a key without one can have counted, and the largest weight of a
// refusal. It fills in the rest of the list.
func (c *Cell[K]) countedRefusals(list *RefusedList[K]) (all []frequent.Counter[K], most, weight uint64) {
	now := c.now()
	r := &c.refused
	r.mu.Lock()
	defer r.mu.Unlock()
	c.turnWindow(now)
	list.From, list.To = r.before.from, r.at
	if !r.on {
		list.From = r.at
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
					continue // it is there already
				}
			}
			k.Count, k.Over, k.Last = k.Count+other.Count, k.Over+other.Over, max(k.Last, other.Last)
			all = append(all, k)
		}
	}
	return all, most, max(r.now.weight, r.before.weight)
}

// leastOf and mostOf return the least and the most refusals of which a sample may count for
// that many, if each was in it with a chance of at least 1 in weight. They are Chernoff's
// bounds: of a mean m, a count of x or one further off has at most the chance exp(x-m) (m/x)^x.
// A chance that changes on the way, but not by the refusals to come, makes no difference.
func leastOf(count, weight uint64) uint64 {
	if weight == 1 || count == 0 {
		return count
	}
	x := float64(count) / float64(weight)
	// At least as many refusals as samples.
	return max(uint64(math.Ceil(chernoff(x, 0, x)*float64(weight))), uint64(math.Ceil(x)))
}

func mostOf(count, weight uint64) uint64 {
	if weight == 1 {
		return count
	}
	x, far := float64(count)/float64(weight), -math.Log(doubt)
	return uint64(chernoff(x, x+2*far+2*math.Sqrt(2*x*far), x) * float64(weight))
}

// chernoff returns the mean between two that is just unlikely enough for x: out is unlikely,
// in is likely.
func chernoff(x, out, in float64) float64 {
	for range 64 {
		mean := (out + in) / 2
		exponent := mean - x
		if x > 0 {
			exponent += x * math.Log(x/mean)
		}
		if exponent > -math.Log(doubt) {
			out = mean
		} else {
			in = mean
		}
	}
	return out
}
