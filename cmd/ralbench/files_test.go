package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/ralbench/report"
)

func TestFilesOfNoUseCostNoRun(t *testing.T) {
	folder := t.TempDir()
	foreign := filepath.Join(folder, "foreign.json")
	require.NoError(t, os.WriteFile(foreign, []byte(`{"hello": 1}`), 0o600))
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"-compare", foreign}, []string{"-compare", foreign, "has no schema"}},
		{[]string{"-compare", filepath.Join(folder, "none")}, []string{"-compare", "none", "want a file"}},
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

func TestRunsAreShownAndComparedWithoutMeasuring(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.html")
	var stdout, stderr bytes.Buffer
	args := []string{"-compare", "testdata/old.json", "-html", file, "testdata/report.json"}
	require.Equal(t, exitOK, execute(t.Context(), args, &stdout, &stderr), stderr.String())
	assert.Empty(t, stderr.String(), "no progress: nothing is measured")
	assert.Contains(t, stdout.String(), "hot-pass, GOMAXPROCS 2: one hot key")
	assert.Contains(t, stdout.String(), "Compared with testdata/old.json")
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Contains(t, string(written), "Compared with an earlier run")
}

func TestRunIsComparedAndShownAfterMeasuring(t *testing.T) {
	folder := t.TempDir()
	old, file := filepath.Join(folder, "old.json"), filepath.Join(folder, "report.html")
	few := []string{"-workloads", "hot-pass", "-duration", "1ms", "-rounds", "4"}
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitOK, execute(t.Context(), append(few, "-json", old), &stdout, &stderr))
	stdout.Reset()
	require.Equal(t, exitOK, execute(t.Context(), append(few, "-compare", old, "-html", file), &stdout, &stderr))
	assert.Contains(t, stdout.String(), "Compared with "+old)
	assert.Regexp(t, `(?m)^ Ral +ops/s +\S+ +\S+ +\d`, stdout.String())
	assert.FileExists(t, file)

	stdout.Reset()
	stderr.Reset()
	require.Equal(t, exitOK, execute(t.Context(), append(few, "-compare", old, "-json"), &stdout, &stderr))
	_, err := report.Decode(&stdout)
	assert.NoError(t, err, "JSON and nothing else")
	assert.Contains(t, stderr.String(), "Compared with "+old)
}
