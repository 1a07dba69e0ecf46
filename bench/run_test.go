package bench

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func quick() Options {
	return Options{Duration: 4 * ms, Rounds: 3, Callers: 2, NewRecorder: newTape}
}

// fewer bounds the callers of audits: under -race 64 need half a second to stop.
func fewer(workloads []Workload) []Workload {
	for i := range workloads {
		workloads[i].Callers = min(workloads[i].Callers, 12)
	}
	return workloads
}

var slow = Limit{Capacity: 20, Count: 1, Per: time.Hour}

func TestAuditCatchesALimiterThatAdmitsTooMuch(t *testing.T) {
	for _, w := range []Workload{
		{Name: "hot", Limit: slow, Keys: 1, Callers: 16},
		{Name: "new", Limit: slow, Keys: 200, Callers: 32, Draw: DrawSameOrder},
	} {
		report, err := Run(t.Context(), []Workload{w}, []Contender{exactBucket("exact"), racyBucket("racy")}, quick())
		require.NoError(t, err)
		exact, racy := report.Workloads[0].Results[0].Audit, report.Workloads[0].Results[1].Audit

		assert.True(t, exact.Binds, w.Name)
		assert.True(t, exact.Clean(), "%s: %+v", w.Name, exact)
		assert.Equal(t, exact.Allowed, exact.Admitted, "%s: all that was allowed was taken", w.Name)
		assert.False(t, racy.Clean(), "%s: %+v", w.Name, racy)
		assert.Equal(t, racy.Admitted-racy.Allowed, racy.Over, w.Name)
	}
}

func TestEachNewKeyIsAskedOnce(t *testing.T) {
	w := Workload{Name: "flood", Limit: Limit{Capacity: 1, Count: 1, Per: time.Hour}, Keys: 1001, Draw: DrawOnce}
	o := quick()
	o.Callers = 3
	report, err := Run(t.Context(), []Workload{w}, []Contender{exactBucket("a")}, o)
	require.NoError(t, err)
	r := report.Workloads[0].Results[0]
	assert.Zero(t, r.RefusedShare, "a bucket of one passes each key once")
	assert.EqualValues(t, 1001, r.Rounds[0].Calls)
	assert.GreaterOrEqual(t, r.Audit.Limiters, 6, "each pass has its own, also one that is repeated")
	assert.False(t, r.Audit.Binds)
	assert.EqualValues(t, 3*1001, r.Latency.Calls)
}

func TestPassThatIsOverAtOnceHasCalls(t *testing.T) {
	o := quick()
	o.Duration = 2 * time.Nanosecond
	report, err := Run(t.Context(), []Workload{{Name: "hot", Limit: slow, Keys: 1}}, []Contender{exactBucket("a")}, o)
	require.NoError(t, err)
	r := report.Workloads[0].Results[0]
	require.Len(t, r.Rounds, 3)
	for _, pass := range r.Rounds {
		assert.GreaterOrEqual(t, pass.Calls, int64(2*batch), "each caller asks a batch")
	}
	require.NotNil(t, r.Latency)
	assert.GreaterOrEqual(t, r.Latency.Calls, int64(3*2*batch))
}

func TestKnownKeysAreAskedMeanwhile(t *testing.T) {
	w := Workload{Name: "growth", Limit: loose, Keys: 20_000, Known: 8, Draw: DrawOnce, Rounds: 1, OneTimedPass: true}
	report, err := Run(t.Context(), []Workload{w}, []Contender{XsyncMap(), Ral()}, quick())
	require.NoError(t, err)
	assert.True(t, report.Workloads[0].Timed)
	for _, r := range report.Workloads[0].Results {
		assert.Len(t, r.Rounds, 1)
		assert.EqualValues(t, 20_000, r.Latency.Calls)
		assert.Positive(t, r.Known.Calls)
	}
	ral := report.Workloads[0].Results[1]
	assert.EqualValues(t, 20_000+8+ral.Known.Calls, ral.Audit.Calls)
}

func TestContendersTakeTurnsRoundByRound(t *testing.T) {
	var turns []string
	o := quick()
	o.Progress = func(p Progress) {
		if p.Contender != "" && p.Doing != "opening keys and warming up" {
			turns = append(turns, p.Contender)
		}
	}
	three := []Contender{exactBucket("a"), exactBucket("b"), exactBucket("c")}
	_, err := Run(t.Context(), []Workload{{Name: "hot", Limit: slow, Keys: 1}}, three, o)
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "c", "b", "c", "a", "c", "a", "b"}, turns)
}

func TestProgressGoesForwardAndReachesTheEnd(t *testing.T) {
	var last Progress
	o := quick()
	o.Progress = func(p Progress) {
		assert.GreaterOrEqual(t, p.Done, last.Done)
		assert.LessOrEqual(t, p.Done, p.Total)
		last = p
	}
	workloads, err := Select(Standard(0.001), []string{"hot-pass", "zipf", "flood", "growth"})
	require.NoError(t, err)
	_, err = Run(t.Context(), workloads, []Contender{XsyncMap(), Ral()}, o)
	require.NoError(t, err)
	assert.Equal(t, last.Total, last.Done)
}

func TestRatiosAreToTheYardsticksOfTheSameRound(t *testing.T) {
	pass := func(ns time.Duration) Pass { return Pass{Calls: 10, CPU: 10 * ns, Elapsed: 5 * ns} }
	w := WorkloadReport{Results: []Result{
		{Contender: "map", Yardstick: YardstickMap, Rounds: []Pass{pass(10), pass(20), pass(100)}},
		{Contender: "a", Rounds: []Pass{pass(20), pass(60), pass(110)}}, // 2, 3, 1.1
		{Contender: "b", Rounds: []Pass{pass(15)}},
	}}
	w.fillRatios()
	assert.Equal(t, Spread{Median: 1, Min: 1, Max: 1}, *w.Results[0].OfMap)
	assert.Equal(t, Spread{Median: 2, Min: 1.1, Max: 3}, *w.Results[1].OfMap)
	assert.Equal(t, Spread{Median: 1.5, Min: 1.5, Max: 1.5}, *w.Results[2].OfMap)
	assert.Nil(t, w.Results[1].OfFloor, "it was not measured")

	w.Results = append(w.Results, Result{Contender: "floor", Yardstick: YardstickFloor, Rounds: []Pass{pass(5), pass(10), pass(50)}})
	w.fillRatios()
	assert.Equal(t, Spread{Median: 4, Min: 2.2, Max: 6}, *w.Results[1].OfFloor)
	assert.Equal(t, Spread{Median: 0.5, Min: 0.5, Max: 0.5}, *w.Results[3].OfMap)
}

func TestYardsticksAnswerWithoutLimiting(t *testing.T) {
	for _, c := range []Contender{Floor(), XsyncMap()} {
		// Keys may share a word of the floor.
		l, err := c.New(Setup{Keys: 2, Refuse: map[string]struct{}{"b": {}}})
		require.NoError(t, err)
		if f, ok := l.(*floor); ok {
			for f.word("a") == f.word("b") {
				l, err = c.New(Setup{Keys: 2, Refuse: map[string]struct{}{"b": {}}})
				require.NoError(t, err)
				f = l.(*floor)
			}
		}
		for range 3 {
			assert.True(t, l.Choke("a"), c.Name)
			assert.False(t, l.Choke("b"), c.Name)
		}
		assert.Equal(t, 1, l.ChokeAll([]string{"a", "b"}), c.Name)
		keys := []string{"a", "b", "a"}
		assert.Zero(t, testing.AllocsPerRun(100, func() { l.ChokeAll(keys) }), c.Name)
		assert.NoError(t, l.Close())
	}
}

func TestFloorUsesItsWholeArray(t *testing.T) {
	const keys = 1000
	l, err := Floor().New(Setup{Keys: keys})
	require.NoError(t, err)
	f := l.(*floor)
	assert.Len(t, f.words, keys)
	assert.Equal(t, keys, l.ChokeAll(newStream(upTo(0, keys)).keys))
	used := 0
	for i := range f.words {
		if f.words[i].Load() != 0 {
			used++
		}
	}
	assert.InDelta(t, keys*(1-1/math.E), used, 100, "as balls in bins")
}

func TestYardsticksTakePartWhereTheirFiguresMeanSomething(t *testing.T) {
	can := map[Yardstick][]string{}
	for _, w := range Standard(1) {
		for _, c := range []Contender{Floor(), XsyncMap()} {
			if c.can(w) {
				can[c.Yardstick] = append(can[c.Yardstick], w.Name)
			}
		}
	}
	assert.Equal(t, []string{"hot-pass", "hot-refused", "uniform", "zipf", "flood"}, can[YardstickFloor])
	assert.Equal(t, []string{"hot-pass", "hot-refused", "uniform", "zipf", "flood", "audit-hot", "growth", "memory"}, can[YardstickMap])
}

func TestRalIsExactAndQueuedCountsItsExcess(t *testing.T) {
	workloads, err := Select(Standard(0.01), []string{"audit-hot", "audit-new"})
	require.NoError(t, err)
	report, err := Run(t.Context(), fewer(workloads), []Contender{Ral(), RalQueued()}, quick())
	require.NoError(t, err)
	for _, w := range report.Workloads {
		exact := w.Results[0].Audit
		assert.True(t, exact.Binds, w.Name)
		if exact.Own.Unavailable == 0 { // such calls pass unrecorded, and a busy machine may have some
			assert.True(t, exact.Clean(), "%s: %+v", w.Name, exact)
		}
		queued := w.Results[1].Audit
		assert.GreaterOrEqual(t, queued.Own.Overadmitted, queued.Over, w.Name)
		assert.Nil(t, w.Results[0].Latency, "an audit times no calls")
	}
}

func TestEachWorkloadRunsWithEachNumberOfProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	var seen []int
	c := exactBucket("a")
	made := c.New
	c.New = func(s Setup) (Limiter, error) {
		seen = append(seen, runtime.GOMAXPROCS(0))
		return made(s)
	}
	o := quick()
	o.CPUs, o.Callers, o.Rounds = []int{3, 1}, 0, 1
	hot := func(name string, callers int) Workload {
		return Workload{Name: name, Limit: slow, Keys: 1, Callers: callers}
	}
	report, err := Run(t.Context(), []Workload{hot("first", 0), hot("second", 7)}, []Contender{c}, o)
	require.NoError(t, err)
	assert.Equal(t, []int{3, 1, 3, 1}, seen)
	assert.Equal(t, before, runtime.GOMAXPROCS(0), "as it was")
	var got [][3]any
	for _, w := range report.Workloads {
		got = append(got, [3]any{w.Name, w.CPU, w.Callers})
	}
	assert.Equal(t, [][3]any{{"first", 3, 3}, {"first", 1, 1}, {"second", 3, 7}, {"second", 1, 7}}, got)
}

func TestSlowContendersDoNoWorkloadOfManyCalls(t *testing.T) {
	slow := Contender{Slow: true}
	var can []string
	for _, w := range Standard(1) {
		if slow.can(w) {
			can = append(can, w.Name)
		}
		assert.True(t, Contender{}.can(w), w.Name)
	}
	assert.Equal(t, []string{"hot-pass", "hot-refused", "uniform", "audit-hot"}, can)
	assert.False(t, Contender{Slow: true, Needs: func(Workload) bool { return false }}.can(Workload{}))
}

func TestOnlyExactLimitersAreComparable(t *testing.T) {
	assert.True(t, Result{Exact: true}.Comparable())
	assert.True(t, Result{Exact: true, Audit: &Audit{}}.Comparable())
	assert.False(t, Result{Exact: true, Audit: &Audit{Over: 1}}.Comparable(), "it broke its promise")
	assert.False(t, Result{Audit: &Audit{}}.Comparable(), "by luck")
	assert.False(t, Result{Exact: true, Yardstick: YardstickMap}.Comparable())
	assert.False(t, Result{Exact: true, Yardstick: YardstickFloor}.Comparable())
	assert.False(t, Result{Exact: true, Elsewhere: true}.Comparable(), "another process works for it")
}

func TestInterruptedRunReportsFinishedRounds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := quick()
	o.Progress = func(p Progress) {
		if p.Workload == "second" && p.Doing == "round 2 of 3" {
			cancel()
		}
	}
	hot := func(name string) Workload { return Workload{Name: name, Limit: slow, Keys: 1} }
	report, err := Run(ctx, []Workload{hot("first"), hot("second"), hot("third")}, []Contender{exactBucket("a"), exactBucket("b")}, o)
	require.NoError(t, err)
	assert.True(t, report.Interrupted)
	require.Len(t, report.Workloads, 2)
	assert.Len(t, report.Workloads[0].Results[0].Rounds, 3)
	assert.Len(t, report.Workloads[1].Results[0].Rounds, 1)
	assert.Len(t, report.Workloads[1].Results[1].Rounds, 1)
}

func TestRunEndedBeforeItBeganReportsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	report, err := Run(ctx, Standard(1), []Contender{Ral()}, quick())
	require.NoError(t, err)
	assert.True(t, report.Interrupted)
	assert.Empty(t, report.Workloads)
}

func TestRunReturnsTheErrorOfAContender(t *testing.T) {
	broken := errors.New("no")
	unmade := Contender{Name: "unmade", New: func(Setup) (Limiter, error) { return nil, broken }}
	unclosed := Contender{Name: "unclosed", New: func(s Setup) (Limiter, error) {
		l, err := exactBucket("").New(s)
		l.(*bucket).closed = func() error { return broken }
		return l, err
	}}
	for _, c := range []Contender{unmade, unclosed} {
		for _, draw := range []Draw{DrawUniform, DrawOnce} {
			w := Workload{Name: "some", Limit: slow, Keys: 1, Draw: draw}
			_, err := Run(t.Context(), []Workload{w}, []Contender{c}, quick())
			require.ErrorIs(t, err, broken)
			assert.ErrorContains(t, err, c.Name)
			assert.ErrorContains(t, err, "some")
		}
	}
	_, err := Run(t.Context(), nil, nil, Options{})
	assert.ErrorContains(t, err, "positive")
	o := quick()
	o.CPUs = []int{1, 0}
	_, err = Run(t.Context(), nil, nil, o)
	assert.ErrorContains(t, err, "CPUs")
}

func TestEveryStandardWorkloadRuns(t *testing.T) {
	o := quick()
	o.Rounds = 1
	report, err := Run(t.Context(), fewer(Standard(0.002)), []Contender{Floor(), XsyncMap(), Ral(), RalQueued()}, o)
	require.NoError(t, err)
	names := make([]string, len(report.Workloads))
	for i, w := range report.Workloads {
		names[i] = w.Name
		for _, r := range w.Results {
			assert.Positive(t, r.OpsPerSecond.Median, "%s, %s", w.Name, r.Contender)
			if !r.IsLimiter() {
				assert.Nil(t, r.Audit)
			} else {
				assert.GreaterOrEqual(t, r.Audit.Calls, r.Audit.Admitted)
			}
			if slices.Contains([]string{"hot-pass", "uniform", "flood"}, w.Name) {
				assert.Zero(t, r.RefusedShare, "%s, %s", w.Name, r.Contender)
			}
		}
	}
	assert.Equal(t, Names(Standard(1)), names)
}
