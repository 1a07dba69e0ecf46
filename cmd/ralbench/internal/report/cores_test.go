package report

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
)

// The compiled Choke, and what it calls on a known key, write as many shared lines as the model says.
func TestModelCountsTheLockedInstructions(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("locked instructions are amd64's")
	}
	program := filepath.Join(t.TempDir(), "ralbench") // a test program has no symbols
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../..").CombinedOutput()
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

func TestModelCountsQueuesAndHandovers(t *testing.T) {
	assert.InDelta(t, 30, admitted.cost(30, 56, 1, 1), 1e-9, "one core hands over nothing")
	assert.InDelta(t, 8*56, admitted.cost(30, 56, 8, 1), 1e-9, "cores queue for a hot key")
	assert.InDelta(t, 30+56*7./8, admitted.cost(30, 56, 8, 1e-5), 1e-9, "the line is another core's")
	assert.InDelta(t, 25, refused.cost(25, 202, 128, 1), 1e-9, "a refusal moves no line")
}

func TestCoresHaveTheModelBesideTheMeasuredCosts(t *testing.T) {
	reportAt := func(workload string, cpu int, ns float64) bench.WorkloadReport {
		w := in(workload, limiter("Ral", ns))
		w.CPU = cpu
		return w
	}
	d := run(reportAt("hot-pass", 1, 30), reportAt("hot-pass", 2, 60), reportAt("hot-refused", 1, 20), reportAt("hot-refused", 2, 25), reportAt("flood", 1, 600), reportAt("flood", 2, 700))
	d.Settings.CPUs = []int{1, 2}
	assert.Empty(t, CoresTable(d).Rows, "no run with -cores")
	d.Transfer = 40
	table := CoresTable(d)
	var heads []string
	for _, head := range table.Columns {
		heads = append(heads, head.Name)
	}
	assert.Equal(t, []string{"workload", "cost", "1", "2", "8", "16", "32", "128"}, heads)
	var rows []string
	for _, r := range table.Rows {
		rows = append(rows, strings.Join(r.Cells, " "))
	}
	assert.Equal(t, []string{
		"hot-pass measured 30.0 60.0 - - - -",
		"hot-pass by the model 30.0 80.0 448 896 4800 25856",
		"hot-refused measured 20.0 25.0 - - - -",
		"hot-refused by the model 20.0 20.0 20.0 20.0 20.0 20.0",
		"uniform measured - - - - - -",
		"uniform by the model - - - - - -",
		"flood measured 600 700 - - - -",
		"flood by the model - - - - - -",
	}, rows)
	assert.Contains(t, table.About, "40ns each here")
}
