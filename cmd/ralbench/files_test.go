package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFilesOfNoUseCostNoRun(t *testing.T) {
	folder := t.TempDir()
	foreign := filepath.Join(folder, "foreign.json")
	require.NoError(t, os.WriteFile(foreign, []byte(`{"hello": 1}`), 0o600))
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{foreign}, []string{foreign, "has no schema"}},
		{[]string{"zipf"}, []string{"zipf", "want a file"}},
		{[]string{"-html", filepath.Join(folder, "no", "such")}, []string{"-html", "such"}},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitUsage, execute(t.Context(), c.args, &stdout, &stderr), c.args)
		assert.Empty(t, stdout.String())
		for _, want := range c.want {
			assert.Contains(t, stderr.String(), want, c.args)
		}
	}
}

func TestRunIsShownWithoutMeasuring(t *testing.T) {
	file, benchmarks := filepath.Join(t.TempDir(), "report.html"), filepath.Join(t.TempDir(), "report.txt")
	var stdout, stderr bytes.Buffer
	args := []string{"-o", benchmarks, "-html", file, "testdata/report.json"}
	require.Equal(t, exitOK, execute(t.Context(), args, &stdout, &stderr), stderr.String())
	assert.Empty(t, stderr.String(), "no progress: nothing is measured")
	assert.Contains(t, stdout.String(), "hot-pass, GOMAXPROCS 2: one hot key")
	assert.FileExists(t, file)
	written, err := os.ReadFile(benchmarks)
	require.NoError(t, err)
	assert.Contains(t, string(written), "\nBenchmarkCall/workload=hot-pass/limiter=Ral-2 ")
}
