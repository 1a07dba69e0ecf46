package main

import (
	"bytes"
	"context"
	"flag"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
)

func TestFlagsAndTheirDefaults(t *testing.T) {
	s, err := parse(nil)
	require.NoError(t, err)
	assert.Equal(t, defaultDuration, s.duration)
	assert.Equal(t, defaultRounds, s.rounds)
	assert.Equal(t, defaultBudget, s.budget)
	assert.Equal(t, runtime.GOMAXPROCS(0), s.cpu)
	assert.Empty(t, s.json)
	assert.Equal(t, bench.Names(bench.Standard(1)), bench.Names(s.workloads))

	s, err = parse([]string{"-workloads", "zipf, hot-pass", "--rounds=7", "-duration", "2s", "-cpu", "1", "-scale", "0.5"})
	require.NoError(t, err)
	assert.Equal(t, []string{"hot-pass", "zipf"}, bench.Names(s.workloads))
	assert.Equal(t, 500_000, s.workloads[1].Keys)
	assert.Equal(t, 7, s.rounds)
	assert.Equal(t, 2*time.Second, s.duration)
	assert.Equal(t, 1, s.cpu)
	assert.Zero(t, s.budget, "who asks for rounds gets them")
}

func TestJSONWithAndWithoutAFile(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-json"}, "-"},
		{[]string{"--json", "-cpu", "1"}, "-"},
		{[]string{"-json", "out.json"}, "out.json"},
		{[]string{"-json", "out.json", "-cpu", "1"}, "out.json"},
		{[]string{"-json=out.json"}, "out.json"},
	} {
		s, err := parse(c.args)
		require.NoError(t, err, c.args)
		assert.Equal(t, c.want, s.json, c.args)
	}
}

func TestBadFlagsSayWhatIsAccepted(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string // all in the error
	}{
		{[]string{"-rounds", "0"}, []string{"-rounds", `"0"`, "1 to 1000"}},
		{[]string{"-rounds", "many"}, []string{"-rounds", `"many"`, "1 to 1000"}},
		{[]string{"-cpu", "-2"}, []string{"-cpu", `"-2"`, "1 to 1024"}},
		{[]string{"-duration", "5"}, []string{"-duration", `"5"`, "1ms to 1h", "200ms"}},
		{[]string{"-duration", "-1s"}, []string{"-duration", `"-1s"`, "1ms to 1h"}},
		{[]string{"-budget", "-1s"}, []string{"-budget", `"-1s"`, "24h"}},
		{[]string{"-scale", "2"}, []string{"-scale", `"2"`, "0.0001 to 1"}},
		{[]string{"-scale", "NaN"}, []string{"-scale", `"NaN"`, "0.0001 to 1"}},
		{[]string{"-workloads", "zipf,tepid"}, []string{"-workloads", `"tepid"`, "hot-pass, hot-refused, uniform"}},
		{[]string{"-workloads", ","}, []string{"-workloads", `","`, "hot-pass"}},
		{[]string{"-json="}, []string{"-json", `""`, "a file"}},
		{[]string{"-frobnicate"}, []string{"-frobnicate"}},
		{[]string{"zipf"}, []string{`"zipf"`, "only flags"}},
	} {
		_, err := parse(c.args)
		require.Error(t, err, c.args)
		for _, want := range c.want {
			assert.ErrorContains(t, err, want, c.args)
		}

		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitUsage, run(context.Background(), c.args, &stdout, &stderr), c.args)
		assert.Empty(t, stdout.String(), c.args)
		assert.Contains(t, stderr.String(), err.Error())
	}
}

func TestHelpExplainsAllFlagsWorkloadsAndColumns(t *testing.T) {
	_, err := parse([]string{"-h"})
	assert.ErrorIs(t, err, flag.ErrHelp)

	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitOK, run(context.Background(), []string{"-help"}, &stdout, &stderr))
	assert.Empty(t, stderr.String())
	text := stdout.String()
	for _, w := range bench.Standard(1) {
		assert.Contains(t, text, w.Name)
	}
	for _, c := range contenders() {
		assert.Contains(t, text, c.Name)
	}
	for _, f := range []string{"-workloads", "-duration", "-rounds", "-cpu", "-scale", "-budget", "-json", "-h"} {
		assert.Contains(t, text, "\n  "+f+" ")
	}
	for _, c := range columns {
		switch c.name {
		case "contender", "p99", "p99.9":
		default:
			assert.Contains(t, text, c.name)
		}
	}
	assert.NotContains(t, text, "%!", "a formatting mistake")
}
