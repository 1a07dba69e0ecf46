package main

import (
	"cmp"
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/peers"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

func parsed(t *testing.T, args ...string) settings {
	t.Helper()
	s, err := parse(args)
	require.NoError(t, err, args)
	return s
}

func TestFlagsAndTheirDefaults(t *testing.T) {
	s := parsed(t)
	assert.Equal(t, defaultDuration, s.Duration)
	assert.Equal(t, defaultRounds, s.Rounds)
	assert.Equal(t, defaultBudget, s.Budget)
	assert.Equal(t, []int{runtime.GOMAXPROCS(0)}, s.CPUs)
	assert.Empty(t, s.json)
	briefly := slices.DeleteFunc(bench.Names(bench.All(1)), func(name string) bool { return name == bench.GrowthWorkload })
	assert.Equal(t, briefly, bench.Names(s.workloads), "a round of growth takes half a minute")
	assert.Equal(t, withAlways("x/time+xsync", "x/time+sync.Map", "go-limiter", "throttled"), general(s))
	assert.Equal(t, []string{bench.GrowthWorkload}, bench.Names(parsed(t, "-workloads", bench.GrowthWorkload).workloads))
	assert.Contains(t, s.record().Contenders, "Ral Peek")
	assert.Contains(t, s.record().Contenders, "x/time Wait", "the peers of other calls are always there")

	s = parsed(t, "-workloads", "zipf, hot-pass", "--rounds=7", "-duration", "2s", "-cpu", "1, 3", "-scale", "0.5")
	assert.Equal(t, []string{"hot-pass", "zipf"}, bench.Names(s.workloads))
	assert.Equal(t, 500_000, s.workloads[1].Keys)
	assert.Equal(t, 7, s.Rounds)
	assert.Equal(t, 2*time.Second, s.Duration)
	assert.Equal(t, []int{1, 3}, s.CPUs)
	assert.Zero(t, s.Budget, "rounds that are asked for are not left out")
}

// Three rounds are judged. Of five, two may be disturbed.
//
// Promise: A default run of `ralbench` has time for five rounds, and for three at two thirds of the speed.
func TestDefaultRunHasTimeForItsRounds(t *testing.T) {
	s := parsed(t)
	takes := func() time.Duration {
		var total time.Duration
		options := s.options(s.progress(io.Discard))
		options.Progress = func(p bench.Progress) { total = p.Total }
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		must.Get(bench.Run(ended, s.workloads, s.contenders, options))
		return total
	}
	assert.Less(t, takes(), s.Budget*19/20)
	for i := range s.workloads {
		s.workloads[i].Rounds = min(cmp.Or(s.workloads[i].Rounds, s.Rounds), 3)
	}
	assert.Less(t, takes()*3/2, s.Budget*19/20)
}

func TestFullMeansEverythingUnlessOtherFlagsSayLess(t *testing.T) {
	withoutRedis(t)
	s := parsed(t, "-full")
	assert.Equal(t, fullRounds, s.Rounds)
	assert.Equal(t, fullDuration, s.Duration)
	assert.Zero(t, s.Budget)
	assert.Equal(t, bench.All(1), s.workloads, "nothing is cut short")
	assert.Len(t, general(s), len(slices.Concat(always(), candidates()))-1)
	assert.Equal(t, []string{"redis_rate"}, s.missing)

	s = parsed(t, "-full", "-rounds", "3", "-duration", "5ms", "-peers", "juju+xsync", "-workloads", "zipf", "-budget", "1m")
	assert.Equal(t, 3, s.Rounds)
	assert.Equal(t, 5*time.Millisecond, s.Duration)
	assert.Equal(t, time.Minute, s.Budget)
	assert.Equal(t, []string{"zipf"}, bench.Names(s.workloads))
	assert.Equal(t, withAlways("juju+xsync"), s.record().Contenders)
	assert.Empty(t, s.missing)
}

func withAlways(peers ...string) []string {
	return append([]string{bench.CFloorName, "floor", "xsync map", "Ral"}, peers...)
}

// general returns the contenders not made for certain workloads.
func general(s settings) (names []string) {
	for _, c := range s.contenders {
		if c.For == nil {
			names = append(names, c.Name)
		}
	}
	return names
}

func withoutRedis(t *testing.T) { t.Setenv("PATH", t.TempDir()) }

func withRedis(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "redis-server"), nil, 0o755))
	t.Setenv("PATH", folder)
}

func TestPeersByTheirNames(t *testing.T) {
	withRedis(t)
	for _, c := range []struct {
		names string
		want  []string // beside the yardsticks and Ral
	}{
		{"none", nil},
		{"x/time+sync.map, ULULE", []string{"x/time+sync.Map", "ulule"}},
		{"ral-queued,Ral Queued,ral,xsync-map,floor", []string{"Ral Queued"}},
		{"redis_rate", []string{"redis_rate"}},
	} {
		s := parsed(t, "-peers", c.names)
		assert.Equal(t, withAlways(c.want...), general(s), c.names)
	}
	s := parsed(t, "-peers", "all")
	assert.Len(t, general(s), len(slices.Concat(always(), candidates())))
	assert.Empty(t, s.missing)

	withoutRedis(t)
	s = parsed(t, "-peers", "all")
	assert.Len(t, general(s), len(slices.Concat(always(), candidates()))-1)
	assert.Equal(t, []string{"redis_rate"}, s.missing)
	_, err := parse([]string{"-peers", "ulule,redis_rate"})
	assert.ErrorContains(t, err, "not installed")
}

func TestJSONGoesToAFileOrToStandardOutput(t *testing.T) {
	for line, want := range map[string]string{"-json -": "-", "--json - -cpu 1": "-", "-json out.json -cpu 1": "out.json", "-json=out.json": "out.json"} {
		assert.Equal(t, want, parsed(t, strings.Fields(line)...).json, line)
	}
}

func TestBadFlagsSayTheAcceptedValues(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string // all in the error
	}{
		{[]string{"-rounds", "0"}, []string{"-rounds", `"0"`, "1 to 1000"}},
		{[]string{"-cpu", "1,2000"}, []string{"-cpu", `"1,2000"`, "1 to 1024", "1,2,4"}},
		{[]string{"-cpu", "2,2"}, []string{"-cpu", `"2,2"`}},
		{[]string{"-peers", "ulule,tepid"}, []string{"-peers", `"tepid"`, "x/time+xsync, x/time+sync.map, go-limiter, throttled", "ral-queued", "redis_rate", "all", "none"}},
		{[]string{"-duration", "5"}, []string{"-duration", `"5"`, "1ms to 1h", "200ms"}},
		{[]string{"-budget", "-1s"}, []string{"-budget", `"-1s"`, "24h"}},
		{[]string{"-scale", "2"}, []string{"-scale", `"2"`, "0.0001 to 1"}},
		{[]string{"-scale", "NaN"}, []string{"-scale", `"NaN"`, "0.0001 to 1"}},
		{[]string{"-workloads", "zipf,tepid"}, []string{"-workloads", `"tepid"`, "hot-pass, hot-refused, uniform"}},
		{[]string{"-json="}, []string{"-json", `""`, "a file"}},
		{[]string{"-frobnicate"}, []string{"-frobnicate"}},
		{[]string{"one.json", "two.json"}, []string{`"two.json"`, "only flags", "one file"}},
		{[]string{"one.json", "-cpu", "1"}, []string{`"-cpu"`, "after them"}},
		{[]string{"-cpu", "1", "one.json"}, []string{"-cpu", `"one.json"`, "nothing is measured"}},
		{[]string{"-goals", "-fleet"}, []string{"-goals", "-fleet"}},
		{[]string{"-fleet", "-peers", "ulule"}, []string{"-peers", "-fleet"}},
		{[]string{"-json"}, []string{"-json"}},
		{[]string{"-fleet", "-workloads", "hot-pass"}, []string{"-workloads", `"hot-pass"`, "fleet-hot, fleet-some, fleet-keys"}},
		{[]string{"-workloads", "fleet-hot"}, []string{"-workloads", `"fleet-hot"`, "known are hot-pass"}},
		{[]string{"-fleet", "one.json"}, []string{"-fleet", "nothing is measured"}},
	} {
		_, err := parse(c.args)
		require.Error(t, err, c.args)
		for _, want := range c.want {
			assert.ErrorContains(t, err, want, c.args)
		}

		code, stdout, stderr := run(t.Context(), c.args...)
		assert.Equal(t, exitUsage, code, c.args)
		assert.Empty(t, stdout, c.args)
		assert.Contains(t, stderr, err.Error())
	}
}

func TestHelpFitsATerminalAndExplainsAll(t *testing.T) {
	_, err := parse([]string{"-h"})
	assert.ErrorIs(t, err, flag.ErrHelp)
	screen, _ := mustRun(t, "-h")
	assert.Less(t, strings.Count(screen, "\n"), 24, "a screen, with the next prompt")
	text, _ := mustRun(t, "-help", "all")
	for shown, args := range map[string][]string{screen: {"help"}, text: {"help", "all"}} {
		again, _ := mustRun(t, args...)
		assert.Equal(t, shown, again, args)
	}
	for line := range strings.Lines(screen + text) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, line)
		assert.Equal(t, strings.TrimRight(line, " \n")+"\n", line, "spaces at its end")
	}
	for _, w := range slices.Concat(bench.All(1), fleetbench.Workloads(1)) {
		assert.Contains(t, text, "  "+w.Name+" ")
	}
	for _, c := range slices.Concat(slices.Concat(always(), candidates()), peers.Calls(), fleetbench.Contenders()) {
		assert.Contains(t, text, "  "+c.Name+" ")
	}
	for _, f := range []string{"-full", "-peers", "-workloads", "-duration", "-rounds", "-cpu", "-scale", "-budget", "-json", "-html", "-o", "-goals", "-fleet", "-h"} {
		assert.Contains(t, text, "\n  "+f+" ")
	}
	assert.Contains(t, text, report.Glossary, "it explains the columns")
	assert.NotContains(t, text, "%!", "a formatting mistake")
}
