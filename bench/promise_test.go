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
type decider func(instant time.Duration) bool

// The promises as in textbooks. fault, if not 0, breaks the promise a little.

// bucketOf drains too fast by the fault's share.
func bucketOf(l Limit, fault float64) decider {
	level, last := 0.0, time.Duration(0)
	return func(instant time.Duration) bool {
		drained := float64(instant-last) * float64(l.Count) / float64(l.Per)
		level, last = max(level-drained*(1+fault), 0), instant
		if level > float64(l.Capacity)-1+1e-9 {
			return false
		}
		level++
		return true
	}
}

// fixedWindowOf has windows shorter by the fault's share, each beginning where one before ended.
func fixedWindowOf(l Limit, fault float64) decider { return windowsOf(l, fault, false) }

// restartingWindowOf has windows like fixedWindowOf, but each begins with a call.
func restartingWindowOf(l Limit, fault float64) decider { return windowsOf(l, fault, true) }

func windowsOf(l Limit, fault float64, restart bool) decider {
	begin, taken := time.Duration(-1), int64(0)
	length := time.Duration(float64(l.Refill()) * (1 - fault))
	return func(instant time.Duration) bool {
		switch {
		case begin < 0 || restart && instant-begin >= length:
			begin, taken = instant, 0
		case instant-begin >= length:
			begin, taken = instant-(instant-begin)%length, 0
		}
		taken++
		return taken <= l.Capacity
	}
}

// slidingWindowOf forgets a call too early by the fault's share.
func slidingWindowOf(l Limit, fault float64) decider {
	var passed []time.Duration
	length := time.Duration(float64(l.Refill()) * (1 - fault))
	return func(instant time.Duration) bool {
		for len(passed) > 0 && instant-passed[0] >= length {
			passed = passed[1:]
		}
		if int64(len(passed)) >= l.Capacity {
			return false
		}
		passed = append(passed, instant)
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

// contenderOf has a decider for each key. Each call takes some time in a bubble.
func contenderOf(name string, p Promise, decide func(Limit) decider) Contender {
	c := faked(name, func(s Setup) *fake {
		epoch := time.Now()
		var mu sync.Mutex
		return byKey(func() func() bool {
			d := decide(s.Limit)
			return func() bool {
				time.Sleep(700 * time.Microsecond)
				mu.Lock()
				defer mu.Unlock()
				return d(time.Since(epoch))
			}
		})
	})
	c.Promise, c.Exact = p, true
	return c
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
				o := Options{Duration: 3 * time.Second, Rounds: 3, busy: unknown}
				results := ran(t, o, []Workload{w},
					contenderOf("kept", c.promise, func(l Limit) decider { return c.decide(l, 0) }),
					contenderOf("broken", c.promise, func(l Limit) decider { return c.decide(l, 0.05) }),
				).Workloads[0].Results
				kept, broken := results[0].Audit, results[1].Audit
				assert.Equal(t, c.promise, kept.Promise)
				assert.True(t, kept.Binds)
				assert.True(t, kept.Clean(), "%+v", kept)
				assert.Greater(t, kept.OfPossible(), 0.95, "%+v", kept)
				assert.False(t, broken.Clean(), "%+v", broken)
				assert.True(t, results[0].Comparable())
				assert.False(t, results[1].Comparable())
			})
		})
	}
}

func callsAt(d decider, times ...time.Duration) (passed int64) {
	for _, instant := range times {
		if d(instant) {
			passed++
		}
	}
	return passed
}

func repeat(instant time.Duration, n int) (times []time.Duration) {
	for range n {
		times = append(times, instant)
	}
	return times
}

// A fixed window admits two bursts around its end: right by its own promise, wrong by a bucket's.
func TestFixedWindowIsNotHeldToABucketsPromise(t *testing.T) {
	limit := Limit{Capacity: 100, Count: 100, Per: time.Second}
	audited := func(p Promise, admitted int64) (a Audit) {
		asked := []Window{{0, 0}, {5999 * ms, 6000 * ms}}
		a.add(admitting(admitted, auditorOf(p, limit, asked, []int64{500}, []int64{1000})), nil)
		return a
	}
	own := audited(FixedWindow, 300)
	assert.True(t, own.Clean(), "%+v", own)
	assert.EqualValues(t, 300, own.Allowed)
	assert.EqualValues(t, 200, own.BucketAllowed)
	assert.EqualValues(t, 100, own.OverBucket())
	assert.EqualValues(t, 100, audited(TokenBucket, 300).Over)
	assert.EqualValues(t, 1, audited(FixedWindow, 301).Over)
}

// The greediest calls reach the bounds.
func TestAllowedIsNeverLessThanATextbookLimiterAdmits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		limit := Limit{Capacity: 1 + r.Int64N(4), Count: 1 + r.Int64N(4), Per: time.Duration(1 + r.IntN(60))}
		var asked []Window
		instant := time.Duration(r.IntN(5))
		for range 1 + r.IntN(5) {
			w := Window{Start: instant, End: instant + time.Duration(r.IntN(40))}
			asked = append(asked, w)
			instant = w.End + time.Duration(1+r.IntN(50))
		}
		reached := map[Promise]int64{}
		for _, c := range textbook {
			// Each instant is asked at as often as could help, from a first call on.
			for late := asked[0].Start; late <= asked[0].End; late++ {
				var times []time.Duration
				for _, w := range asked {
					for instant := max(w.Start, late); instant <= w.End; instant++ {
						times = append(times, repeat(instant, int(limit.Capacity)+1)...)
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
		for _, p := range everyPromise {
			require.Contains(t, reached, p)
			require.NotEmpty(t, p.About())
		}
	}
	const forever = time.Duration(math.MaxInt64)
	assert.EqualValues(t, 1, windowsTouched([]Window{{5, 10}, {20, 30}}, forever))
	assert.EqualValues(t, 1, pointsApart([]Window{{5, 10}, {20, 30}}, forever))
	assert.Equal(t, int64(math.MaxInt64), mulSaturated(1<<40, 1<<40))
}

var everyPromise = []Promise{TokenBucket, LeakyBucket, GCRA, FixedWindow, SlidingWindow, Pacing}
