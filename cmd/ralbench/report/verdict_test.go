package report

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/bench"
)

// limiter returns a result of three rounds at so many nanoseconds a call on one processor.
func limiter(name string, ns float64) bench.Result {
	r := bench.Result{
		Contender: name, Exact: true, Promise: bench.TokenBucket,
		OpsPerSecond: bench.SpreadOf([]float64{1e9 / ns}), NsPerOp: bench.SpreadOf([]float64{ns}),
		Audit:   &bench.Audit{Calls: 9, Admitted: 5, Allowed: 5, BucketAllowed: 5, Possible: 5, Binds: true},
		Latency: &bench.Latency{P999: time.Duration(3 * ns), Worst: time.Duration(9 * ns)},
	}
	for range 3 {
		r.Rounds = append(r.Rounds, bench.Pass{Calls: 1000, CPU: time.Duration(1000 * ns), Elapsed: time.Duration(1000 * ns)})
	}
	return r
}

func yardstick(ns float64) bench.Result {
	r := limiter("xsync map", ns)
	r.Yardstick, r.Exact, r.Promise, r.Audit = bench.YardstickMap, false, "", nil
	return r
}

func run(workloads ...bench.WorkloadReport) Document {
	return Document{Settings: Settings{Scale: 1, CPUs: []int{2}}, Report: bench.Report{Watched: true, Workloads: workloads}}
}

// lineOf returns a line of a verdict, empty if there is none.
func lineOf(d Document, title string) Verdict {
	for _, v := range VerdictOf(d) {
		if v.Title == title {
			return v
		}
	}
	return Verdict{}
}

func TestVerdictNamesTheFastestAndTheLossesOfRal(t *testing.T) {
	queued := limiter("Ral Queued", 1)
	queued.Exact = false
	d := run(
		bench.WorkloadReport{Name: "hot-pass", Results: []bench.Result{yardstick(50), limiter("Ral", 50), limiter("a", 100), queued}},
		bench.WorkloadReport{Name: "uniform", Results: []bench.Result{limiter("Ral", 60), limiter("a", 80)}},
		bench.WorkloadReport{Name: "flood", Results: []bench.Result{limiter("Ral", 90), limiter("a", 60), limiter("b", 70)}},
		bench.WorkloadReport{Name: "flood-full", Results: []bench.Result{limiter("Ral", 90)}},
	)
	assert.Equal(t, "Ral in hot-pass and uniform; a in flood.", lineOf(d, "Most calls a second").Text)
	assert.Equal(t, "flood (ns/op 90.0, a 60.0; p99.9 270ns, a 180ns).", lineOf(d, "Where Ral loses").Text)

	d = run(d.Workloads[:2]...)
	assert.Equal(t, "nowhere clearly, among the limiters of this run.", lineOf(d, "Where Ral loses").Text)
	assert.Empty(t, lineOf(run(d.Workloads[0]), "none").Text)
	assert.Empty(t, VerdictOf(Document{}))
	assert.NotEmpty(t, VerdictOf(run(bench.WorkloadReport{Name: "memory", Results: []bench.Result{{Contender: "Ral", Exact: true}, {Contender: "a", Exact: true}}})),
		"results without rounds")
}

func TestVerdictNamesTheBrokenPromises(t *testing.T) {
	d := run(bench.WorkloadReport{Name: "hot-refused", CPU: 2, Results: []bench.Result{limiter("Ral", 1), limiter("a", 1)}})
	v := lineOf(d, "Promises")
	assert.True(t, v.Good)
	assert.Contains(t, v.Text, "each limiter that is exact by its own design kept its promise, in all 2 audits")

	d.Workloads[0].Results[1].Audit.Over = 3
	v = lineOf(d, "Promises")
	assert.True(t, v.Bad)
	assert.Contains(t, v.Text, "BROKEN in 1 audit, by limiters that are exact by their own design: a in hot-refused (2 CPUs).")
	assert.Contains(t, v.Text, "Ral kept its own")
	assert.NotContains(t, lineOf(d, "Most calls a second").Text, "a in", "it is not compared")

	d.Workloads[0].Results[0].Audit.Over = 1
	assert.NotContains(t, lineOf(d, "Promises").Text, "Ral kept its own")

	d.Workloads[0].Results = d.Workloads[0].Results[1:]
	d.Workloads[0].Results[0].Exact = false
	v = lineOf(d, "Promises")
	assert.False(t, v.Bad)
	assert.Contains(t, v.Text, "Inexact by design, and above their limits: a.")
	assert.Contains(t, v.Text, "no audit could find anything")
}

func TestVerdictCountsGoals(t *testing.T) {
	d := run(
		bench.WorkloadReport{Name: "hot-pass", Results: []bench.Result{yardstick(50), limiter("Ral", 55), limiter("x/time+sync.Map", 100)}},
		bench.WorkloadReport{Name: "growth", Results: []bench.Result{limiter("Ral", 1e6)}},
		bench.WorkloadReport{Name: "uniform", Results: []bench.Result{limiter("Ral", 50), limiter("slow", 200), limiter("quick", 100)}},
	)
	d.Workloads[2].Results[0].OpsPerSecond = bench.Spread{}
	assert.Equal(t, "2 of 4 reached. Missed: hot-pass, ns/op 0.55 of x/time+sync.Map's (goal 0.50); growth, worst 9.00ms (goal 5.00ms).",
		lineOf(d, "Goals").Text)
	goals := Goals(d)
	assert.Equal(t, "quick", goals[2].Of, "the best peer, by the figure itself")
	assert.InDelta(t, 0.5, goals[2].Value, 1e-9)
	assert.Len(t, GoalTable(d).Rows, 4)
	assert.Empty(t, lineOf(run(bench.WorkloadReport{Name: "other", Results: []bench.Result{limiter("Ral", 1)}}), "Goals").Text)
}

// A machine that slows down during a run does not matter.
func TestGoalsCompareWithinRounds(t *testing.T) {
	mine, other := limiter("Ral", 50), limiter("go-limiter", 100)
	for i := range 3 {
		mine.Rounds[i].CPU *= time.Duration(1 + 10*i)
		other.Rounds[i].CPU *= time.Duration(1 + 10*i)
	}
	goals := Goals(run(bench.WorkloadReport{Name: "hot-refused", Results: []bench.Result{mine, other}}))
	assert.InDelta(t, 0.5, goals[0].Value, 1e-9)
	assert.True(t, goals[0].Reached())
}

func TestVerdictSaysHowFarToTrustTheFigures(t *testing.T) {
	d := run(bench.WorkloadReport{Name: "uniform", Results: []bench.Result{limiter("Ral", 1)}})
	assert.Equal(t, "no other load disturbed any pass.", lineOf(d, "Trust").Text)
	d.Workloads[0].Results[0].Disturbed = 2
	assert.Contains(t, lineOf(d, "Trust").Text, "DISTURBED 2 of 3 passes")
	d.Workloads[0].Results[0].Rounds = d.Workloads[0].Results[0].Rounds[:1]
	d.Settings.Scale = 0.1
	text := lineOf(d, "Trust").Text
	assert.Contains(t, text, "one round only")
	assert.Contains(t, text, "SCALED")
	d.Watched = false
	assert.True(t, strings.HasPrefix(lineOf(d, "Trust").Text, "this system does not tell"))
}

func TestVerdictNamesTheWorkloadsThatTheBudgetCut(t *testing.T) {
	d := run(bench.WorkloadReport{Name: "uniform", Results: []bench.Result{limiter("Ral", 1)}})
	d.Settings.Budget = time.Minute
	d.Workloads[0].Rounds = len(d.Workloads[0].Results[0].Rounds) + 1
	d.LeftOut = []bench.LeftOut{
		{Workload: "zipf", CPU: 2, Contenders: []string{"Ral", "a", "b"}},
		{Workload: "growth", CPU: 2, Contenders: []string{"a", "b"}},
	}
	d.Workloads = append(d.Workloads, bench.WorkloadReport{Name: "growth", CPU: 2})
	assert.Contains(t, lineOf(d, "Trust").Text,
		"The budget of 1m0s CUT ROUNDS in uniform. NO TIME was left in growth for a and b. NO TIME was left for zipf.")

	d.Settings.CPUs = []int{1, 2}
	assert.Contains(t, lineOf(d, "Trust").Text, "left in growth (2 CPUs) for")
	d.Interrupted = true
	assert.NotContains(t, lineOf(d, "Trust").Text, "CUT", "the user ended it")
}
