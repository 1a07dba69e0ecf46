package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
)

// made is a run of one workload: for each contender how many nanoseconds of
// processor time a call took in each round.
func made(floor, ral []float64) document {
	result := func(name string, isFloor bool, costs []float64) bench.Result {
		r := bench.Result{Contender: name, IsFloor: isFloor}
		for _, ns := range costs {
			took := time.Duration(1000 * ns)
			r.Rounds = append(r.Rounds, bench.Pass{Calls: 1000, CPU: took, Elapsed: took})
			p := time.Duration(ns)
			r.LatencyRounds = append(r.LatencyRounds, bench.Latency{Calls: 1, P50: p, P99: 2 * p, P999: 3 * p})
		}
		return r
	}
	w := bench.WorkloadReport{Name: "hot-pass", CPU: 2, Keys: 1, Results: []bench.Result{result("Ral Exact", false, ral)}}
	if floor != nil {
		w.Results = append(w.Results, result("floor", true, floor))
	}
	return document{Schema: schema, Report: bench.Report{Workloads: []bench.WorkloadReport{w}}}
}

// rowOf returns the row of a contender's measure in the first workload.
func rowOf(t *testing.T, c comparison, contender, measure string) row {
	t.Helper()
	require.NotEmpty(t, c.Tasks)
	for _, r := range c.Tasks[0].Rows {
		if r.Contender == contender && r.Measure == measure {
			return r
		}
	}
	t.Fatalf("no %s of %s", measure, contender)
	return row{}
}

func TestSlowerMachineIsNoWorseLimiter(t *testing.T) {
	floor, ral := []float64{50, 51, 52, 53, 54}, []float64{100, 101, 102, 103, 104}
	twice := func(values []float64) (more []float64) {
		for _, v := range values {
			more = append(more, 2*v)
		}
		return more
	}
	c := compare("old", made(floor, ral), made(twice(floor), twice(ral)))
	for _, measure := range []string{"ops/s", "ns/op", "p50", "p99", "p99.9"} {
		r := rowOf(t, c, "Ral Exact", measure)
		assert.Equal(t, noise, r.Verdict, measure)
		assert.InDelta(t, 1, r.OfFloor, 0.02, measure)
		assert.Equal(t, onlyMachine, rowOf(t, c, "floor", measure).Verdict)
	}
	assert.InDelta(t, 2, rowOf(t, c, "Ral Exact", "ns/op").Ratio, 0.01)
	assert.InDelta(t, 0.5, rowOf(t, c, "Ral Exact", "ops/s").Ratio, 0.01)

	// Without a floor nobody can tell the machine from the limiter.
	c = compare("old", made(nil, ral), made(nil, twice(ral)))
	assert.Equal(t, worse, rowOf(t, c, "Ral Exact", "ns/op").Verdict)
	assert.Equal(t, worse, rowOf(t, c, "Ral Exact", "ops/s").Verdict, "fewer calls a second")
	assert.True(t, math.IsNaN(rowOf(t, c, "Ral Exact", "ns/op").OfFloor))
}

func TestWhatBecameBetterIsSaid(t *testing.T) {
	floor := []float64{50, 51, 52, 53, 54}
	c := compare("old", made(floor, []float64{100, 101, 102, 103, 104}), made(floor, []float64{80, 81, 82, 83, 84}))
	for _, measure := range []string{"ops/s", "ns/op", "p50", "p99", "p99.9"} {
		assert.Equal(t, better, rowOf(t, c, "Ral Exact", measure).Verdict, measure)
	}
	var b bytes.Buffer
	require.NoError(t, c.write(&b))
	assert.Contains(t, b.String(), "5 better.")
	assert.Contains(t, b.String(), "Mann-Whitney U test")
	assert.Regexp(t, `BETTER +hot-pass \(2 CPUs\), Ral Exact: ns/op 82\.0, was 102; beside the floor -20%, p 0\.008`, b.String())
	assert.Regexp(t, `(?m)^ +ns/op +102 +82\.0 +0\.80 +0\.80 +0\.008 +BETTER`, b.String())
}

func TestTailCountsOnlyIfItChangedAgainstSpeedAndTailOfTheFloor(t *testing.T) {
	old := made([]float64{50, 51, 52, 53, 54}, []float64{100, 101, 102, 103, 104})
	new := made([]float64{50, 51, 52, 53, 54}, []float64{100, 101, 102, 103, 104})
	// All tails are worse, the floor's as well: somebody else was at work.
	for _, r := range new.Workloads[0].Results {
		for i := range r.LatencyRounds {
			r.LatencyRounds[i].P99 *= 10
		}
	}
	r := rowOf(t, compare("old", old, new), "Ral Exact", "p99")
	assert.Equal(t, noise, r.Verdict)
	assert.InDelta(t, 10, r.Ratio, 0.01)
}

func TestTooFewRoundsAreNotJudged(t *testing.T) {
	c := compare("old", made([]float64{50, 50, 50}, []float64{100, 100, 100}), made([]float64{50, 50, 50}, []float64{300, 300, 300}))
	r := rowOf(t, c, "Ral Exact", "ns/op")
	assert.Equal(t, tooFew, r.Verdict)
	assert.InDelta(t, 3, r.Ratio, 0.01)
}

func TestMemoryIsComparedButNotTested(t *testing.T) {
	memory := func(bytesPerKey float64) document {
		d := made(nil, nil)
		d.Workloads[0].Results[0].Memory = &bench.Memory{Keys: 10, BytesPerKey: bytesPerKey, GC: time.Millisecond, IdleHeap: 2048}
		return d
	}
	c := compare("old", memory(100), memory(150))
	assert.Equal(t, singleUp, rowOf(t, c, "Ral Exact", "B/key").Verdict)
	assert.Equal(t, single, rowOf(t, c, "Ral Exact", "GC").Verdict)
	assert.Equal(t, []string{"Ral Exact", "idle heap", "2.00 KiB", "2.00 KiB", "1.00", "-", "-", "about the same, one figure each"},
		rowOf(t, c, "Ral Exact", "idle heap").cells())
}

func TestOtherCircumstancesArePointedOut(t *testing.T) {
	old, new := made(nil, []float64{1, 2, 3, 4}), made(nil, []float64{1, 2, 3, 4})
	old.Machine = machine{CPU: "fast", Cores: 8, GOMAXPROCS: 8, OS: "linux", Arch: "amd64", Go: "go1.25"}
	new.Machine = machine{CPU: "slow", Cores: 2, GOMAXPROCS: 2, OS: "darwin", Arch: "arm64", Go: "go1.26", GOGC: "50"}
	old.Settings = recorded{Duration: time.Second, Rounds: 5, Scale: 1}
	new.Settings = recorded{Duration: time.Minute, Rounds: 7, Scale: 0.5}
	old.Interrupted = true
	notes := strings.Join(compare("old", old, new).Notes, "\n")
	for _, want := range []string{
		"DIFFERENT MACHINE, processor: fast before, slow now", "cores: 8 before, 2 now", "linux/amd64 before, darwin/arm64 now",
		"Go version: go1.25 before, go1.26 now", "GOGC: unset before, 50 now", "duration of a turn: 1s before, 1m0s now",
		"rounds: 5 before, 7 now", "scale: 1 before, 0.5 now", "earlier run was interrupted",
	} {
		assert.Contains(t, notes, want)
	}
	assert.Equal(t, []string{"the earlier run was interrupted", "the later run was interrupted"}, compare("old", old, old).Notes)
}

func TestOtherWorkIsShownButNotJudged(t *testing.T) {
	old, new := made(nil, []float64{1, 2, 3, 4}), made(nil, []float64{10, 20, 30, 40})
	new.Workloads[0].Keys = 1000
	new.Workloads[0].Limit = bench.Limit{Capacity: 5, Count: 1, Per: time.Second}
	c := compare("old", old, new)
	assert.Equal(t, otherTask, rowOf(t, c, "Ral Exact", "ns/op").Verdict)
	assert.Contains(t, c.Tasks[0].Notes, "keys: 1 before, 1000 now")
	assert.Len(t, c.Tasks[0].Notes, 2)

	// A limit that is found by measuring is another one each time.
	for _, d := range []document{old, new} {
		d.Workloads[0].Name, d.Workloads[0].Keys = "zipf", 1
	}
	assert.Empty(t, compare("old", old, new).Tasks[0].Notes)
	new.Workloads[0].Results[0].RefusedShare = 0.5
	assert.Contains(t, compare("old", old, new).Tasks[0].Notes[0], "0% before, 50% now")
}

func TestWhatOnlyOneRunHasIsNamed(t *testing.T) {
	old, new := made([]float64{1}, []float64{1}), made(nil, []float64{1})
	other := new.Workloads[0]
	other.CPU = 4
	new.Workloads = append(new.Workloads, other)
	c := compare("old", old, new)
	assert.Len(t, c.Tasks, 1, "with 2 CPUs")
	assert.Contains(t, c.Notes, "only in the earlier run: floor in hot-pass (2 CPUs)")
	assert.Contains(t, c.Notes, "only in the later run: hot-pass (4 CPUs)")

	new.Workloads = new.Workloads[1:]
	var b bytes.Buffer
	require.NoError(t, compare("old", old, new).write(&b))
	assert.Contains(t, b.String(), "nothing in common")
}

func TestRunComparedWithItselfHasNotChanged(t *testing.T) {
	d, _ := fixtures(t)
	c := compare("itself", d, d)
	assert.Empty(t, c.Notes)
	assert.Empty(t, c.changes())
	assert.Len(t, c.Tasks, len(d.Workloads))
	for _, task := range c.Tasks {
		assert.Empty(t, task.Notes, task.Name)
		for _, r := range task.Rows {
			assert.InDelta(t, 1, r.Ratio, 1e-9, "%s, %s", r.Contender, r.Measure)
		}
	}
}

func TestTwoRunsOfTheSameHardlyDiffer(t *testing.T) {
	d, old := fixtures(t)
	c := compare("old", old, d)
	n := tallyOf(c.Tasks)
	assert.Greater(t, n.Noise, 200)
	assert.Less(t, n.Better+n.Worse, n.Noise/10)
}
