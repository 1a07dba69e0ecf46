package main

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Promise: `ral check` and `ral diff` list each fault of a file of limits, and `ral diff` each change, with an exit status for CI.
func TestFilesAreChecked(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"old":    "per-user: window 100/h\nlogin: at most 5/10m\n",
		"new":    "per-user: window 20/h\nlogin: at most 5/10m\njobs: in flight 5, 1m at most\n",
		"other":  "per-user: sliding 100/h\nlogin: at most 5/d\n",
		"faulty": "per-user: token bucket 100, 10/s\nb: sliding 5/m\n colour: red\n",
		"empty":  "",
	} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	const (
		faulty = `faulty:1: per-user: ral: limit "^token bucket 100, 10/s" at byte 0: write "funnel 100, 10/s"` + "\n" +
			`faulty:3: b: colour: a setting is "plan NAME", "per", "candidate", "shadow", "penalty", "warn-at", "share NAME", "ceiling NAME" or "reserved", such as "shadow: yes"` + "\n"
		another = " is accepted, or another name\n"
	)
	for _, c := range []struct {
		args               string
		out, problems, err string
		status             int
	}{
		{"check old", "old: 2 limits, no fault\n", "", "", 0},
		{"check empty", "empty: 0 limits, no fault\n", "", "", 0},
		{"check faulty other none", "other: 2 limits, no fault\n", faulty + "none: stat none: no such file or directory\n", "check: 3 faults", 1},
		{"check", "", usageOf("check"), "check: the command line is not accepted: 0 files given", 2},
		{"check -x", "", "flag provided but not defined: -x\n" + usageOf("check"), "check: the command line is not accepted: flag provided but not defined: -x", 2},
		{"diff old new",
			"per-user: window 100/h -> window 20/h; calls for 21 to 100 units are refused now\njobs: new, in flight 5, 1m at most\n", "", "", 0},
		{"diff new old", "per-user: window 20/h -> window 100/h\njobs: in flight 5, 1m at most -> none; a program that uses it refuses the file\n", "", "", 0},
		{"diff old old", "no limit changes\n", "", "", 0},
		{"diff old other", "per-user: window 100/h -> sliding 100/h\nlogin: at most 5/10m -> at most 5/d\n",
			`other:1: per-user: keys count under "window 100/h", of another family than "sliding 100/h": a limit of the same kind and period` + another +
				`other:2: login: keys count under "at most 5/10m", of another family than "at most 5/d": a limit of the same kind and period` + another, "diff: 2 faults", 1},
		{"diff old empty", "per-user: window 100/h -> none; a program that uses it refuses the file\nlogin: at most 5/10m -> none; a program that uses it refuses the file\n",
			"empty: it has no limits, and the file before had 2\n", "diff: 1 fault", 1},
		{"diff empty empty", "no limit changes\n", "", "", 0},
		{"diff faulty old", "", faulty, "diff: 2 faults", 1},
		{"diff old", "", usageOf("diff"), "diff: the command line is not accepted: 1 file given", 2},
	} {
		var out, problems bytes.Buffer
		err := run(t.Context(), strings.Fields(c.args), strings.NewReader(""), &out, &problems)
		assert.Equal(t, c.out, out.String(), c.args)
		assert.Equal(t, c.problems, problems.String(), c.args)
		if c.status == 0 {
			assert.NoError(t, err, c.args)
			continue
		}
		require.EqualError(t, err, c.err, c.args)
		assert.Equal(t, c.status, exitStatus(err), c.args)
	}
	var problems bytes.Buffer
	require.ErrorIs(t, run(t.Context(), []string{"diff", "-h"}, nil, nil, &problems), flag.ErrHelp)
	assert.Equal(t, usageOf("diff"), problems.String())
	assert.Equal(t, 3, exitStatus(errFailIf))
}

// usageOf returns the usage of a command.
func usageOf(command string) string {
	var b strings.Builder
	_ = usages.ExecuteTemplate(&b, command, nil)
	return b.String()
}
