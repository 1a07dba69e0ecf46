package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
)

func TestFilesOfNoUseCostNoRun(t *testing.T) {
	folder := t.TempDir()
	foreign, nowhere := filepath.Join(folder, "foreign.json"), filepath.Join(folder, "no", "such")
	require.NoError(t, os.WriteFile(foreign, []byte(`{"hello": 1}`), 0o600))
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{foreign}, []string{foreign, "has no schema"}},
		{[]string{"zipf"}, []string{"zipf", "want a file"}},
		{[]string{"-html", nowhere}, []string{"-html", "such"}},
		{[]string{"-json", nowhere}, []string{nowhere}},
	} {
		code, stdout, stderr := run(t.Context(), c.args...)
		assert.Equal(t, exitUsage, code, c.args)
		assert.Empty(t, stdout, c.args)
		for _, want := range c.want {
			assert.Contains(t, stderr, want, c.args)
		}
	}
}

func TestRunIsShownWithoutMeasuring(t *testing.T) {
	page, benchmarks := filepath.Join(t.TempDir(), "report.html"), filepath.Join(t.TempDir(), "report.txt")
	stdout, stderr := mustRun(t, "-o", benchmarks, "-html", page, "testdata/report.json")
	assert.Empty(t, stderr, "no progress: nothing is measured")
	assert.Contains(t, stdout, "hot-pass, GOMAXPROCS 2: one hot key")
	assert.FileExists(t, page)
	assert.Contains(t, read(benchmarks), "\nBenchmarkCall/workload=hot-pass/limiter=Ral-2 ")
}

func read(file string) string { return string(must.Get(os.ReadFile(file))) }
