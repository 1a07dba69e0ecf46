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
func (r *report) say(s step, format string, args ...any) {
	name := ""
	if r.nameSteps && s.name != "" {
		name = s.name + ": "
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

func (r *report) begin(s step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[s.name] = &progress{builds: map[string][]string{}, suites: map[string]*suite{}}
	r.say(s, "%s", s.command())
}

// line prints a line of a step's output other than an event.
func (r *report) line(s step, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[s.name].lines = append(r.running[s.name].lines, text)
	r.say(s, "%s", strings.TrimSuffix(text, "\n"))
}

func (r *report) event(s step, text string) {
	var e event
	if json.Unmarshal([]byte(text), &e) != nil {
		r.line(s, text)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.running[s.name]
	switch e.Action {
	case "build-output":
		p.builds[e.ImportPath] = append(p.builds[e.ImportPath], e.Output)
		return
	case "build-fail":
		pkg, _, _ := strings.Cut(e.ImportPath, " ")
		r.fail(s, failure{r.short(pkg) + " (build or vet)", s.alone(r.short(pkg), ""), p.builds[e.ImportPath]})
		return
	}
	u := p.suites[e.Package]
	if u == nil {
		u = &suite{name: r.short(e.Package), began: time.Now(), lines: map[string][]string{}, open: map[string]bool{}}
		p.suites[e.Package] = u
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
			r.endSuite(s, u, e)
			delete(p.suites, e.Package)
			return
		}
		r.endTest(p, u, e)
	}
}

// endTest notes the result of a test or subtest. Subtests count as part of their test.
func (r *report) endTest(p *progress, u *suite, e event) {
	delete(u.open, e.Test)
	isTop := !strings.Contains(e.Test, "/")
	if isTop {
		p.tests++
		r.tests = append(r.tests, took{u.name + " " + e.Test, e.Elapsed})
	}
	switch e.Action {
	case "skip":
		reason := ""
		if len(u.lines[e.Test]) > 0 {
			reason = ": " + strings.TrimSpace(u.lines[e.Test][0])
		}
		r.skipped = append(r.skipped, u.name+" "+e.Test+reason)
	case "pass":
		if isTop {
			u.passed++
		}
	case "fail":
		if isTop {
			u.failed = append(u.failed, e.Test)
		}
		return
	}
	delete(u.lines, e.Test)
}

// endSuite notes the end of a package. Beside its tests, the package fails if its process ended
// before a test, or for another reason except a failed build, noted before.
func (r *report) endSuite(s step, u *suite, e event) {
	r.passed += u.passed
	if e.Action == "skip" { // it has no test files
		return
	}
	r.packages++
	if e.Action == "pass" {
		r.say(s, "ok    %s  %.1fs, %d tests", u.name, e.Elapsed, u.passed)
		return
	}
	r.say(s, "FAIL  %s  %.1fs, %d tests passed", u.name, e.Elapsed, u.passed)
	for _, name := range u.failed {
		r.fail(s, failure{u.name + " " + name, s.alone(u.name, name), u.output(name)})
	}
	var ended []string
	for name := range u.open {
		top, _, _ := strings.Cut(name, "/")
		ended = append(ended, top)
	}
	slices.Sort(ended)
	ended = slices.Compact(ended)
	switch {
	case len(ended) == 1:
		r.fail(s, failure{u.name + " " + ended[0] + " (did not end)", s.alone(u.name, ended[0]), u.output(append(ended, "")...)})
	case len(ended) > 1:
		r.fail(s, failure{u.name + " (tests that did not end: " + strings.Join(ended, ", ") + ")",
			s.alone(u.name, "("+strings.Join(ended, "|")+")"), u.output(append(ended, "")...)})
	case len(u.failed) == 0 && e.FailedBuild == "":
		r.fail(s, failure{u.name, s.alone(u.name, ""), u.output("")})
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

func (r *report) fail(s step, f failure) {
	if r.nameSteps {
		f.name = s.name + ": " + f.name
	}
	r.running[s.name].failures++
	r.failures = append(r.failures, f)
	r.say(step{}, "FAIL  %s", f.name)
	r.print(f.lines)
}

func (r *report) print(lines []string) {
	for _, line := range lines {
		_, _ = fmt.Fprintln(r.to, strings.TrimRight("        "+line, "\n "))
	}
}

// used notes the processor time of a step's command, the compilers and tests that it ran included.
func (r *report) used(s step, processor time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, took{s.name, processor.Seconds()})
}

// end notes the end of a step. A test run without a test fails: its pattern is wrong.
func (r *report) end(s step, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.running[s.name]
	switch {
	case err != nil && p.failures == 0:
		r.fail(s, failure{err.Error(), s.command(), p.lines})
	case err == nil && s.tests() && p.tests == 0:
		r.fail(s, failure{"no test ran", s.command(), nil})
	case err == nil && !s.tests():
		r.passed++
		r.say(s, "ok")
	}
	delete(r.running, s.name)
}

// longest prints up to count entries, the longest first.
func (r *report) longest(title string, entries []took, count int) {
	slices.SortStableFunc(entries, func(a, b took) int { return int(1000 * (b.seconds - a.seconds)) })
	if len(entries) > 0 {
		_, _ = fmt.Fprintf(r.to, "\n%s:\n", title)
	}
	for _, e := range entries[:min(count, len(entries))] {
		_, _ = fmt.Fprintf(r.to, "%7.1fs  %s\n", e.seconds, e.name)
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
	for _, f := range r.failures {
		_, _ = fmt.Fprintf(r.to, "\nFAIL  %s\n", f.name)
		if over := len(f.lines) - repeated; over > 0 {
			r.print(f.lines[:repeated/2])
			_, _ = fmt.Fprintf(r.to, "        ... %d lines more, printed above\n", over)
			f.lines = f.lines[over+repeated/2:]
		}
		r.print(f.lines)
		_, _ = fmt.Fprintf(r.to, "      run it alone: %s\n", f.command)
	}
	_, _ = fmt.Fprintf(r.to, "\n%d packages in %.0fs\n%d passed, %d failed\n", r.packages, time.Since(r.began).Seconds(), r.passed, len(r.failures))
	return len(r.failures) == 0
}
