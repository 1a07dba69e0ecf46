package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// auditorOf gives each window the calls by key of the same index, or the last.
func auditorOf(p Promise, limit Limit, windows []Window, asked ...[]int64) *auditor {
	keys := 0
	if len(asked) > 0 {
		keys = len(asked[0])
	}
	a := newAuditor(p, limit, keys)
	for i, w := range windows {
		a.add(w, asked[min(i, len(asked)-1)])
	}
	return a
}

func admitting(n int64, a *auditor) *auditor {
	a.admitted = n
	return a
}

func TestAuditCountsCallsAboveTheLimit(t *testing.T) {
	limit := Limit{Capacity: 10, Count: 10, Per: time.Second}
	// At most 20 calls of a key pass.
	second := []Window{{0, time.Second}}
	for _, c := range []struct {
		about    string
		asked    []int64
		admitted int64
		allowed  int64
		over     int64
		binds    bool
	}{
		{"no calls", []int64{}, 0, 0, 0, false},
		{"asked less than allowed", []int64{20, 3}, 23, 23, 0, false},
		{"one key asked for more", []int64{21, 3}, 23, 23, 0, true},
		{"one too many", []int64{21, 3}, 24, 23, 1, true},
		{"what one key leaves the other may not have", []int64{100, 0, 1}, 30, 21, 9, true},
		{"fewer than allowed", []int64{100, 100}, 31, 40, 0, true},
	} {
		var a Audit
		a.add(admitting(c.admitted, auditorOf(GCRA, limit, second, c.asked)), nil)
		assert.Equal(t, GCRA, a.Promise, c.about)
		assert.Equal(t, c.allowed, a.Allowed, c.about)
		assert.Equal(t, c.allowed, a.BucketAllowed, c.about)
		assert.Equal(t, c.over, a.Over, c.about)
		assert.Equal(t, c.over, a.OverBucket(), c.about)
		assert.Equal(t, c.over == 0, a.Clean(), c.about)
		assert.Equal(t, c.binds, a.Binds, c.about)
		assert.Equal(t, time.Second, a.Asked, c.about)
	}
}

func TestAuditDoesNotSetOneLimiterOffAgainstAnother(t *testing.T) {
	var a Audit
	limit, windows := Limit{Capacity: 10, Count: 1, Per: time.Hour}, []Window{{0, time.Second}}
	a.add(admitting(13, auditorOf("", limit, windows, []int64{100})), func() Counts { return Counts{Overadmitted: 3} })
	a.add(admitting(2, auditorOf("", limit, windows, []int64{100})), func() Counts { return Counts{Overadmitted: 1, Evicted: 5} })
	assert.EqualValues(t, 15, a.Admitted)
	assert.EqualValues(t, 20, a.Allowed)
	assert.EqualValues(t, 3, a.Over)
	assert.Equal(t, 2, a.Limiters)
	assert.Equal(t, &Counts{Overadmitted: 4, Evicted: 5}, a.Own)
}

func TestAuditCountsThePassesInWhichTheExcessGrew(t *testing.T) {
	limit := Limit{Capacity: 10, Count: 1, Per: time.Hour}
	one := &caller{stream: newStream([]uint32{0})}
	var windows []askedWindow
	for i, passed := range []int64{9, 3, 0, 2} {
		w := askedWindow{Window: Window{time.Duration(i) * time.Second, time.Duration(i+1) * time.Second}, callers: []*caller{one}}
		w.before = tallies(w.callers)
		one.asked += 20
		one.passed += passed
		w.after = tallies(w.callers)
		windows = append(windows, w)
	}
	var a Audit
	audited := func(windows []askedWindow) *auditor {
		auditor := newAuditor(GCRA, limit, 1)
		auditor.addAll(windows)
		return auditor
	}
	a.add(audited(windows), nil)
	assert.EqualValues(t, 4, a.Over)
	assert.Equal(t, 2, a.OverPasses, "12, then 14 of 10")
	assert.Equal(t, 4, a.Passes)
	a.add(audited(windows[:1]), nil)
	assert.Equal(t, 2, a.OverPasses)
	assert.Equal(t, 5, a.Passes)
}

func TestPossibleEqualsAnIdealLimiter(t *testing.T) {
	// The bucket refills in a second.
	limit := Limit{Capacity: 10, Count: 10, Per: time.Second}
	s := time.Second
	for _, c := range []struct {
		about    string
		promise  Promise
		windows  []Window
		asked    [][]int64
		possible int64
		allowed  int64
	}{
		{"a hot key", TokenBucket, []Window{{0, s}}, [][]int64{{1000}}, 20, 20},
		{"less than allowed", TokenBucket, []Window{{0, s}}, [][]int64{{7, 20}}, 27, 27},
		{"a short rest", TokenBucket, []Window{{0, s}, {s + s/2, 2 * s}}, [][]int64{{1000}, {1000}}, 20 + 5 + 5, 30},
		{"a long rest", TokenBucket, []Window{{0, s}, {9 * s, 10 * s}}, [][]int64{{1000}, {1000}}, 20 + 20, 40},
		// It could not be saved up: the key was full when the second window began.
		{"asked when it is too late", TokenBucket, []Window{{0, 2 * s}, {3 * s, 4 * s}}, [][]int64{{1}, {1000}}, 1 + 20, 50},
		{"what is left is kept", TokenBucket, []Window{{0, 2 * s}, {2 * s, 3 * s}, {3 * s, 4 * s}}, [][]int64{{1}, {15}, {1000}}, 1 + 15 + 15, 50},
		{"another key, asked later", TokenBucket, []Window{{0, s}, {s, 2 * s}}, [][]int64{{1000, 0}, {1000, 1000}}, 30 + 20, 30 + 20},
		{"parts of a call are kept", TokenBucket, []Window{{0, s / 20}, {s / 20, s / 10}}, [][]int64{{100}, {100}}, 11, 11},

		{"a hot key in windows", FixedWindow, []Window{{0, s / 2}}, [][]int64{{1000}}, 10, 10},
		{"several windows at once", FixedWindow, []Window{{0, s / 10}, {s / 2, 3*s + s/2}}, [][]int64{{1}, {1000}}, 40, 40},
		{"few calls in each window", FixedWindow, []Window{{0, s / 10}, {s, 5 * s}}, [][]int64{{1}, {8}}, 9, 9},
		{"a window that is full already", FixedWindow, []Window{{0, s / 10}, {s / 5, s / 2}}, [][]int64{{7}, {1000}}, 10, 10},
		{"another key, asked later, in windows", FixedWindow, []Window{{0, s}, {s, 2 * s}}, [][]int64{{1000, 0}, {1000, 1000}}, 20 + 10, 30 + 20},
		{"sliding", SlidingWindow, []Window{{0, s / 10}, {s / 2, 3*s + s/2}}, [][]int64{{1}, {1000}}, 40, 40},
	} {
		a := auditorOf(c.promise, limit, c.windows, c.asked...)
		assert.Equal(t, c.possible, a.possible(), c.about)
		assert.Equal(t, c.allowed, a.allowed(), c.about)
	}
}

func TestAuditShowsALimiterThatRefusesTooMuch(t *testing.T) {
	var a Audit
	assert.InDelta(t, 1, a.OfPossible(), 1e-9, "nothing was possible, and nothing was missed")
	for _, p := range everyPromise {
		a = Audit{}
		a.add(admitting(5, auditorOf(p, Limit{Capacity: 10, Count: 1, Per: time.Hour}, []Window{{0, time.Second}}, []int64{100, 100})), nil)
		assert.EqualValues(t, 20, a.Possible, p)
		assert.InDelta(t, 0.25, a.OfPossible(), 1e-9, p)
		assert.True(t, a.Clean(), p)
	}
}
