package bench

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
)

// quick does not watch the machine.
func quick() Options {
	return Options{Duration: 4 * ms, Rounds: 3, Callers: 2, NewRecorder: newTape, busy: unknown}
}

func unknown() (time.Duration, int, bool) { return 0, 0, false }

// fewer bounds the callers of audits: under -race 64 need half a second to stop.
func fewer(workloads []Workload) []Workload {
	for i := range workloads {
		workloads[i].Callers = min(workloads[i].Callers, 12)
	}
	return workloads
}

var slow = Limit{Capacity: 20, Count: 1, Per: time.Hour}

func ran(t *testing.T, o Options, workloads []Workload, contenders ...Contender) Report {
	t.Helper()
	return must.Get(Run(t.Context(), workloads, contenders, o))
}

func resultOf(t *testing.T, o Options, w Workload, c Contender) Result {
	t.Helper()
	return ran(t, o, []Workload{w}, c).Workloads[0].Results[0]
}

// All workloads run with all of Ral's contenders. Ral is exact, and Ral Queued counts its excess.
func TestEveryWorkloadRuns(t *testing.T) {
	workloads := fewer(append(Standard(0.002), Calls(0.1)...))
	o := quick()
	o.Rounds, o.busy = 2, nil
	var reports []string
	o.Progress = func(p Progress) {
		assert.Positive(t, p.Total)
		if reports = append(reports, p.Workload); len(reports) > 1 && reports[len(reports)-2] == p.Workload {
			reports = reports[1:]
		}
	}
	report := ran(t, o, workloads, append(RalCalls(), Floor(), XsyncMap(), Ral(), RalQueued())...)
	assert.Empty(t, reports[len(reports)-1], "the end of the run was not reported")
	require.Len(t, report.Workloads, len(workloads))
	for i, w := range report.Workloads {
		assert.Equal(t, workloads[i].Name, w.Name)
		assert.NotEmpty(t, w.Results, w.Name)
		for _, r := range w.Results {
			about := w.Name + ", " + r.Name
			assert.Positive(t, r.OpsPerSecond.Median, about)
			assert.Equal(t, workloads[i].Base != "" && r.Name != workloads[i].Base, r.OfBase != nil, about)
			assert.Equal(t, workloads[i].Apart, r.Apart, about)
			if r.Apart {
				assert.False(t, r.Comparable(), about)
			}
			if slices.Contains([]string{"hot-pass", "uniform", "flood"}, w.Name) || r.Apart && workloads[i].Refused == 0 {
				assert.Zero(t, r.RefusedShare, about)
			}
			if workloads[i].AuditOnly {
				assert.Nil(t, r.Latency, "%s: an audit times no calls", about)
			}
			if w.OneTimedPass && workloads[i].Known > 0 {
				assert.Len(t, r.Rounds, w.Rounds, about)
				assert.EqualValues(t, w.Rounds*w.Keys, r.Latency.Calls, about)
				assert.Positive(t, r.Known.Calls, "%s: known keys are asked meanwhile", about)
			}
			if !r.IsLimiter() {
				assert.Nil(t, r.Audit, about)
				continue
			}
			assertAudit(t, workloads[i], r)
		}
	}
}

func assertAudit(t *testing.T, w Workload, r Result) {
	t.Helper()
	about := w.Name + ", " + r.Name
	assert.GreaterOrEqual(t, r.Audit.Calls, r.Audit.Admitted, about)
	switch own := r.Audit.Own; {
	case r.Name == RalQueued().Name:
		assert.GreaterOrEqual(t, own.Overadmitted, r.Audit.Over, about)
	// Unavailable calls pass unrecorded, and a busy machine may have some.
	case own == nil || own.Unavailable == 0:
		assert.True(t, r.KeptPromise(), "%s: %+v", about, r.Audit)
	}
	if w.Name == "audit-hot" || w.Name == "audit-new" || w.Apart && w.Refused > 0 {
		assert.True(t, r.Audit.Binds, about)
		assert.Positive(t, r.RefusedShare, about)
	}
	if w.Draw.KeepsLimiter() {
		assert.Equal(t, 1, r.Audit.Limiters, about)
	}
	if w.OneTimedPass && w.Known > 0 {
		assert.EqualValues(t, int64(len(r.Rounds)*(w.Keys+w.Known))+r.Known.Calls, r.Audit.Calls, about)
	}
}

func TestEachNewKeyIsAskedOnce(t *testing.T) {
	o := quick()
	o.Callers = 3
	r := resultOf(t, o, Workload{Name: "flood", Limit: Limit{Capacity: 1, Count: 1, Per: time.Hour}, Keys: 1001, Draw: DrawOnce}, exactBucket("a"))
	assert.Zero(t, r.RefusedShare, "a bucket of one passes each key once")
	assert.EqualValues(t, 1001, r.Rounds[0].Calls)
	assert.Equal(t, 6, r.Audit.Limiters, "each pass has its own")
	assert.False(t, r.Audit.Binds)
	assert.EqualValues(t, 3*1001, r.Latency.Calls)
}

func TestContendersTakePartWhereTheirFiguresMeanSomething(t *testing.T) {
	for name, c := range map[string]struct {
		Contender
		want []string
	}{
		"floor":        {Floor(), []string{"hot-pass", "hot-refused", "uniform", "million", "zipf", "flood"}},
		"map":          {XsyncMap(), []string{"hot-pass", "hot-refused", "uniform", "million", "zipf", "flood", "audit-hot", "growth", "memory"}},
		"slow":         {Contender{Slow: true}, []string{"hot-pass", "hot-refused", "uniform", "audit-hot"}},
		"any":          {Contender{}, Names(Standard(1))},
		"made for one": {Contender{For: []string{VerbsWorkload}}, []string{VerbsWorkload}},
		"needs more":   {Contender{Needs: func(Workload) bool { return false }}, nil},
	} {
		var can []string
		for _, w := range All(1) {
			if c.can(w) {
				can = append(can, w.Name)
			}
		}
		assert.Equal(t, c.want, can, name)
	}
}

func TestContendersTakeTurnsRoundByRound(t *testing.T) {
	var turns []string
	o := quick()
	o.Progress = func(p Progress) {
		if p.Round > 0 {
			turns = append(turns, p.Contender)
		}
	}
	ran(t, o, []Workload{{Name: "hot", Limit: slow, Keys: 1}}, exactBucket("a"), exactBucket("b"), exactBucket("c"))
	assert.Equal(t, []string{"a", "b", "c", "b", "c", "a", "c", "a", "b"}, turns)
}

func TestRatiosAreToTheYardsticksOfTheSameRound(t *testing.T) {
	pass := func(ns time.Duration) Pass { return Pass{Calls: 10, CPU: 10 * ns, Elapsed: 5 * ns} }
	w := WorkloadReport{Results: []Result{
		{Contender: Contender{Name: "map", Yardstick: YardstickMap}, Rounds: []Pass{pass(10), pass(20), pass(100)}},
		// The ratios are 2, 3 and 1.1.
		{Contender: Contender{Name: "a"}, Rounds: []Pass{pass(20), pass(60), pass(110)}},
		{Contender: Contender{Name: "b"}, Rounds: []Pass{pass(15)}},
	}}
	w.Summarize()
	assert.Equal(t, Spread{Median: 1, Min: 1, Max: 1}, *w.Results[0].OfMap)
	assert.Equal(t, Spread{Median: 2, Min: 1.1, Max: 3}, *w.Results[1].OfMap)
	assert.Equal(t, Spread{Median: 1.5, Min: 1.5, Max: 1.5}, *w.Results[2].OfMap)
	assert.Nil(t, w.Results[1].OfFloor, "it was not measured")

	w.Results = append(w.Results, Result{Contender: Contender{Name: "floor", Yardstick: YardstickFloor}, Rounds: []Pass{pass(5), pass(10), pass(50)}})
	w.Summarize()
	assert.Equal(t, Spread{Median: 4, Min: 2.2, Max: 6}, *w.Results[1].OfFloor)
	assert.Equal(t, Spread{Median: 0.5, Min: 0.5, Max: 0.5}, *w.Results[3].OfMap)
}

func TestYardsticksAnswerWithoutLimiting(t *testing.T) {
	for _, c := range []Contender{Floor(), XsyncMap()} {
		made := func() Limiter { return must.Get(c.New(Setup{Keys: 2, Refuse: map[string]struct{}{"b": {}}})) }
		l := made()
		for !l.Choke("a") {
			// Keys may share a word of the floor.
			l = made()
		}
		for range 3 {
			assert.True(t, l.Choke("a"), c.Name)
			assert.False(t, l.Choke("b"), c.Name)
		}
		keys := []string{"a", "b", "a"}
		assert.Equal(t, 2, l.Ask(keys), c.Name)
		assert.Zero(t, testing.AllocsPerRun(100, func() { l.Ask(keys) }), c.Name)
		assert.NoError(t, l.Close())
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
	report := ran(t, o, []Workload{hot("first", 0), hot("second", 7)}, c)
	assert.Equal(t, []int{3, 1, 3, 1}, seen)
	assert.Equal(t, before, runtime.GOMAXPROCS(0), "the number of processors was not restored")
	var got [][3]any
	for _, w := range report.Workloads {
		got = append(got, [3]any{w.Name, w.CPU, w.Callers})
	}
	assert.Equal(t, [][3]any{{"first", 3, 3}, {"first", 1, 1}, {"second", 3, 7}, {"second", 1, 7}}, got)
}

func TestInterruptedRunReportsFinishedRounds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := quick()
	o.Progress = func(p Progress) {
		if p.Workload == "second" && p.Round == 2 {
			cancel()
		}
	}
	hot := func(name string) Workload { return Workload{Name: name, Limit: slow, Keys: 1} }
	run := func() Report {
		report := must.Get(Run(ctx, []Workload{hot("first"), hot("second"), hot("third")}, []Contender{exactBucket("a"), exactBucket("b")}, o))
		assert.True(t, report.Interrupted)
		return report
	}
	workloads := run().Workloads
	require.Len(t, workloads, 2)
	assert.Len(t, workloads[0].Results[0].Rounds, 3)
	assert.Len(t, workloads[1].Results[0].Rounds, 1)
	assert.Len(t, workloads[1].Results[1].Rounds, 1)
	assert.Empty(t, run().Workloads, "ended before it began")
}

func TestRunReturnsTheErrorOfAContender(t *testing.T) {
	broken := errors.New("no")
	unmade := Contender{Name: "unmade", New: func(Setup) (Limiter, error) { return Limiter{}, broken }}
	unclosed := faked("unclosed", func(Setup) *fake { return &fake{ask: passAll, closed: func() error { return broken }} })
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

// Promise: A flood's memory is returned.
func TestRalForgetsIdleKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		workloads, err := Select(Standard(0.02), []string{"memory"})
		require.NoError(t, err)
		results := ran(t, quick(), workloads, XsyncMap(), Ral()).Workloads[0].Results
		yardstick, ral := results[0].Memory, results[1].Memory
		assert.Zero(t, yardstick.Idle, "a yardstick forgets nothing")
		assert.Equal(t, minIdle, ral.Idle)
		assert.Positive(t, ral.BytesPerKey)
		assert.Less(t, ral.IdleShare(), 0.5)
	})
}

func TestRalByItsClocks(t *testing.T) {
	setup := Setup{Limit: Limit{Capacity: 1, Count: 1, Per: time.Hour}, MaxKeys: 10}
	clock := func(c Contender) string {
		l, err := c.New(setup)
		require.NoError(t, err)
		defer l.Close()
		assert.Equal(t, 1, l.Ask([]string{"a", "a"}), c.Name)
		return l.Counts().clock
	}
	assert.Equal(t, "package time", clock(RalPackageTime()))
	assert.Contains(t, []string{"counter", "package time"}, clock(Ral()))
}
