package bench

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// decider limits a key in one goroutine: it reports whether a call at that time passes.
type decider func(at time.Duration) bool

// The promises as in textbooks. fault, if not 0, breaks the promise a little.

// bucketOf drains too fast by the fault's share.
func bucketOf(l Limit, fault float64) decider {
	level, last := 0.0, time.Duration(0)
	return func(at time.Duration) bool {
		drained := float64(at-last) * float64(l.Count) / float64(l.Per)
		level, last = max(level-drained*(1+fault), 0), at
		if level > float64(l.Capacity)-1+1e-9 {
			return false
		}
		level++
		return true
	}
}

// fixedWindowOf has windows shorter by the fault's share, each beginning where the last ended.
func fixedWindowOf(l Limit, fault float64) decider {
	begin, index, taken := time.Duration(-1), int64(0), int64(0)
	length := time.Duration(float64(l.Refill()) * (1 - fault))
	return func(at time.Duration) bool {
		if begin < 0 {
			begin = at
		}
		if now := int64((at - begin) / length); now != index {
			index, taken = now, 0
		}
		taken++
		return taken <= l.Capacity
	}
}

// restartingWindowOf has windows like fixedWindowOf, but each begins with a call.
func restartingWindowOf(l Limit, fault float64) decider {
	begin, taken := time.Duration(-1), int64(0)
	length := time.Duration(float64(l.Refill()) * (1 - fault))
	return func(at time.Duration) bool {
		if begin < 0 || at-begin >= length {
			begin, taken = at, 0
		}
		taken++
		return taken <= l.Capacity
	}
}

// slidingWindowOf forgets a call too early by the fault's share.
func slidingWindowOf(l Limit, fault float64) decider {
	var passed []time.Duration
	length := time.Duration(float64(l.Refill()) * (1 - fault))
	return func(at time.Duration) bool {
		for len(passed) > 0 && at-passed[0] >= length {
			passed = passed[1:]
		}
		if int64(len(passed)) >= l.Capacity {
			return false
		}
		passed = append(passed, at)
		return true
	}
}

var textbook = []struct {
	name    string
	promise Promise
	decide  func(l Limit, fault float64) decider
}{
	{"token bucket", TokenBucket, bucketOf},
	{"leaky bucket", LeakyBucket, bucketOf},
	{"GCRA", GCRA, bucketOf},
	{"pacing", Pacing, bucketOf},
	{"fixed window", FixedWindow, fixedWindowOf},
	{"fixed window that restarts", FixedWindow, restartingWindowOf},
	{"sliding window", SlidingWindow, slidingWindowOf},
}

// deciding has a decider for each key. Each call takes some time in a bubble.
type deciding struct {
	pause time.Duration
	make  func() decider
	epoch time.Time
	mu    sync.Mutex
	keys  map[string]decider
}

func (d *deciding) Choke(key string) bool {
	time.Sleep(d.pause)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.keys[key] == nil {
		d.keys[key] = d.make()
	}
	return d.keys[key](time.Since(d.epoch))
}

func (d *deciding) ChokeAll(keys []string) int {
	return AskEach(keys, func(key string) bool { return d.Choke(key) })
}

func (d *deciding) Close() error { return nil }

func contenderOf(name string, p Promise, decide func(Limit) decider) Contender {
	return Contender{Name: name, Promise: p, Exact: true, New: func(s Setup) (Limiter, error) {
		return &deciding{
			pause: 700 * time.Microsecond, make: func() decider { return decide(s.Limit) },
			epoch: time.Now(), keys: make(map[string]decider),
		}, nil
	}}
}

// TestAuditCatchesEachBrokenPromise runs whole benchmarks in virtual time, with contenders that
// keep their promise or break it by 5%.
//
// Promise: The audit notices each limiter breaking its own promise.
func TestAuditCatchesEachBrokenPromise(t *testing.T) {
	for _, c := range textbook {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := Workload{Name: "hot", Limit: Limit{Capacity: 20, Count: 200, Per: time.Second}, Keys: 1, Callers: 3}
				o := Options{Duration: 3 * time.Second, Rounds: 3, busy: func() (time.Duration, int, bool) { return 0, 0, false }}
				report, err := Run(t.Context(), []Workload{w}, []Contender{
					contenderOf("kept", c.promise, func(l Limit) decider { return c.decide(l, 0) }),
					contenderOf("broken", c.promise, func(l Limit) decider { return c.decide(l, 0.05) }),
				}, o)
				require.NoError(t, err)
				kept, broken := report.Workloads[0].Results[0].Audit, report.Workloads[0].Results[1].Audit
				assert.Equal(t, c.promise, kept.Promise)
				assert.True(t, kept.Binds)
				assert.True(t, kept.Clean(), "%+v", kept)
				assert.Greater(t, kept.OfPossible(), 0.95, "%+v", kept)
				assert.False(t, broken.Clean(), "%+v", broken)
				assert.True(t, report.Workloads[0].Results[0].Comparable())
				assert.False(t, report.Workloads[0].Results[1].Comparable())
			})
		})
	}
}

func callsAt(d decider, times ...time.Duration) (passed int64) {
	for _, at := range times {
		if d(at) {
			passed++
		}
	}
	return passed
}

func repeat(at time.Duration, n int) (times []time.Duration) {
	for range n {
		times = append(times, at)
	}
	return times
}

// It admits two bursts around its end: right by its own promise, wrong by a bucket's.
func TestFixedWindowIsNotHeldToABucketsPromise(t *testing.T) {
	limit := Limit{Capacity: 100, Count: 100, Per: time.Second}
	asked := []Window{{0, 0}, {5999 * ms, 6000 * ms}}
	times := append(repeat(0, 500), append(repeat(5999*ms, 500), repeat(6000*ms, 500)...)...)
	admitted := callsAt(fixedWindowOf(limit, 0), times...)
	assert.EqualValues(t, 300, admitted)

	var own, bucket Audit
	own.add(auditorOf(FixedWindow, limit, asked, []int64{500}, []int64{1000}), admitted, nil)
	assert.True(t, own.Clean(), "%+v", own)
	assert.EqualValues(t, 300, own.Allowed)
	assert.EqualValues(t, 200, own.BucketAllowed)
	assert.EqualValues(t, 100, own.OverBucket())
	bucket.add(auditorOf(TokenBucket, limit, asked, []int64{500}, []int64{1000}), admitted, nil)
	assert.EqualValues(t, 100, bucket.Over)

	own = Audit{}
	own.add(auditorOf(FixedWindow, limit, asked, []int64{500}, []int64{1000}), admitted+1, nil)
	assert.EqualValues(t, 1, own.Over, "one more breaks its own promise")
}

func TestWindowsTouched(t *testing.T) {
	for _, c := range []struct {
		about string
		asked []Window
		fixed int64 // windows of 100
		apart int64 // instants 100 apart
	}{
		{"an instant", []Window{{5, 5}}, 1, 1},
		{"less than a window", []Window{{5, 104}}, 1, 1},
		{"a window and its end", []Window{{5, 105}}, 2, 2},
		{"the first call came late", []Window{{0, 50}, {140, 210}}, 3, 2},
		{"the last instant begins a window", []Window{{0, 50}, {90, 110}}, 2, 2},
		{"both sides of an end", []Window{{0, 0}, {99, 100}}, 2, 2},
		{"three windows by their ends", []Window{{0, 0}, {150, 150}, {220, 220}}, 3, 2},
		{"a window is counted once", []Window{{0, 10}, {20, 30}, {40, 50}}, 1, 1},
		{"a long rest", []Window{{0, 10}, {100_000, 100_010}}, 3, 2},
		{"one that the first call cannot reach", []Window{{0, 1}, {110, 190}}, 2, 2},
	} {
		assert.Equal(t, c.fixed, windowsTouched(c.asked, 100), c.about)
		assert.Equal(t, c.apart, pointsApart(c.asked, 100), c.about)
	}
	const forever = time.Duration(math.MaxInt64)
	assert.EqualValues(t, 1, windowsTouched([]Window{{5, 10}, {20, 30}}, forever))
	assert.EqualValues(t, 1, pointsApart([]Window{{5, 10}, {20, 30}}, forever))
	assert.Equal(t, int64(math.MaxInt64), mulSaturated(1<<40, 1<<40))
}

// The greediest calls reach the bounds.
func TestAllowedIsNeverLessThanATextbookLimiterAdmits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		limit := Limit{Capacity: 1 + r.Int64N(4), Count: 1 + r.Int64N(4), Per: time.Duration(1 + r.IntN(60))}
		var asked []Window
		at := time.Duration(r.IntN(5))
		for range 1 + r.IntN(5) {
			w := Window{Start: at, End: at + time.Duration(r.IntN(40))}
			asked = append(asked, w)
			at = w.End + time.Duration(1+r.IntN(50))
		}
		reached := map[Promise]int64{}
		for _, c := range textbook {
			// Each instant is asked at as often as could help, from a first call on.
			for late := asked[0].Start; late <= asked[0].End; late++ {
				var times []time.Duration
				for _, w := range asked {
					for at := max(w.Start, late); at <= w.End; at++ {
						times = append(times, repeat(at, int(limit.Capacity)+1)...)
					}
				}
				reached[c.promise] = max(reached[c.promise], callsAt(c.decide(limit, 0), times...))
			}
		}
		for p, most := range reached {
			if p.windowed() {
				require.Equal(t, p.most(limit, asked), most, "%s, %+v, %v", p, limit, asked)
			} else {
				require.GreaterOrEqual(t, p.most(limit, asked), most, "%s, %+v, %v", p, limit, asked)
			}
		}
	}
}

func TestEveryPromiseSaysTheUnitsThatItAdmits(t *testing.T) {
	seen := map[Promise]bool{}
	for _, c := range textbook {
		seen[c.promise] = true
	}
	for _, p := range Promises() {
		assert.NotEmpty(t, p.About())
		assert.True(t, seen[p], "%s: is broken in a test", p)
	}
}
