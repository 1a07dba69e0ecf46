package compare

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/reporttest"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
)

// rowOf returns the row of a contender's measure in the first workload.
func rowOf(t *testing.T, c Comparison, contender, measure string) Row {
	t.Helper()
	require.NotEmpty(t, c.Tasks)
	for _, r := range c.Tasks[0].Rows {
		if r.Contender == contender && r.Measure == measure {
			return r
		}
	}
	t.Fatalf("no %s of %s", measure, contender)
	return Row{}
}

func TestSlowerMachineIsNoWorseLimiter(t *testing.T) {
	floor, ral := []float64{50, 51, 52, 53, 54}, []float64{100, 101, 102, 103, 104}
	twice := func(values []float64) (more []float64) {
		for _, v := range values {
			more = append(more, 2*v)
		}
		return more
	}
	c := Runs("old", reporttest.Made(floor, ral), reporttest.Made(twice(floor), twice(ral)))
	for _, measure := range []string{"ops/s", "ns/op", "p50", "p99", "p99.9"} {
		r := rowOf(t, c, "Ral", measure)
		assert.Equal(t, noise, r.Verdict, measure)
		assert.InDelta(t, 1, r.OfBase, 0.02, measure)
		assert.Equal(t, onlyMachine, rowOf(t, c, "xsync map", measure).Verdict)
	}
	assert.InDelta(t, 2, rowOf(t, c, "Ral", "ns/op").Ratio, 0.01)
	assert.InDelta(t, 0.5, rowOf(t, c, "Ral", "ops/s").Ratio, 0.01)

	// Without a yardstick the machine cannot be told from the limiter.
	c = Runs("old", reporttest.Made(nil, ral), reporttest.Made(nil, twice(ral)))
	assert.Equal(t, Worse, rowOf(t, c, "Ral", "ns/op").Verdict)
	assert.Equal(t, Worse, rowOf(t, c, "Ral", "ops/s").Verdict, "fewer calls a second")
	assert.True(t, math.IsNaN(rowOf(t, c, "Ral", "ns/op").OfBase))
}

func TestImprovementIsFound(t *testing.T) {
	floor := []float64{50, 51, 52, 53, 54}
	c := Runs("old", reporttest.Made(floor, []float64{100, 101, 102, 103, 104}), reporttest.Made(floor, []float64{80, 81, 82, 83, 84}))
	for _, measure := range []string{"ops/s", "ns/op", "p50", "p99", "p99.9"} {
		assert.Equal(t, Better, rowOf(t, c, "Ral", measure).Verdict, measure)
	}
	assert.Equal(t, "5 better.", c.Summary())
	assert.Contains(t, c.Changes(), Change{Better, "hot-pass (2 CPUs), Ral: ns/op 82.0, was 102; beside the xsync map -20%, p 0.008"})
	assert.Equal(t, []string{"Ral", "ns/op", "102", "82.0", "0.80", "0.80", "0.008", "BETTER"}, rowOf(t, c, "Ral", "ns/op").Cells())
}

func TestTailIsJudgedBySpeedAndTailOfTheYardstick(t *testing.T) {
	old := reporttest.Made([]float64{50, 51, 52, 53, 54}, []float64{100, 101, 102, 103, 104})
	new := reporttest.Made([]float64{50, 51, 52, 53, 54}, []float64{100, 101, 102, 103, 104})
	// All tails are worse, the yardstick's as well: other load was at work.
	for _, r := range new.Workloads[0].Results {
		for i := range r.LatencyRounds {
			r.LatencyRounds[i].P99 *= 10
		}
	}
	r := rowOf(t, Runs("old", old, new), "Ral", "p99")
	assert.Equal(t, noise, r.Verdict)
	assert.InDelta(t, 10, r.Ratio, 0.01)
}

func TestTooFewRoundsAreNotJudged(t *testing.T) {
	c := Runs("old", reporttest.Made([]float64{50, 50, 50}, []float64{100, 100, 100}), reporttest.Made([]float64{50, 50, 50}, []float64{300, 300, 300}))
	r := rowOf(t, c, "Ral", "ns/op")
	assert.Equal(t, tooFew, r.Verdict)
	assert.InDelta(t, 3, r.Ratio, 0.01)
}

func TestMemoryIsComparedButNotTested(t *testing.T) {
	memory := func(bytesPerKey float64) report.Document {
		d := reporttest.Made(nil, nil)
		d.Workloads[0].Results[0].Memory = &bench.Memory{Keys: 10, BytesPerKey: bytesPerKey, GC: time.Millisecond, IdleHeap: 2048}
		return d
	}
	c := Runs("old", memory(100), memory(150))
	assert.Equal(t, singleUp, rowOf(t, c, "Ral", "B/key").Verdict)
	assert.Equal(t, single, rowOf(t, c, "Ral", "GC").Verdict)
	assert.Equal(t, []string{"Ral", "idle heap", "2.00 KiB", "2.00 KiB", "1.00", "-", "-", "about the same, one figure each"},
		rowOf(t, c, "Ral", "idle heap").Cells())
}

func TestDifferencesOfMachineAndSettingsAreListed(t *testing.T) {
	old, new := reporttest.Made(nil, []float64{1, 2, 3, 4}), reporttest.Made(nil, []float64{1, 2, 3, 4})
	old.Machine = report.Machine{CPU: "fast", Cores: 8, GOMAXPROCS: 8, OS: "linux", Arch: "amd64", Go: "go1.25"}
	new.Machine = report.Machine{CPU: "slow", Cores: 2, GOMAXPROCS: 2, OS: "darwin", Arch: "arm64", Go: "go1.26", GOGC: "50"}
	old.Settings = report.Settings{Duration: time.Second, Rounds: 5, Scale: 1}
	new.Settings = report.Settings{Duration: time.Minute, Rounds: 7, Scale: 0.5}
	old.Interrupted = true
	notes := strings.Join(Runs("old", old, new).Notes, "\n")
	for _, want := range []string{
		"DIFFERENT MACHINE, processor: fast before, slow now", "cores: 8 before, 2 now", "linux/amd64 before, darwin/arm64 now",
		"Go version: go1.25 before, go1.26 now", "GOGC: unset before, 50 now", "duration of a turn: 1s before, 1m0s now",
		"rounds: 5 before, 7 now", "scale: 1 before, 0.5 now", "earlier run was interrupted",
	} {
		assert.Contains(t, notes, want)
	}
	assert.Equal(t, []string{"the earlier run was interrupted", "the later run was interrupted"}, Runs("old", old, old).Notes)
}

func TestOtherSettingsAreShownButNotJudged(t *testing.T) {
	old, new := reporttest.Made(nil, []float64{1, 2, 3, 4}), reporttest.Made(nil, []float64{10, 20, 30, 40})
	new.Workloads[0].Keys = 1000
	new.Workloads[0].Limit = bench.Limit{Capacity: 5, Count: 1, Per: time.Second}
	c := Runs("old", old, new)
	assert.Equal(t, otherTask, rowOf(t, c, "Ral", "ns/op").Verdict)
	assert.Contains(t, c.Tasks[0].Notes, "keys: 1 before, 1000 now")
	assert.Len(t, c.Tasks[0].Notes, 2)

	// A limit that is found by measuring is another one each time.
	for _, d := range []report.Document{old, new} {
		d.Workloads[0].Name, d.Workloads[0].Keys = "zipf", 1
	}
	assert.Empty(t, Runs("old", old, new).Tasks[0].Notes)
	new.Workloads[0].Results[0].RefusedShare = 0.5
	assert.Contains(t, Runs("old", old, new).Tasks[0].Notes[0], "0% before, 50% now")
}

func TestDifferencesNameWhatOnlyOneRunHas(t *testing.T) {
	old, new := reporttest.Made([]float64{1}, []float64{1}), reporttest.Made(nil, []float64{1})
	other := new.Workloads[0]
	other.CPU = 4
	new.Workloads = append(new.Workloads, other)
	c := Runs("old", old, new)
	assert.Len(t, c.Tasks, 1, "with 2 CPUs")
	assert.Contains(t, c.Notes, "only in the earlier run: xsync map in hot-pass (2 CPUs)")
	assert.Contains(t, c.Notes, "only in the later run: hot-pass (4 CPUs)")

	new.Workloads = new.Workloads[1:]
	assert.Empty(t, Runs("old", old, new).Tasks)
}

func TestRunComparedWithItselfHasNotChanged(t *testing.T) {
	d, _ := reporttest.Runs(t)
	c := Runs("itself", d, d)
	assert.Empty(t, c.Notes)
	assert.Empty(t, c.Changes())
	assert.Len(t, c.Tasks, len(d.Workloads))
	for _, task := range c.Tasks {
		assert.Empty(t, task.Notes, task.Name)
		for _, r := range task.Rows {
			assert.InDelta(t, 1, r.Ratio, 1e-9, "%s, %s", r.Contender, r.Measure)
		}
	}
}

func TestTwoRunsOfTheSameHardlyDiffer(t *testing.T) {
	d, old := reporttest.Runs(t)
	c := Runs("old", old, d)
	n := TallyOf(c.Tasks...)
	assert.Greater(t, n.Noise, 200)
	assert.Less(t, n.Better+n.Worse, n.Noise/10)
}
