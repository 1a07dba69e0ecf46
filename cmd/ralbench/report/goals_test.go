package report

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
)

// call returns a result of a call of Ral, not compared with other calls.
func call(name, like string, ns float64) bench.Result {
	r := limiter(name, ns)
	r.Apart, r.Like = true, like
	return r
}

func verbsRun(peek, wait float64) Document {
	return run(bench.WorkloadReport{Name: bench.VerbsWorkload, Base: ral, Results: []bench.Result{
		call("Ral", "", 50), call("Ral Peek", "", peek), call("Ral Wait", "", wait), call("x/time Wait", "Ral Wait", 100),
	}})
}

func TestGoalsAreMetOrMissed(t *testing.T) {
	d := verbsRun(55, 100) // Peek within its goal of 1.2, Wait beyond its goal of 1.6
	var rows [][]string
	for _, r := range GoalTable(d).Rows {
		rows = append(rows, r.Cells)
	}
	assert.Equal(t, [][]string{
		{"verbs", "Ral Peek", "ns/op, times Ral's", "1.10", "at most 1.20", "yes"},
		{"verbs", "Ral Wait", "ns/op, times Ral's", "2.00", "at most 1.60", "NO"},
	}, rows)
	assert.Equal(t, "1 of 2 reached.", GoalSummary(d))
}

func TestRalIsNoPeerOfItself(t *testing.T) {
	r := bench.WorkloadReport{Name: "uniform"}
	for name, tail := range map[string]time.Duration{"Ral": 60, "Ral package time": 40, "juju+xsync": 100} {
		l := limiter(name, float64(tail))
		l.Latency = &bench.Latency{P999: tail}
		r.Results = append(r.Results, l)
	}
	goals := Goals(run(r))
	require.Len(t, goals, 1)
	assert.Equal(t, "juju+xsync", goals[0].Of)
	assert.InDelta(t, 0.6, goals[0].Value, 1e-9)
	assert.Empty(t, losses(run(r)))
}

func TestGoalsAreOfContendersThatThereAre(t *testing.T) {
	for _, g := range goals {
		if g.contender == ral && g.of != ral {
			continue
		}
		for contender, workload := range map[string]string{g.contender: g.workload, g.of: max(g.ofIn, g.workload)} {
			found := contender == ""
			for _, c := range bench.RalCalls() {
				for _, name := range c.For {
					found = found || c.Name == contender && name == workload
				}
			}
			assert.True(t, found, "%s in %s", contender, workload)
		}
	}
}

func TestRefusalIsAMultipleOfACallThatPasses(t *testing.T) {
	d := run(
		bench.WorkloadReport{Name: bench.SeveralWorkload, Base: ral, Results: []bench.Result{call("Ral", "", 50)}},
		bench.WorkloadReport{Name: bench.SeveralRefusedWorkload, Base: ral, Results: []bench.Result{call("Ral", "", 25), call("Ral Tiered", "", 100)}},
	)
	all := Goals(d)
	require.Len(t, all, 1)
	assert.Equal(t, bench.SeveralRefusedWorkload, all[0].Workload)
	assert.InDelta(t, 2, all[0].Value, 1e-9)
	assert.True(t, HasGoal(bench.SeveralWorkload))
	assert.False(t, HasGoal("audit-hot"))
}

func TestAllocationsOfTheBackgroundMissNoGoal(t *testing.T) {
	r := call("Ral TakeAll", "", 50)
	r.AllocsPerOp = bench.Spread{Median: 2.04}
	d := run(bench.WorkloadReport{Name: bench.SeveralWorkload, Results: []bench.Result{r}})
	all := Goals(d)
	require.Len(t, all, 1)
	assert.True(t, all[0].Reached())
	d.Workloads[0].Results[0].AllocsPerOp.Median = 2.06
	assert.False(t, Goals(d)[0].Reached())
}

// Different calls have no best; a peer is compared with the row of its kind.
func TestVerdictComparesCallsWithTheirLikes(t *testing.T) {
	d := verbsRun(300, 120)
	assert.Equal(t, "verbs (Wait ns/op 120, x/time Wait 100).", lineOf(d, "Where Ral loses").Text)
	for _, row := range Cells(Columns, d.Workloads[0].Results) {
		assert.NotContains(t, strings.Join(row, ""), Mark)
	}
	assert.Empty(t, losses(verbsRun(300, 100)))
	d.Workloads[0].Results[3].Audit.Over = 1
	assert.Empty(t, lineOf(d, "Where Ral loses").Text, "it broke its promise, and there is no other")
}

func TestVerdictNamesSomeOfManyMissedGoals(t *testing.T) {
	w := bench.WorkloadReport{Name: bench.LimitsTakeWorkload, Base: ral, Results: []bench.Result{call("Ral", "", 1)}}
	for _, name := range []string{"Take", "AtMost", "Bursty", "FixedWindow", "Queue", "SlidingWindow", "WarmingUp"} {
		w.Results = append(w.Results, call("Ral "+name, "", 100))
	}
	v := verbsRun(300, 300).Workloads[0]
	assert.Equal(t, "0 of 9 reached.", GoalSummary(run(w, v)))
	text := lineOf(run(w, v), "Missed goals").Text
	assert.True(t, strings.HasSuffix(text, "; and 1 more, which -goals lists."), text)
}
