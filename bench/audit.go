package bench

import (
	"math"
	"time"
)

// Audit compares the calls that a limiter admitted in a workload with its promise. It covers
// opening the keys, warming up and every pass.
type Audit struct {
	Promise Promise `json:"promise"`
	// Calls and Admitted are counted by the callers.
	Calls    int64 `json:"calls"`
	Admitted int64 `json:"admitted"`
	// Allowed is the most that the promise allowed: the sum over the keys of the lesser of its
	// calls and the bound for a key.
	Allowed int64 `json:"allowed"`
	// Over is the number admitted beyond Allowed.
	Over int64 `json:"over"`
	// BucketAllowed is Allowed if the promise were a bucket of the same limit.
	BucketAllowed int64 `json:"bucket_allowed"`
	// Possible is the number that an ideal limiter of the same promise admits if the calls come
	// evenly over each pass, at most Allowed. Clearly fewer Admitted means wrong refusals.
	Possible int64 `json:"possible"`
	// Binds reports whether the promise allowed less than was asked. If not, the audit can find no
	// excess.
	Binds bool `json:"binds"`
	// Asked is the time during which the limiter was asked.
	Asked time.Duration `json:"asked_ns"`
	// Passes counts the passes, opening and warming up included, OverPasses those in which the
	// excess grew if there is one in the end.
	Passes     int `json:"passes,omitempty"`
	OverPasses int `json:"over_passes,omitempty"`
	// Limiters is the number of limiters summed: in some workloads each pass makes a new limiter.
	Limiters int `json:"limiters"`
	// Each holds the calls that each of several limiters of one limit admitted, or nothing.
	Each []int64 `json:"each,omitempty"`
	// Own holds the limiters' own counts, or nil.
	Own *Counts `json:"own,omitempty"`
}

// Clean reports whether no more was admitted than the promise allowed.
func (a Audit) Clean() bool { return a.Over == 0 }

// OverBucket returns the excess over a bucket, or 0. It is no fault under another promise.
func (a Audit) OverBucket() int64 { return max(a.Admitted-a.BucketAllowed, 0) }

// OfPossible returns Admitted as a share of Possible, 1 if nothing was possible.
func (a Audit) OfPossible() float64 {
	if a.Possible == 0 {
		return 1
	}
	return float64(a.Admitted) / float64(a.Possible)
}

// auditor sums up the calls of a limiter, window by window, with the calls that its promise allowed
// and that were possible. Instants within a window are not recorded: calls are taken to come
// evenly, as they do from callers that ask all the time.
type auditor struct {
	promise Promise
	limit   Limit
	windows []Window
	// asked counts the calls of each key, over all windows.
	asked []int64
	// first is, for each key, the index of the first window that asked it.
	first []int32
	ideal []idealLimiter

	// admitted counts the calls admitted by all windows.
	admitted int64
	// maxOver is the greatest excess so far, and overPasses counts the windows in which it grew.
	maxOver    int64
	overPasses int
}

// idealLimiter counts the calls that a faultless limiter would admit, for each kind of promise.
type idealLimiter interface {
	// take asks n times for a key in window w. Windows come in order; first is the key's first.
	take(key int, n int64, w, first Window)
	total() float64
}

func newAuditor(promise Promise, limit Limit, keys int) *auditor {
	a := &auditor{promise: promise, limit: limit, asked: make([]int64, keys), first: make([]int32, keys)}
	if promise.windowed() {
		// The instant of the first call in its window is unknown: try both ends, count the lesser.
		a.ideal = []idealLimiter{newIdealWindows(limit, keys, false), newIdealWindows(limit, keys, true)}
	} else {
		a.ideal = []idealLimiter{newIdealBuckets(limit, keys)}
	}
	return a
}

func (a *auditor) add(window Window, asked []int64) {
	a.windows = append(a.windows, window)
	for key, n := range asked {
		if n == 0 {
			continue
		}
		if a.asked[key] == 0 {
			a.first[key] = int32(len(a.windows) - 1)
		}
		a.asked[key] += n
		for _, ideal := range a.ideal {
			ideal.take(key, n, window, a.windows[a.first[key]])
		}
	}
}

// addAll adds windows of callers that loop over their streams.
func (a *auditor) addAll(windows []askedWindow) {
	times := make([]int64, len(a.asked))
	for _, window := range windows {
		clear(times)
		a.admitted += window.count(times)
		a.add(window.Window, times)
		if over := a.admitted - a.allowed(); over > a.maxOver {
			a.maxOver = over
			a.overPasses++
		}
	}
}

func (a *auditor) allowed() int64 { return a.allowedBy(a.promise) }

func (a *auditor) allowedBy(promise Promise) (n int64) {
	// most has the most of a key by its first window. It is at least 1 once known.
	most := make([]int64, len(a.windows))
	for key, asked := range a.asked {
		if asked == 0 {
			continue
		}
		first := a.first[key]
		if most[first] == 0 {
			most[first] = promise.most(a.limit, a.windows[first:])
		}
		n += min(asked, most[first])
	}
	return n
}

func (a *auditor) possible() int64 {
	least := math.Inf(1)
	for _, ideal := range a.ideal {
		least = min(least, ideal.total())
	}
	// The sums are floats, the bound is an integer.
	const rounding = 1e-3
	return min(int64(least+rounding), a.allowed())
}

// add adds the audit of one limiter, with its own counts unless own is nil. Refusals of another
// limiter do not offset an excess.
func (a *Audit) add(one *auditor, own func() Counts) {
	calls, allowed := int64(0), one.allowed()
	for _, n := range one.asked {
		calls += n
	}
	a.Promise = one.promise
	a.Calls += calls
	a.Admitted += one.admitted
	a.Allowed += allowed
	a.BucketAllowed += one.allowedBy(LeakyBucket)
	a.Possible += one.possible()
	if over := one.admitted - allowed; over > 0 {
		a.Over += over
		a.OverPasses += one.overPasses
	}
	a.Binds = a.Binds || allowed < calls
	a.Passes += len(one.windows)
	a.Limiters++
	for _, w := range one.windows {
		a.Asked += w.End - w.Start
	}
	if own != nil {
		if a.Own == nil {
			a.Own = new(Counts)
		}
		a.Own.add(own())
	}
}

// idealBuckets is an ideal bucket for each key. A window admits up to the units at its beginning
// and those that drain meanwhile.
type idealBuckets struct {
	capacity, perNs float64
	// left is, for each key, the units left at the end of its last window.
	left []float64
	// last is that end.
	last []time.Duration
	sum  float64
}

func newIdealBuckets(limit Limit, keys int) *idealBuckets {
	return &idealBuckets{
		capacity: float64(limit.Capacity), perNs: float64(limit.Count) / float64(limit.Per),
		left: make([]float64, keys), last: make([]time.Duration, keys),
	}
}

func (b *idealBuckets) take(key int, n int64, window, first Window) {
	before := b.capacity
	if window != first {
		before = min(b.left[key]+b.perNs*float64(window.Start-b.last[key]), b.capacity)
	}
	most := before + b.perNs*float64(window.End-window.Start)
	// A part of a call cannot pass; it is kept for the next window.
	taken := min(float64(n), math.Floor(most))
	b.left[key], b.last[key] = min(most-taken, b.capacity), window.End
	b.sum += taken
}

func (b *idealBuckets) total() float64 { return b.sum }

// idealWindows counts calls in consecutive windows of the limit's length. A sliding window admits
// as much of calls that come evenly.
type idealWindows struct {
	limit Limit
	// late is set if the first call came at the end of its window, and not at the beginning.
	late  bool
	index []int64
	// taken is, for each key, the calls in the window of that index.
	taken []float64
	sum   float64
}

func newIdealWindows(limit Limit, keys int, late bool) *idealWindows {
	return &idealWindows{limit: limit, late: late, index: make([]int64, keys), taken: make([]float64, keys)}
}

func (i *idealWindows) take(key int, n int64, window, first Window) {
	length, begin := i.limit.Refill(), first.Start
	if i.late {
		begin = first.End
	}
	from, offset := floorDiv(int64(window.Start-begin), int64(length))
	to, end := floorDiv(int64(window.End-begin), int64(length))
	if from == to {
		i.takeIn(from, key, float64(n))
		return
	}
	perNs := float64(n) / float64(window.End-window.Start)
	i.takeIn(from, key, perNs*float64(int64(length)-offset))
	i.sum += float64(to-from-1) * min(perNs*float64(length), float64(i.limit.Capacity))
	i.takeIn(to, key, perNs*float64(end))
}

func (i *idealWindows) takeIn(index int64, key int, n float64) {
	if i.index[key] != index {
		i.index[key], i.taken[key] = index, 0
	}
	n = min(n, float64(i.limit.Capacity)-i.taken[key])
	i.taken[key] += n
	i.sum += n
}

func (i *idealWindows) total() float64 { return i.sum }

// floorDiv returns a/b rounded down and the remainder, for b > 0.
func floorDiv(a, b int64) (quotient, rest int64) {
	quotient, rest = a/b, a%b
	if rest < 0 {
		quotient, rest = quotient-1, rest+b
	}
	return quotient, rest
}

// Counts are a limiter's own counters.
type Counts struct {
	// Overadmitted counts the calls admitted beyond the limit, by the limiter's own count.
	Overadmitted int64 `json:"overadmitted"`
	// Unavailable counts the calls answered without the key's state.
	Unavailable int64 `json:"unavailable"`
	ByRedis     int64 `json:"by_redis,omitempty"`
	ByLease     int64 `json:"by_lease,omitempty"`
	// Evicted counts the keys that were given up.
	Evicted int64 `json:"evicted"`
	// Forgiven counts the evicted keys that still owed.
	Forgiven int64 `json:"forgiven"`
	// Restarts counts the background goroutines that were restarted.
	Restarts int64 `json:"restarts"`

	// clock is the clock of an engine.
	clock string
}

func (c *Counts) add(counts Counts) {
	c.Overadmitted += counts.Overadmitted
	c.Unavailable += counts.Unavailable
	c.ByRedis += counts.ByRedis
	c.ByLease += counts.ByLease
	c.Evicted += counts.Evicted
	c.Forgiven += counts.Forgiven
	c.Restarts += counts.Restarts
}
