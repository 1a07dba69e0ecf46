package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The compiled Choke, and what it calls on a known key, write as many shared lines as the model says.
func TestModelCountsTheLockedInstructions(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("locked instructions are amd64's")
	}
	program := filepath.Join(t.TempDir(), "ralbench") // a test program has no symbols
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	locked := func(function string) (swaps, adds, others int) {
		code, err := exec.CommandContext(t.Context(), "go", "tool", "objdump", "-s", "/"+regexp.QuoteMeta(function)+"$", program).Output()
		require.NoError(t, err)
		require.Contains(t, string(code), "RET", "%s is not in the program", function)
		all := regexp.MustCompile(`LOCK \w+|XCHG[BWLQ] .*\(`).FindAllString(string(code), -1)
		swaps = strings.Count(strings.Join(all, "\n"), "LOCK CMPXCHG")
		adds = strings.Count(strings.Join(all, "\n"), "LOCK XADD")
		return swaps, adds, len(all) - swaps - adds
	}
	swaps, adds, others := locked("cell.(*Cell[go.shape.string]).Choke")
	assert.Equal(t, admitted.shared+refused.shared, swaps)
	assert.Equal(t, admitted.own+refused.own, adds)
	assert.Zero(t, others)
	for _, called := range []string{"table.(*Table[go.shape.string]).filedEntry", "core/clock.(*Clock).Now"} {
		swaps, adds, others = locked(called)
		assert.Zero(t, swaps+adds+others, called)
	}
}

func TestModelsCosts(t *testing.T) {
	assert.InDelta(t, 8*56, admitted.cost(30, 56, 8, 1), 1e-9, "cores queue for a hot key")
	assert.InDelta(t, 30+56*7./8, admitted.cost(30, 56, 8, 1e-5), 1e-9, "the line is another core's")
	assert.InDelta(t, 25, refused.cost(25, 202, 128, 1), 1e-9, "a refusal moves no line")
	assert.InDelta(t, 12./25, topShare(4), 1e-9)

	stdout, _ := mustRun(t, "-model", "-duration", "1ms")
	assert.Regexp(t, `(?m)^hot key, admitted +448 +896 +4800 +25856$`, stdout)
	code, _, stderr := run(t.Context(), "-model", "-fleet")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, stderr, "flag -fleet: ")
}
