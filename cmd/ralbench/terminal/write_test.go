package terminal

import (
	"io"
	"os"
	"regexp"
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

func TestTableByItsStructure(t *testing.T) {
	audit := bench.Audit{Calls: 12345, Admitted: 1007, Allowed: 1005, BucketAllowed: 1005, Possible: 1004, Over: 2, Binds: true, Limiters: 1, Own: &bench.Counts{Overadmitted: 3}}
	latency := &bench.Latency{Calls: 9, P50: 47, P99: 1500, P999: 2 * time.Millisecond, Worst: 3 * time.Second}
	one := bench.Spread{Median: 1, Min: 1, Max: 1}
	d := report.Document{Settings: report.Settings{Rounds: 2}, Report: bench.Report{Took: time.Second, Workloads: []bench.WorkloadReport{{
		Name: "some", About: "thing", Keys: 2000, Callers: 1, Rounds: 2,
		Limit: bench.Limit{Capacity: 1000, Count: 1, Per: time.Hour},
		Results: []bench.Result{
			{Contender: "floor", Yardstick: bench.YardstickFloor, Rounds: make([]bench.Pass, 2), OfFloor: &one},
			{Contender: "xsync map", Yardstick: bench.YardstickMap, Rounds: make([]bench.Pass, 2), OfMap: &one},
			{Contender: "Ral", Promise: bench.LeakyBucket, Rounds: make([]bench.Pass, 2), Latency: latency, Known: latency, Audit: &audit,
				OpsPerSecond: bench.Spread{Median: 12.34e6},
				NsPerOp:      bench.Spread{Median: 81, Min: 81, Max: 162}, OfFloor: &bench.Spread{Median: 2.5}, OfMap: &bench.Spread{Median: 1.25}},
		},
	}}}}
	shown := written(t, d, 150)
	lines := strings.Split(shown, "\n")
	find := func(pattern string) string {
		t.Helper()
		for _, line := range lines {
			if regexp.MustCompile(pattern).MatchString(line) {
				return line
			}
		}
		require.Fail(t, "missing", "%s in\n%s", pattern, shown)
		return ""
	}

	find(`^medians of 2 rounds, `)
	find(`^some: thing$`)
	find(`^  each key has the limit funnel 1000, 1/h; 2,000 keys, 1 caller$`)
	names := []string{"contender"}
	for _, c := range report.Columns {
		if c.Name != "x Choke" { // no result has it
			names = append(names, regexp.QuoteMeta(c.Name))
		}
	}
	head := find(`^ ` + strings.Join(names, ` +`) + ` +$`)
	rows := []string{
		find(`^ floor .* 1\.00 .* - +- +- +- `),
		find(`^ xsync map .* 1\.00 .* - +- +- +- `),
		find(`^ Ral ~! +12\.3M .* 81\.0 +±100% +2\.50 +1\.25 .* 47ns +1\.50µs +2\.00ms +3\.00s `),
		find(`^   known keys +47ns +1\.50µs +2\.00ms +3\.00s `),
	}
	for _, row := range rows {
		assert.Equal(t, utf8.RuneCountInString(head), utf8.RuneCountInString(row), "columns stand under their names")
	}
	find(`^  audit Ral +admitted 1,007 of 12,345 calls; at most 1,005 allowed, 1,004 possible: 2 TOO MANY; 3 over-admitted$`)
	find(`^  Ral: audited as leaky bucket$`)
	find(`^Verdict$`)
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

func TestTablesAreSplitBetweenGroups(t *testing.T) {
	names := func(tables [][]report.Column) (all []string) {
		for _, table := range tables {
			var some []string
			for _, c := range table {
				some = append(some, c.Name)
			}
			all = append(all, strings.Join(some, " "))
		}
		return all
	}
	const speed, calls, latencies = "ops/s cpus ns/op spread x floor x map x Choke", "allocs B/op refused", "p50 p99 p99.9 worst"
	assert.Equal(t, []string{speed + " " + calls + " " + latencies}, names(split(report.Columns, nameWidth, 130)))
	assert.Equal(t, []string{speed + " " + calls, latencies}, names(split(report.Columns, nameWidth, 110)))
	assert.Equal(t, []string{speed, calls + " " + latencies}, names(split(report.Columns, nameWidth, 90)))
	assert.Equal(t, []string{"ops/s cpus ns/op spread x floor", "x map x Choke allocs B/op refused", latencies}, names(split(report.Columns, nameWidth, 60)),
		"a group that is too wide is split itself")
	assert.Empty(t, split(nil, nameWidth, 90))
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

func TestAuditsThatFindNothingShareALine(t *testing.T) {
	silent := func(name string) bench.Result {
		return bench.Result{Contender: name, Audit: &bench.Audit{Calls: 5, Admitted: 5, Allowed: 5, BucketAllowed: 5, Possible: 5, Own: &bench.Counts{}}}
	}
	show := func(results ...bench.Result) string {
		p := printer{width: 200}
		p.audits(results)
		return p.String()
	}
	binds, evicts := silent("binds"), silent("evicts")
	binds.Audit.Binds = true
	evicts.Audit.Own.Evicted = 3
	text := show(silent("a"), binds, evicts, silent("b"), bench.Result{Contender: "floor"})
	assert.Equal(t, 3, strings.Count(text, "\n"), text)
	assert.Regexp(t, `audit binds +admitted`, text)
	assert.Contains(t, text, "3 keys evicted")
	assert.Contains(t, text, "all calls passed: a, b\n")
	assert.Contains(t, show(silent("alone")), "admitted 5 of 5 calls")
}

func TestTableShowsMemoryAndDisturbance(t *testing.T) {
	some := func(name string, m bench.Memory) bench.Result {
		return bench.Result{Contender: name, Exact: true, Note: "note of " + name, Rounds: make([]bench.Pass, 3), Disturbed: 1, Repeated: 2, Memory: &m}
	}
	d := report.Document{Report: bench.Report{Workloads: []bench.WorkloadReport{{
		Name: "memory", Rounds: 3, Results: []bench.Result{
			some("keeps", bench.Memory{Keys: 2000, KeyBytes: 40_000, BytesPerKey: 123.4, GC: 12 * time.Millisecond, FullHeap: 246_800, IdleHeap: 246_800}),
			some("idles", bench.Memory{Keys: 2000, KeyBytes: 40_000, BytesPerKey: 150, GC: time.Millisecond, FullHeap: 300_000, IdleHeap: 30_000, Idle: time.Second}),
		},
	}}}}
	shown := written(t, d, 120)
	assert.Contains(t, shown, "heap of 2,000 keys without the 40,000 bytes of their names, and what is left of it after 1s of idling:")
	assert.Regexp(t, `(?m)^ keeps +123\* +247kB +12\.0ms +0ns +keeps all `, shown)
	assert.Regexp(t, `(?m)^ idles +150 +300kB +1\.00ms\* +0ns +10\.0%\*`, shown)
	assert.Contains(t, shown, "other load DISTURBED 2 of 6 passes; 4 repeated")
	assert.Contains(t, shown, "does not tell of other load")
	assert.Equal(t, 1, strings.Count(shown, "keeps: note of keeps"))

	d.Watched = true
	for i := range d.Workloads[0].Results {
		d.Workloads[0].Results[i].Disturbed = 0
	}
	shown = written(t, d, 120)
	assert.NotContains(t, shown, " p99 ", "empty columns are left out")
	assert.NotContains(t, shown, " x floor ", "empty columns are left out")
	assert.Contains(t, shown, "other load disturbed 4 passes: repeated")
	assert.NotContains(t, shown, "does not tell of other load")
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

func TestFirstScreenSaysWhatRalIsBesideItsPeers(t *testing.T) {
	d := reporttest.Run(t)
	d.Interrupted = true
	for i := range d.Workloads {
		d.Workloads[i].Rounds++
	}
	shown := written(t, d, 80)
	screen := strings.Join(strings.SplitAfter(shown, "\n")[:24], "")
	assert.Regexp(t, `(?m)^Ral: a call takes, of the best peer's processor time, \d\.\d\d\?? in hot-pass \(`, screen)
	assert.Regexp(t, `(?m)^Trust: `, screen)
	assert.Regexp(t, `(?m)^ peer +hot-pass +hot-refused +uniform +zipf +flood +growth *$`, screen)
	assert.Regexp(t, `(?m)^ mutex map( +\d\.\d\d\??){6} *$`, screen)
	assert.Regexp(t, `(?m)^up to 6 rounds \(fewer in \d+ workloads: the run was interrupted\), `, screen)
	verdict, short, _ := strings.Cut(shown[strings.Index(shown, "\nVerdict\n"):], "\nMissed goals and losses\n")
	assert.Regexp(t, `- Goals: \d+ of \d+ reached; \d+ others NOT MEASURED; the run was\s+INTERRUPTED\.`, verdict)
	assert.Contains(t, short, "- Where Ral loses: ")
}

func TestBudgetTooShortForAnything(t *testing.T) {
	d := report.Document{Settings: report.Settings{Rounds: 5, Budget: time.Millisecond}}
	d.LeftOut = []bench.LeftOut{{Workload: "zipf", CPU: 2, Contenders: []string{"Ral"}}}
	assert.Contains(t, written(t, d, 100), "Nothing was measured: the budget of 1ms is too short.")
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
