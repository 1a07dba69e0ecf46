package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	slowest  = 10  // slowest tests that a report names
	repeated = 100 // lines of a failure repeated at the end
)

// event is a line of go test -json: see go doc test2json and go help buildjson.
type event struct {
	Action, Package, Test, Output string
	ImportPath, FailedBuild       string
	Elapsed                       float64
}

// suite is a package's tests in a step. They are named as for go test -run; "" is the package.
type suite struct {
	name   string
	began  time.Time
	lines  map[string][]string // the output of each test that has not passed
	order  []string            // the names in lines
	open   map[string]bool     // tests that have started and not ended
	failed []string
	passed int
}

// failure is a failed test, package, build or step, with the command that runs it alone.
type failure struct {
	name, command string
	lines         []string
}

type took struct {
	name    string
	seconds float64
}

// report prints the results of steps as they come, and all failures at the end.
type report struct {
	mu        sync.Mutex
	to        io.Writer
	module    string
	nameSteps bool
	began     time.Time
	said      time.Time

	running  map[string]*progress
	tests    []took
	steps    []took
	skipped  []string
	failures []failure
	packages int
	passed   int
}

type progress struct {
	lines    []string // its output except the events of go test
	builds   map[string][]string
	suites   map[string]*suite
	tests    int
	failures int
}

func newReport(to io.Writer, module string, nameSteps bool) *report {
	now := time.Now()
	return &report{to: to, module: module, nameSteps: nameSteps, began: now, said: now, running: map[string]*progress{}}
}

// say prints a line with the elapsed time, and the step's name if there are several.
func (r *report) say(step step, format string, args ...any) {
	name := ""
	if r.nameSteps && step.name != "" {
		name = step.name + ": "
	}
	r.said = time.Now()
	_, _ = fmt.Fprintf(r.to, "%5.0fs  %s%s\n", r.said.Sub(r.began).Seconds(), name, fmt.Sprintf(format, args...))
}

// alive prints the running packages after a silence.
func (r *report) alive() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.said) < quiet {
		return
	}
	var running []string
	for _, name := range slices.Sorted(maps.Keys(r.running)) {
		for _, p := range slices.SortedFunc(maps.Values(r.running[name].suites), func(a, b *suite) int { return a.began.Compare(b.began) }) {
			running = append(running, fmt.Sprintf("%s (%.0fs)", p.name, time.Since(p.began).Seconds()))
		}
		if len(r.running[name].suites) == 0 {
			running = append(running, name)
		}
	}
	r.say(step{}, "... %d packages done; at %s", r.packages, strings.Join(running, ", "))
}

func (r *report) short(pkg string) string {
	if pkg == r.module {
		return "."
	}
	if rest, ok := strings.CutPrefix(pkg, r.module+"/"); ok {
		return "./" + rest
	}
	return pkg
}

func (r *report) begin(step step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[step.name] = &progress{builds: map[string][]string{}, suites: map[string]*suite{}}
	r.say(step, "%s", step.command())
}

// line prints a line of a step's output other than an event.
func (r *report) line(step step, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[step.name].lines = append(r.running[step.name].lines, text)
	r.say(step, "%s", strings.TrimSuffix(text, "\n"))
}

func (r *report) event(step step, text string) {
	var e event
	if json.Unmarshal([]byte(text), &e) != nil {
		r.line(step, text)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	progress := r.running[step.name]
	switch e.Action {
	case "build-output":
		progress.builds[e.ImportPath] = append(progress.builds[e.ImportPath], e.Output)
		return
	case "build-fail":
		pkg, _, _ := strings.Cut(e.ImportPath, " ")
		r.fail(step, failure{r.short(pkg) + " (build or vet)", step.alone(r.short(pkg), ""), progress.builds[e.ImportPath]})
		return
	}
	u := progress.suites[e.Package]
	if u == nil {
		u = &suite{name: r.short(e.Package), began: time.Now(), lines: map[string][]string{}, open: map[string]bool{}}
		progress.suites[e.Package] = u
	}
	switch e.Action {
	case "run", "cont":
		u.open[e.Test] = true
	case "pause":
		delete(u.open, e.Test)
	case "output":
		if strings.HasPrefix(e.Output, "=== ") {
			return
		}
		if u.lines[e.Test] == nil {
			u.order = append(u.order, e.Test)
		}
		u.lines[e.Test] = append(u.lines[e.Test], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endSuite(step, u, e)
			delete(progress.suites, e.Package)
			return
		}
		r.endTest(progress, u, e)
	}
}

// endTest notes the result of a test or subtest. Subtests count as part of their test.
func (r *report) endTest(progress *progress, suite *suite, event event) {
	delete(suite.open, event.Test)
	isTop := !strings.Contains(event.Test, "/")
	if isTop {
		progress.tests++
		r.tests = append(r.tests, took{suite.name + " " + event.Test, event.Elapsed})
	}
	switch event.Action {
	case "skip":
		reason := ""
		if len(suite.lines[event.Test]) > 0 {
			reason = ": " + strings.TrimSpace(suite.lines[event.Test][0])
		}
		r.skipped = append(r.skipped, suite.name+" "+event.Test+reason)
	case "pass":
		if isTop {
			suite.passed++
		}
	case "fail":
		if isTop {
			suite.failed = append(suite.failed, event.Test)
		}
		return
	}
	delete(suite.lines, event.Test)
}

// endSuite notes the end of a package. Beside its tests, the package fails if its process ended
// before a test, or for another reason except a failed build, noted before.
func (r *report) endSuite(step step, suite *suite, event event) {
	r.passed += suite.passed
	if event.Action == "skip" { // it has no test files
		return
	}
	r.packages++
	if event.Action == "pass" {
		r.say(step, "ok    %s  %.1fs, %d tests", suite.name, event.Elapsed, suite.passed)
		return
	}
	r.say(step, "FAIL  %s  %.1fs, %d tests passed", suite.name, event.Elapsed, suite.passed)
	for _, name := range suite.failed {
		r.fail(step, failure{suite.name + " " + name, step.alone(suite.name, name), suite.output(name)})
	}
	var ended []string
	for name := range suite.open {
		top, _, _ := strings.Cut(name, "/")
		ended = append(ended, top)
	}
	slices.Sort(ended)
	ended = slices.Compact(ended)
	switch {
	case len(ended) == 1:
		r.fail(step, failure{suite.name + " " + ended[0] + " (did not end)", step.alone(suite.name, ended[0]), suite.output(append(ended, "")...)})
	case len(ended) > 1:
		r.fail(step, failure{suite.name + " (tests that did not end: " + strings.Join(ended, ", ") + ")",
			step.alone(suite.name, "("+strings.Join(ended, "|")+")"), suite.output(append(ended, "")...)})
	case len(suite.failed) == 0 && event.FailedBuild == "":
		r.fail(step, failure{suite.name, step.alone(suite.name, ""), suite.output("")})
	}
}

// output returns the output of tests, without the subtests that passed.
func (u *suite) output(tests ...string) []string {
	var all []string
	for _, name := range u.order {
		top, _, _ := strings.Cut(name, "/")
		if slices.Contains(tests, top) {
			all = append(all, u.lines[name]...)
		}
	}
	return all
}

func (r *report) fail(s step, failure failure) {
	if r.nameSteps {
		failure.name = s.name + ": " + failure.name
	}
	r.running[s.name].failures++
	r.failures = append(r.failures, failure)
	r.say(step{}, "FAIL  %s", failure.name)
	r.print(failure.lines)
}

func (r *report) print(lines []string) {
	for _, line := range lines {
		_, _ = fmt.Fprintln(r.to, strings.TrimRight("        "+line, "\n "))
	}
}

// used notes the processor time of a step's command, the compilers and tests that it ran included.
func (r *report) used(step step, processor time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, took{step.name, processor.Seconds()})
}

// end notes the end of a step. A test run without a test fails: its pattern is wrong.
func (r *report) end(step step, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	progress := r.running[step.name]
	switch {
	case err != nil && progress.failures == 0:
		r.fail(step, failure{err.Error(), step.command(), progress.lines})
	case err == nil && step.tests() && progress.tests == 0:
		r.fail(step, failure{"no test ran", step.command(), nil})
	case err == nil && !step.tests():
		r.passed++
		r.say(step, "ok")
	}
	delete(r.running, step.name)
}

// longest prints up to count entries, the longest first.
func (r *report) longest(title string, entries []took, count int) {
	slices.SortStableFunc(entries, func(a, b took) int { return int(1000 * (b.seconds - a.seconds)) })
	if len(entries) > 0 {
		_, _ = fmt.Fprintf(r.to, "\n%s:\n", title)
	}
	for _, took := range entries[:min(count, len(entries))] {
		_, _ = fmt.Fprintf(r.to, "%7.1fs  %s\n", took.seconds, took.name)
	}
}

// close prints the end of the report, and reports whether nothing failed.
func (r *report) close() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.skipped) > 0 {
		_, _ = fmt.Fprintf(r.to, "\nskipped:\n")
		for _, name := range r.skipped {
			_, _ = fmt.Fprintf(r.to, "        %s\n", name)
		}
	}
	r.longest("processor time", r.steps, len(r.steps))
	r.longest("slowest", r.tests, slowest)
	for _, failure := range r.failures {
		_, _ = fmt.Fprintf(r.to, "\nFAIL  %s\n", failure.name)
		if over := len(failure.lines) - repeated; over > 0 {
			r.print(failure.lines[:repeated/2])
			_, _ = fmt.Fprintf(r.to, "        ... %d lines more, printed above\n", over)
			failure.lines = failure.lines[over+repeated/2:]
		}
		r.print(failure.lines)
		_, _ = fmt.Fprintf(r.to, "      run it alone: %s\n", failure.command)
	}
	_, _ = fmt.Fprintf(r.to, "\n%d packages in %.0fs\n%d passed, %d failed\n", r.packages, time.Since(r.began).Seconds(), r.passed, len(r.failures))
	return len(r.failures) == 0
}
