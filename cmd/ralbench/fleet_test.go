package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"html"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
	"github.com/ral-limiter/ral/internal/browsertest"
)

// fleetFixture is a short run of fleet mode.
func fleetFixture(t *testing.T) document {
	t.Helper()
	d, err := readDocument("testdata/fleet.json")
	require.NoError(t, err)
	require.NotNil(t, d.Fleet)
	return d
}

func TestFlagsOfFleetMode(t *testing.T) {
	s, err := parse([]string{"-fleet"})
	require.NoError(t, err)
	assert.Equal(t, bench.Names(fleetbench.Workloads(1)), bench.Names(s.workloads))
	assert.Equal(t, []string{fleetbench.RedisRate, fleetbench.Exact, fleetbench.Leased, fleetbench.ExactByDefault, fleetbench.LeasedByDefault, fleetbench.EngineTake, fleetbench.EngineChoke}, s.record().Contenders)
	assert.Equal(t, fleetDuration, s.duration)
	assert.Equal(t, defaultRounds, s.rounds)
	assert.Equal(t, fleetBudget, s.budget)
	assert.Equal(t, fleetShare, s.share)
	assert.True(t, s.record().Fleet)
	o := s.fleetOptions("server", newProgress(io.Discard, s))
	assert.Equal(t, memoryKeys, o.Keys)
	assert.Equal(t, []bench.Limit{shareLimit}, o.Limits)
	assert.Equal(t, "server", o.Server)
	estimate := fleetbench.Estimate(o)
	assert.InDelta(t, 60, estimate.Seconds(), 20, "about a minute")

	s, err = parse([]string{"-fleet", "-full"})
	require.NoError(t, err)
	assert.Equal(t, fleetFullDuration, s.duration)
	assert.Equal(t, fullRounds, s.rounds)
	assert.Equal(t, fleetFullShare, s.share)
	assert.Zero(t, s.budget)
	o = s.fleetOptions("server", newProgress(io.Discard, s))
	assert.Equal(t, []bench.Limit{shareLimit, smallShareLimit}, o.Limits)
	assert.InDelta(t, 240, fleetbench.Estimate(o).Seconds(), 40, "about four minutes")

	s, err = parse([]string{"-fleet", "-full", "-duration", "3ms", "-rounds", "2", "-share", "0", "-scale", "0.01", "-workloads", "fleet-keys"})
	require.NoError(t, err)
	assert.Equal(t, 3*time.Millisecond, s.duration)
	assert.Equal(t, 2, s.rounds)
	assert.Zero(t, s.share)
	assert.Equal(t, 100, s.workloads[0].Keys)
	assert.Equal(t, 100, s.fleetOptions("", newProgress(io.Discard, s)).Keys)

	s, err = parse(nil)
	require.NoError(t, err)
	assert.False(t, s.record().Fleet)
	assert.Zero(t, s.share)
}

func TestBadFlagsOfFleetModeSayWhatIsAccepted(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"-fleet", "-peers", "ulule"}, []string{"-peers", "-fleet"}},
		{[]string{"-share", "5s"}, []string{"-share", "give -fleet"}},
		{[]string{"-fleet", "-share", "5"}, []string{"-share", `"5"`, "100ms to 1h", "0 for none"}},
		{[]string{"-fleet", "-share", "1ms"}, []string{"-share", `"1ms"`, "100ms to 1h"}},
		{[]string{"-fleet", "-workloads", "hot-pass"}, []string{"-workloads", `"hot-pass"`, "fleet-hot, fleet-some, fleet-keys"}},
		{[]string{"-workloads", "fleet-hot"}, []string{"-workloads", `"fleet-hot"`, "known are hot-pass"}},
		{[]string{"-fleet", "one.json"}, []string{"-fleet", "nothing is measured"}},
	} {
		_, err := parse(c.args)
		require.Error(t, err, c.args)
		for _, want := range c.want {
			assert.ErrorContains(t, err, want, c.args)
		}
	}
	_, err := parse([]string{"-fleet", "-h"})
	assert.ErrorIs(t, err, flag.ErrHelp)
}

func TestHelpExplainsFleetMode(t *testing.T) {
	var text bytes.Buffer
	help(&text)
	for _, f := range []string{"-fleet", "-share"} {
		assert.Contains(t, text.String(), "\n  "+f+" ")
	}
	for _, c := range fleetbench.Contenders("", "") {
		assert.Contains(t, text.String(), c.Name+"  ")
	}
	for _, w := range fleetbench.Workloads(1) {
		assert.Contains(t, text.String(), "  "+w.Name+"  ")
	}
	assert.NotContains(t, text.String(), "%!", "a formatting mistake")
}

func TestFleetModeWithoutRedisSaysHowToInstallIt(t *testing.T) {
	withoutRedis(t)
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitFailed, run(t.Context(), []string{"-fleet"}, &stdout, &stderr))
	assert.Empty(t, stdout.String())
	assert.Contains(t, stderr.String(), "there is no redis-server here")
	assert.Contains(t, stderr.String(), "apt-get install redis-server")
}

func TestFleetModeOnARedisThatDoesNotStartFails(t *testing.T) {
	withRedis(t) // which is no program
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitFailed, run(t.Context(), []string{"-fleet"}, &stdout, &stderr))
	assert.Contains(t, stderr.String(), "starting")
	assert.Contains(t, stdout.String(), "Nothing was measured")
}

func TestRunOfFleetMode(t *testing.T) {
	file, page := filepath.Join(t.TempDir(), "out.json"), filepath.Join(t.TempDir(), "out.html")
	var stdout, stderr bytes.Buffer
	args := []string{"-fleet", "-workloads", "fleet-hot", "-rounds", "1", "-duration", "2ms", "-share", "200ms", "-scale", "0.01", "-json", file, "-html", page}
	require.Equal(t, exitOK, run(t.Context(), args, &stdout, &stderr), stderr.String())
	for _, part := range []string{"fleet-hot (1 of 3)", "memory in Redis (2 of 3)", "usable share (3 of 3)", "usable share took"} {
		assert.Contains(t, stderr.String(), "ralbench: "+part)
	}
	table := stdout.String()
	assert.Contains(t, table, "SCALED")
	for _, title := range []string{"fleet-hot: 64 callers", "goals: ", "what Redis does: ", "memory in Redis: ", "usable share of the limit: "} {
		assert.Contains(t, table, "\n"+title)
	}
	assert.NotContains(t, table+stderr.String(), "\x1b", "no terminal, no escape codes")

	written, err := os.ReadFile(file)
	require.NoError(t, err)
	d, err := decode(bytes.NewReader(written))
	require.NoError(t, err)
	assert.Len(t, d.Fleet.Work, 5)
	assert.Len(t, d.Fleet.Memory, 3)
	assert.Len(t, d.Fleet.Shares, 6)
	assert.NotNil(t, d.Workloads[0].Results[0].Latency)
	var again bytes.Buffer
	require.NoError(t, d.writeJSON(&again))
	assert.Equal(t, string(written), again.String(), "there and back")
	shown, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(shown), `id="fleet"`)

	// Without measuring, the same comes of it.
	var later bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{file}, &later, &stderr))
	_, goals, _ := strings.Cut(table, "\ngoals: ")
	goals, _, _ = strings.Cut(goals, "\nops/s by the clock")
	assert.Contains(t, later.String(), goals)
}

func TestTablesOfFleetMode(t *testing.T) {
	d := document{Settings: recorded{CPUs: []int{2}}, Report: bench.Report{Workloads: []bench.WorkloadReport{{
		Name: "fleet-hot", CPU: 2, Results: []bench.Result{
			{Contender: fleetbench.RedisRate, NsPerOp: bench.Spread{Median: 12_000}},
			{Contender: fleetbench.Exact, NsPerOp: bench.Spread{Median: 7000}},
		},
	}}}, Fleet: &fleetbench.Report{
		Redis: "7.0.15",
		Work: []fleetbench.Work{
			{Workload: "fleet-hot", CPU: 2, Contender: fleetbench.RedisRate, Rounds: []float64{10_000}, RedisNsPerOp: bench.Spread{Median: 10_000}},
			{Workload: "fleet-hot", CPU: 2, Contender: fleetbench.Exact, Rounds: []float64{6000, 9000}, RedisNsPerOp: bench.Spread{Median: 7500, Min: 6000, Max: 9000}, ByRedis: 999, Neither: 1},
			{Workload: "fleet-keys", CPU: 2, Contender: fleetbench.Leased, ByLease: 5},
		},
		Memory: []fleetbench.Memory{{Contender: fleetbench.Exact, Keys: 10_000, Name: "ral:x", Usage: 88, Used: 154.2}},
		Shares: []fleetbench.Share{
			{Mode: fleetbench.ModeLeased, Load: "even", Limit: shareLimit, Calls: 4000, Admitted: 1900, Allowed: 2000, Share: 0.95, Aim: 0.95, Each: []int64{900, 1000}},
			{Mode: fleetbench.ModeExact, Load: "even", Limit: shareLimit, Calls: 4000, Admitted: 2001, Allowed: 2000, Share: 1.0024, Aim: 0.95, Each: []int64{1, 2000}, Over: 1, Neither: 7},
		},
		Goals: []fleetbench.Goal{
			{Of: fleetbench.Exact, What: "speed", Where: "fleet-hot", Value: bench.Spread{Median: 2.5, Min: 2, Max: 3}, Goal: 2, Least: true, Reached: true},
			{Of: fleetbench.Exact, What: "memory", Where: "10 keys", Value: bench.Spread{Median: 1, Min: 1, Max: 1}, Goal: 1},
			{Of: fleetbench.Leased, What: "cost", Where: "fleet-hot", Value: bench.Spread{Median: 1, Min: 1, Max: 1}, Goal: 2, Reached: true},
			{Of: fleetbench.Leased, What: "share", Where: "even", Value: bench.Spread{Median: 0.9512, Min: 0.9512, Max: 0.9512}, Goal: 0.95, Least: true, Percent: true, Reached: true},
		},
	}}
	var b strings.Builder
	d.fleetSection(&b)
	for _, want := range []string{
		`(?m)^fleet mode on Redis 7\.0\.15, started for this run`,
		`(?m)^ Ral fleet exact +speed +fleet-hot +2\.50 +2\.00 to 3\.00 +at least 2 +yes `,
		`(?m)^ Ral fleet exact +memory +10 keys +1\.00 +- +less than 1 +NO `,
		`(?m)^ Ral fleet leased +cost +fleet-hot +1\.00 +- +at most 2 +yes `,
		`(?m)^ Ral fleet leased +share +even +95\.1% +- +at least 95% +yes `,
		`(?m)^ fleet-hot +redis_rate +10000 +- +22000 +all +- +- `,
		`(?m)^  +Ral fleet exact +7500 +±20% +14500 +99\.9% +0\.0% +0\.1% `,
		`(?m)^ fleet-keys +Ral fleet leased +0\.00 +- +- +0\.0% +100\.0% +0\.0% `,
		`(?m)^ Ral fleet exact +ral:x +10,000 +88\.0 +154 `,
		`(?m)^ bursts of 1,000, then 1,000 per 1s +even +leased +4,000 +1,900 +2,000 +95\.0% +95\.0% +kept +900 1000 `,
		`(?m)^ bursts of 1,000, then 1,000 per 1s +even +exact +4,000 +2,001 +2,000 +100\.2% +95\.0% +1 TOO MANY; 7 answered by neither +1 2000 `,
	} {
		assert.Regexp(t, want, b.String())
	}

	page := html.UnescapeString(withoutScripts(pageOf(t, d, nil)))
	for _, table := range fleetTables(d) {
		assert.Contains(t, page, `id="fleet-`+table.ID+`"`)
		for _, row := range table.Rows {
			for _, cell := range row.Cells[1:] {
				assert.Regexp(t, `<td[^>]*>`+strings.NewReplacer("+", `\+`, ".", `\.`).Replace(cell)+`</td>`, page)
			}
		}
	}
	assert.Contains(t, page, "1 audit found too much admitted", "first of all that the page says")
	assert.Contains(t, page, `<tr class="failed">`)
}

func TestPageOfFleetMode(t *testing.T) {
	d := fleetFixture(t)
	p := newPage(d)
	seen := map[string]bool{}
	for _, c := range p.Data.Charts {
		assert.False(t, seen[c.ID], "%s: twice", c.ID)
		seen[c.ID] = true
		for _, point := range c.Points {
			assert.Positive(t, point.Value, "%s: %+v", c.ID, point)
		}
	}
	for _, id := range []string{"fleet-multiples", "fleet-hot-redis", "fleet-keys-redis", "fleet-memory", "fleet-share-even-1000", "fleet-share-shifting-50", "fleet-some-throughput", "fleet-some-latency"} {
		assert.True(t, seen[id], id)
	}

	all := chartOf(t, p.Data.Charts, "fleet-multiples")
	assert.Len(t, all.Points, 4*len(d.Workloads), "all but redis_rate, which is the line")
	assert.Contains(t, all.Summary(), "fleet-some, Ral fleet leased: ")
	share := chartOf(t, p.Data.Charts, "fleet-share-even-1000")
	require.Len(t, share.Points, 2)
	assert.Equal(t, 0.95, *share.Floor)
	assert.Equal(t, d.Fleet.Shares[0].Share, share.Points[0].Value)
	assert.Contains(t, share.Summary(), "aim of leased mode: 95.0%.")
	assert.Contains(t, share.Summary(), fleetbench.Leased+": "+percent(d.Fleet.Shares[1].Share))
	assert.Equal(t, len(d.Fleet.Shares), p.Audit.Clean-cleanIn(d), "each share is audited")

	page := html.UnescapeString(withoutScripts(pageOf(t, d, nil)))
	assert.Contains(t, page, "Redis "+d.Fleet.Redis)
	assert.Contains(t, page, "-fleet -share 2s -full")
	assert.Contains(t, page, "package fleet in exact mode")
	assert.NotContains(t, withoutScripts(pageOf(t, made(nil, []float64{1}), nil)), `id="fleet"`, "not in other runs")
}

// cleanIn counts the audits of workloads that bind and found nothing.
func cleanIn(d document) (n int) {
	for _, w := range d.Workloads {
		for _, r := range w.Results {
			if r.Audit != nil && r.Audit.Binds && r.Audit.Clean() {
				n++
			}
		}
	}
	return n
}

func TestPageOfFleetModeInABrowser(t *testing.T) {
	d := fleetFixture(t)
	file, want := written(t, d, nil), newPage(d).Data
	b := browsertest.Start(t)
	for name, v := range map[string]browsertest.View{
		"desktop-dark": {Scheme: "dark", Width: 1280, Height: 900},
		"phone-light":  {Scheme: "light", Width: 360, Height: 740},
	} {
		t.Run(name, func(t *testing.T) {
			o := b.Open(t, address(file), v)
			assertDrawn(t, o, want)
			assertReadable(t, o, v)
			assertFits(t, o, v)
			labels := browsertest.Eval[[]string](o, `[...document.querySelectorAll('g.floor-label text')].map((e) => e.textContent)`)
			assert.Contains(t, labels, "redis_rate")
			assert.Contains(t, labels, "aim of leased mode 95%")
			o.Shoot("fleet-" + name)
			o.Quiet()
		})
	}
}

func TestJSONOfFleetModeIsOnlyInItsRuns(t *testing.T) {
	d, _ := fixtures(t)
	text, err := json.Marshal(d)
	require.NoError(t, err)
	assert.NotContains(t, string(text), `"fleet"`)
	assert.NotContains(t, string(text), `"share_ns"`)
}
