package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
)

func mustParse(t *testing.T, args ...string) []step { return must.Get(parseSteps(args)) }

func closing(out string) string {
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	return lines[len(lines)-1]
}

// testdata/recorded.json is go test -json -vet=all -timeout 2s ./... under Go 1.26 with a package
// for each way to fail: tests and subtests, a panic in the test and in another goroutine, a
// time-out, an exit of TestMain, a build and a vet.
//
// Promise: Failures are repeated at the end, each with a command.
func TestReportOfARecordedRun(t *testing.T) {
	recorded := must.Get(os.ReadFile("testdata/recorded.json"))
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) { // so that no time passes
		r := newReport(&out, "example.com/m", false)
		s := mustParse(t, "tests: go test -count=1 -vet=all -timeout 2s ./...")[0]
		r.begin(s)
		for line := range strings.Lines(string(recorded)) {
			r.event(s, line)
		}
		r.end(s, &exec.ExitError{})
		assert.False(t, r.close())
	})
	must.EqualFile(t, "testdata/report.txt", out.String())
	assert.Equal(t, "8 passed, 8 failed", closing(out.String()))
}

func TestCommandRunsATestAlone(t *testing.T) {
	for command, want := range map[string][2]string{
		"go test ./...": {
			"go test -run '^TestX$' ./a", "go test ./a"},
		"go test -count=1 -vet=all -short ./... ./b/...": {
			"go test -short -run '^TestX$' ./a", "go test -vet=all -short ./a"},
		"go test -count 1 -p=4 -race -cpu 1,2 -timeout 60m -skip InABrowser .": {
			"go test -race -cpu 1,2 -run '^TestX$' ./a", "go test -race -cpu 1,2 ./a"},
		"go test -run ^TestSeeds ./a -first 100001 -seeds 20": {
			"go test -run '^TestX$' ./a -first 100001 -seeds 20", "go test ./a -first 100001 -seeds 20"},
		"make tidy": {"make tidy", "make tidy"},
		"CGO_ENABLED=1 go test -race ./...": {
			"CGO_ENABLED=1 go test -race -run '^TestX$' ./a", "CGO_ENABLED=1 go test -race ./a"},
	} {
		s := mustParse(t, "name: "+command)[0]
		assert.Equal(t, want, [2]string{s.alone("./a", "TestX"), s.alone("./a", "")}, command)
		assert.Equal(t, command, s.command(), "unchanged")
	}
}

func TestStepsAreRefused(t *testing.T) {
	for _, args := range [][]string{{}, {""}, {"name"}, {"name: "}, {": go test"}, {"a: true", "go test ./..."}, {"a: true", "a: false"}} {
		_, err := parseSteps(args)
		assert.Error(t, err, "%q", args)
	}
}

// write writes a package with a test file and changes to its module.
func write(t *testing.T, body string) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("GOWORK", "off")
	require.NoError(t, os.WriteFile("go.mod", []byte("module example.com/m\n\ngo 1.25\n"), 0o644))
	require.NoError(t, os.WriteFile("a_test.go", []byte("package m\n\nimport \"testing\"\n\n"+body), 0o644))
}

func runAll(t *testing.T, atOnce int, args ...string) (string, bool) {
	t.Helper()
	var out bytes.Buffer
	ok := runSteps(t.Context(), newReport(&out, "example.com/m", true), mustParse(t, args...), atOnce)
	return out.String(), ok
}

func TestRunRepeatsFailuresAtTheEnd(t *testing.T) {
	write(t, "func TestGood(t *testing.T) {}\nfunc TestBad(t *testing.T) { t.Error(\"got 1, want 2\") }\n")
	out, ok := runAll(t, 2, "good: go test -run Good .", "all: go test .", "other: GOPRIVATE=example.com go env GOPRIVATE")
	assert.False(t, ok)
	assert.Regexp(t, `(?m)^ +\d+s  good: ok    \.  .*, 1 tests$`, out)
	assert.Regexp(t, `other: example\.com\n`, out)
	assert.Regexp(t, `(?s)processor time:\n( +[0-9.]+s  (good|all)\n){2} +[0-9.]+s  other\n`, out, "a compiler takes more than go env")
	assert.True(t, strings.HasSuffix(out[:strings.LastIndex(out, "\n\n")], "run it alone: go test -run '^TestBad$' ."), out)
	assert.Equal(t, "3 passed, 1 failed", closing(out))

	out, ok = runAll(t, 1, "good: go test -run Good .")
	assert.True(t, ok)
	assert.NotContains(t, out, "FAIL")
	assert.Equal(t, "1 passed, 0 failed", closing(out))
}

// A pattern without a test, a missing command, and a failure by status alone.
func TestStepsFail(t *testing.T) {
	write(t, "func TestGood(t *testing.T) {}\n")
	for args, why := range map[string]string{
		"a: go test -run TestRenamed .": "no test ran",
		"a: go test ./nosuch":           "directory not found",
		"a: go test -nosuch .":          "flag provided but not defined: -nosuch",
		"a: nosuch":                     "executable file not found",
		"a: go vet ./nosuch":            "directory not found",
		"a: false":                      "exit status 1",
	} {
		out, ok := runAll(t, 1, args)
		assert.False(t, ok, args)
		_, failures, _ := strings.Cut(out, "\nFAIL  ")
		assert.Contains(t, failures, why, args)
		assert.Contains(t, failures, "\n      run it alone: ", args)
		assert.Equal(t, "0 passed, 1 failed", closing(out), args)
	}
}

type onWrite func(string)

func (f onWrite) Write(p []byte) (int, error) {
	f(string(p))
	return len(p), nil
}

func TestInterruptEndsTheRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out strings.Builder
	r := newReport(onWrite(func(text string) {
		out.WriteString(text)
		if strings.Contains(text, "first: begun") {
			cancel()
		}
	}), "example.com/m", true)
	write(t, "import \"fmt\"\n\nfunc TestForever(t *testing.T) { fmt.Println(\"begun\"); select {} }\n")
	require.NoError(t, exec.Command("go", "test", "-c", "-o", "first").Run())
	assert.False(t, runSteps(ctx, r, mustParse(t, "first: ./first", "second: true"), 1))
	assert.Equal(t, "0 passed, 2 failed", closing(out.String()))
}

func TestSilenceIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := newReport(&out, "example.com/m", true)
		steps := mustParse(t, "tests: go test ./...", "lint: make lint")
		r.begin(steps[0])
		r.begin(steps[1])
		r.event(steps[0], `{"Action":"start","Package":"example.com/m/fleet"}`)
		time.Sleep(10 * time.Second)
		out.Reset()
		r.alive()
		assert.Empty(t, out.String())
		time.Sleep(10 * time.Second)
		r.alive()
		assert.Equal(t, "   20s  ... 0 packages done; at lint, ./fleet (20s)\n", out.String())
		r.alive()
		assert.Equal(t, 1, strings.Count(out.String(), "\n"))
	})
}

// It is printed whole at once, and shortened at the end.
func TestLongFailureIsShortened(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out, "example.com/m", false)
	s := mustParse(t, "tests: go test ./...")[0]
	r.begin(s)
	r.event(s, `{"Action":"run","Package":"example.com/m","Test":"TestX"}`)
	for range 1000 {
		r.event(s, `{"Action":"output","Package":"example.com/m","Test":"TestX","Output":"line\n"}`)
	}
	r.event(s, `{"Action":"fail","Package":"example.com/m","Test":"TestX"}`)
	r.event(s, `{"Action":"fail","Package":"example.com/m"}`)
	r.end(s, &exec.ExitError{})
	r.close()
	assert.Equal(t, 1000+repeated, strings.Count(out.String(), "        line\n"))
	assert.Contains(t, out.String(), "... 900 lines more, printed above\n")
}
