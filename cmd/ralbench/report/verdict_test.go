package report

import (
	"fmt"
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
	for _, v := range append(VerdictOf(d), Shortfalls(d)...) {
		if v.Title == title {
			return v
		}
	}
	return Verdict{}
}

func TestShortfallsNameTheLossesOfRal(t *testing.T) {
	queued := limiter("Ral Queued", 1)
	queued.Exact = false
	d := run(
		bench.WorkloadReport{Name: "hot-pass", Results: []bench.Result{yardstick(50), limiter("Ral", 50), limiter("a", 100), queued}},
		bench.WorkloadReport{Name: "uniform", Results: []bench.Result{limiter("Ral", 60), limiter("a", 80)}},
		bench.WorkloadReport{Name: "flood", Results: []bench.Result{limiter("Ral", 90), limiter("a", 60), limiter("b", 70)}},
		bench.WorkloadReport{Name: "flood-full", Results: []bench.Result{limiter("Ral", 90)}},
	)
	assert.Equal(t, "flood (ns/op 90.0, a 60.0; p99.9 270ns, a 180ns).", lineOf(d, "Where Ral loses").Text)

	d = run(d.Workloads[:2]...)
	assert.Empty(t, lineOf(d, "Where Ral loses").Text)
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

	a := d.Workloads[0].Results[1].Audit
	a.Over, a.OverPasses, a.Passes = 3, 3, 12
	assert.Contains(t, AuditLine(*a), ": 3 TOO MANY, 3 of 12 passes")
	v = lineOf(d, "Promises")
	assert.False(t, v.Bad, "the promise is not Ral's")
	assert.Empty(t, Audits(d).Broken)
	assert.Equal(t, "Ral kept its own in all of its audits. Exact by design, a admits more than its limit: hot-refused (2 CPUs), 3 of 12 passes.", v.Text)

	d.Workloads[0].Results[0].Audit.Over = 1
	v = lineOf(d, "Promises")
	assert.True(t, v.Bad)
	assert.Contains(t, v.Text, "BROKEN by Ral: Ral admits more than its limit: hot-refused (2 CPUs). Exact by design, a admits")

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
	d.Workloads[1].Results[0].Rounds, d.Workloads[1].Results[0].Disturbed = d.Workloads[1].Results[0].Rounds[:1], 1
	d.Workloads[0].Results[2].Disturbed = 2
	assert.Equal(t, "2 of 4 reached.", lineOf(d, "Goals").Text)
	assert.Equal(t, "hot-pass, ns/op 0.55 of x/time+sync.Map's (goal 0.50; 2 of 6 rounds disturbed); growth, worst 9.00ms (goal 5.00ms; from a single disturbed round).",
		lineOf(d, "Missed goals").Text)
	assert.Equal(t, "NO; from a single disturbed round", GoalTable(d).Rows[3].Cells[5])
	d.Interrupted = true
	assert.Equal(t, fmt.Sprintf("2 of 4 reached; %d others NOT MEASURED; the run was INTERRUPTED.", len(goals)-4), lineOf(d, "Goals").Text)
	assert.False(t, lineOf(d, "Goals").Good)
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
	assert.Equal(t, "the machine was quiet enough for these figures: other load disturbed 0 of 3 passes.", lineOf(d, "Trust").Text)
	d.Workloads[0].Results[0].Disturbed = 2
	assert.Contains(t, lineOf(d, "Trust").Text, "TOO BUSY for these figures: other load disturbed 2 of 3 passes")
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
		"The budget of 1m0s CUT ROUNDS in uniform: -budget 0, or -full, measures them all. NO TIME was left in growth for a and b. NO TIME was left for zipf.")

	d.Settings.CPUs = []int{1, 2}
	assert.Contains(t, lineOf(d, "Trust").Text, "left in growth (2 CPUs) for")
	d.Interrupted = true
	assert.NotContains(t, lineOf(d, "Trust").Text, "CUT", "the user ended it")
}

func TestFirstScreenComparesRalWithEachPeer(t *testing.T) {
	inexact, broken, again, queued := limiter("inexact", 40), limiter("broken", 50), limiter("a", 60), limiter("Ral Queued", 1)
	inexact.Exact, broken.Audit.Over, again.Rounds[0].CPU = false, 1, 1000
	d := run(
		bench.WorkloadReport{Name: "hot-pass", CPU: 1, Results: []bench.Result{limiter("Ral", 1), limiter("a", 60)}},
		bench.WorkloadReport{Name: "hot-pass", CPU: 2, Results: []bench.Result{yardstick(50), limiter("Ral", 50), queued, limiter("a", 100), limiter("b", 80), inexact, broken}},
		bench.WorkloadReport{Name: "uniform", CPU: 2, Results: []bench.Result{limiter("Ral", 50), again}},
		bench.WorkloadReport{Name: "alone", CPU: 2, Results: []bench.Result{limiter("Ral", 50), inexact}},
	)
	table, _ := Beside(d)
	rows := [][]string{table.Columns}
	for _, r := range table.Rows {
		rows = append(rows, r.Cells)
	}
	assert.Equal(t, [][]string{
		{"peer", "hot-pass", "uniform"},
		{"a", "0.50", "0.83?"},
		{"b", "0.62", "-"},
		{"inexact ~", "1.25", "-"},
		{"broken", "1.00!", "-"},
	}, rows)
	first := FirstScreen(d)
	assert.Equal(t, Verdict{Title: "Ral", Text: "a call takes, of the best peer's processor time, 0.62 in hot-pass (b) and 0.83? in uniform (a)."}, first[0])
	assert.Equal(t, "Trust", first[1].Title)
	assert.Len(t, FirstScreen(run(d.Workloads[3])), 1, "no peer, no sentence")
}

func TestMissingRoundsAreNotClaimed(t *testing.T) {
	of := func(planned, measured int) bench.WorkloadReport {
		w := bench.WorkloadReport{Name: "uniform", Rounds: planned, Results: []bench.Result{limiter("Ral", 1)}}
		w.Results[0].Rounds = make([]bench.Pass, measured)
		return w
	}
	text := func(w ...bench.WorkloadReport) string {
		d := run(w...)
		d.Settings.Rounds = 5
		return RoundsText(d)
	}
	assert.Equal(t, "medians of 5 rounds", text(of(5, 5), of(1, 1)), "growth has one by plan")
	assert.Equal(t, "up to 5 rounds (fewer in 1 workload: "+MoreRounds+")", text(of(5, 5), of(5, 1)))
	assert.Equal(t, "medians of 5 rounds", text(), "nothing was measured")
}
