package terminal

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/reporttest"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
)

func written(t *testing.T, d report.Document, width int) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, Write(&b, d, width))
	return b.String()
}

func assertFits(t *testing.T, text string, width int) {
	t.Helper()
	for line := range strings.Lines(text) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), width, line)
	}
}

// Every line fits the terminal, and every figure is there at every width.
func TestOutputFitsTheWidth(t *testing.T) {
	d := reporttest.Run(t)
	for _, w := range d.Workloads {
		for i := range w.Results {
			w.Results[i].OfFloor, w.Results[i].OfBase = w.Results[i].OfMap, w.Results[i].OfMap
		}
	}
	d.Workloads[0].Results[1].Contender = "Ral under a very long name"
	for _, width := range []int{60, 80, 100, 120, 200} {
		shown := written(t, d, width)
		assertFits(t, shown, width)
		for _, w := range d.Workloads {
			for _, column := range report.Columns {
				for _, r := range w.Results {
					assert.Contains(t, shown, column.Show(r))
				}
			}
		}
		for _, column := range report.Columns {
			assert.Contains(t, shown, " "+column.Name+" ", "%d columns wide", width)
		}
	}
}

func TestTextIsWrapped(t *testing.T) {
	long := strings.Repeat("word ", 30)
	for line := range strings.Lines(Wrapped("  lead: ", long, 70)) {
		assert.LessOrEqual(t, len(line), 71)
		assert.Regexp(t, `^(  lead: |        )word`, line)
	}
	assert.Equal(t, "  \n", Wrapped("  ", "", 70))
	assert.Equal(t, "unbreakable"+strings.Repeat("x", 100)+"\n", Wrapped("", "unbreakable"+strings.Repeat("x", 100), 70))
}

func TestProgressIsABarThatEndsAtAHundredPercent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		p := &Progress{out: &b, parts: 2, bar: newBar(&b)}
		// last returns the line as the terminal shows it.
		last := func() string {
			drawn := strings.Split(b.String(), "\r")
			return strings.TrimSuffix(drawn[len(drawn)-1], "\x1b[0K")
		}
		at := bench.Progress{Workload: "zipf", Doing: "preparing keys", Total: time.Minute}
		p.draw(at, 100)
		assert.Equal(t, "   0% |                        |  [0s] zipf  preparing keys ", last(), "nothing is known of the time left")

		time.Sleep(20 * time.Second)
		at.Contender, at.Doing, at.Done = "Ral", "round 1 of 5", 15*time.Second
		p.draw(at, 100)
		assert.Equal(t, "  25% |██████                  |  [20s:1m0s] zipf  Ral  round 1 of 5", last(), "by estimated cost, not by steps")
		p.draw(at, 60)
		assert.Equal(t, "  25% |██████                  |  [20s:1m0s] zipf  Ra", last(), "a longer line would scroll the terminal")

		time.Sleep(time.Minute)
		p.draw(bench.Progress{Doing: "done", Done: time.Minute, Total: time.Minute}, 100)
		assert.Equal(t, " 100% |████████████████████████|  [1m20s] done", last())
		p.End()
		assert.True(t, strings.HasSuffix(b.String(), "done\x1b[0K\n"))
		assert.NotContains(t, b.String(), "\x1b[2K", "a line that is cleared first flickers")

		b.Reset()
		p = &Progress{out: &b, parts: 1, bar: newBar(&b)}
		p.draw(bench.Progress{Workload: "zipf", Done: 30 * time.Second, Total: time.Minute}, 100)
		p.draw(bench.Progress{Doing: "done", Done: 30 * time.Second, Total: time.Minute}, 100)
		p.End()
		assert.Contains(t, b.String(), "  50% |")
		assert.NotContains(t, b.String(), "100%", "the run ended early")
	})
}

func TestProgressWithoutATerminalIsALineForEachWorkload(t *testing.T) {
	var b strings.Builder
	p := NewProgress(&b, 2, true, 0)
	p.Step(bench.Progress{Workload: "zipf", CPU: 2, Total: 90 * time.Second})
	p.Step(bench.Progress{Workload: "zipf", CPU: 2, Contender: "Ral", Total: 90 * time.Second})
	p.Finished(bench.WorkloadReport{Name: "zipf", CPU: 2})
	p.Step(bench.Progress{Doing: "done", Done: time.Second, Total: time.Second})
	p.End()
	assert.Regexp(t, `^ralbench: 90 seconds by estimate, if the machine is quiet\nralbench: zipf/2 \(1 of 2\) \.\.\.\nralbench: zipf/2 took \S+\n$`, b.String())
}

func TestWidthWithoutATerminal(t *testing.T) {
	assert.Equal(t, DefaultWidth, Width(new(strings.Builder)))
	f, err := os.Create(t.TempDir() + "/file")
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	assert.Equal(t, DefaultWidth, Width(f))
}

// Promise: First lines and verdict show a broken promise.
func TestBrokenPromiseIsInTheFirstScreen(t *testing.T) {
	d := reporttest.Run(t)
	d.Workloads[0].Results[len(d.Workloads[0].Results)-1].Audit = &bench.Audit{Admitted: 2, Calls: 2, Allowed: 1, Over: 1, Binds: true, Passes: 9, OverPasses: 4}
	name := d.Workloads[0].Results[len(d.Workloads[0].Results)-1].Contender
	for _, width := range []int{80, 120} {
		shown := written(t, d, width)
		top := strings.Join(strings.Split(shown, "\n")[:8], "\n")
		assert.Contains(t, top, "\n"+name+" admits more than its limit: hot-pass (1 CPU), 4 of 9 passes\n")
		assert.NotContains(t, shown, "BROKEN", "it is the peer's")
		_, verdict, _ := strings.Cut(shown, "\nVerdict\n")
		assert.Contains(t, strings.Join(strings.Fields(verdict), " "), "Exact by design, "+name+" admits more than its limit")
	}
	d = reporttest.Run(t)
	assert.NotContains(t, written(t, d, 100), "admits more than")
	i := slices.IndexFunc(d.Workloads[0].Results, func(r bench.Result) bool { return r.Contender == "Ral" })
	d.Workloads[0].Results[i].Audit = &bench.Audit{Over: 1}
	assert.Contains(t, written(t, d, 100), "\nPROMISE BROKEN: Ral admits more than its limit: hot-pass (1 CPU)\n")
}

func TestEstimateIsNoMoreThanTheBudget(t *testing.T) {
	for most, want := range map[time.Duration]string{
		0:                "ralbench: 90 seconds by estimate, if the machine is quiet",
		85 * time.Second: "ralbench: at most 85 seconds",
		2 * time.Minute:  "ralbench: 90 seconds by estimate, if the machine is quiet, and at most 2 minutes",
	} {
		assert.Equal(t, want, NewProgress(io.Discard, 1, false, most).estimate(90*time.Second))
	}
}
