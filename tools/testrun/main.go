// Testrun runs the steps of make test and make check.
//
//	testrun [-j n] 'name: command' ...
//
// A step is a command and its arguments, split at spaces. NAME=value before them sets a variable of the
// command's environment. Up to n steps run at once. For "go test" the output names each package as it ends.
// The last lines are the processor time of each step, the ten slowest tests, the failures with the commands
// that run them alone, and the number of tests that passed and failed. Any other command counts as a test.
// The exit status is 0 if all passed, 1 if a test or a step failed, and 2 for wrong arguments.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const quiet = 20 * time.Second // silence after which testrun prints the running steps

// step is a command of a run. It is a test run if its command is "go test".
type step struct {
	name string
	env  []string
	args []string
}

func main() {
	atOnce := flag.Int("j", 1, "run up to `n` steps at once")
	flag.Parse()
	steps, err := parseSteps(flag.Args())
	if err == nil && *atOnce < 1 {
		err = fmt.Errorf("-j is %d, want 1 or more", *atOnce)
	}
	var module string
	if err == nil {
		module, err = modulePath()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	passed := runSteps(ctx, newReport(os.Stdout, module, len(steps) > 1), steps, *atOnce)
	if stop(); !passed {
		os.Exit(1)
	}
}

func parseSteps(args []string) ([]step, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("no steps, want 'name: command' for each")
	}
	steps := make([]step, len(args))
	for i, arg := range args {
		name, command, _ := strings.Cut(arg, ": ")
		words := strings.Fields(command)
		variables := 0
		for variables < len(words) && strings.Contains(words[variables], "=") {
			variables++
		}
		steps[i] = step{name, words[:variables], words[variables:]}
		if name == "" || len(steps[i].args) == 0 {
			return nil, fmt.Errorf("step %q, want 'name: command'", arg)
		}
		if slices.ContainsFunc(steps[:i], func(step step) bool { return step.name == name }) {
			return nil, fmt.Errorf("two steps are named %q", name)
		}
	}
	return steps, nil
}

func modulePath() (string, error) {
	mod, err := os.ReadFile("go.mod")
	for line := range strings.Lines(string(mod)) {
		if path, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(path), nil
		}
	}
	if err == nil {
		err = errors.New("go.mod names no module")
	}
	return "", fmt.Errorf("run it in the root of a module: %w", err)
}

func (s step) command() string { return strings.Join(slices.Concat(s.env, s.args), " ") }

func (s step) tests() bool { return len(s.args) > 1 && s.args[1] == "test" }

// alone returns the command that runs a test of a package, or all if test is "", without flags that
// only choose how much is run, or when.
func (s step) alone(pkg, test string) string {
	isPackage := func(arg string) bool { return strings.HasPrefix(arg, ".") }
	first := slices.IndexFunc(s.args, isPackage)
	if !s.tests() || first < 0 {
		return s.command()
	}
	after := first
	for after < len(s.args) && isPackage(s.args[after]) {
		after++
	}
	command := slices.Concat(s.env, s.args[:2])
	for i := 2; i < first; i++ {
		name, _, hasValue := strings.Cut(s.args[i], "=")
		switch name {
		case "-run", "-skip", "-p", "-count", "-timeout":
			if !hasValue {
				i++
			}
		case "-vet":
			if test == "" {
				command = append(command, s.args[i])
			}
		default:
			command = append(command, s.args[i])
		}
	}
	if test != "" {
		command = append(command, "-run", "'^"+test+"$'")
	}
	return strings.Join(append(append(command, pkg), s.args[after:]...), " ")
}

// runSteps runs the steps in order, up to atOnce at a time, and reports whether all passed.
func runSteps(ctx context.Context, report *report, steps []step, atOnce int) bool {
	silent := time.NewTicker(time.Second)
	defer silent.Stop()
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-silent.C:
				report.alive()
			case <-done:
				return
			}
		}
	}()
	var running sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for _, step := range steps {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			report.begin(step)
			report.end(step, run(ctx, report, step))
		})
	}
	running.Wait()
	close(done)
	return report.close()
}

// run runs a step and hands its output to the report. When ctx ends it interrupts the command, as
// Ctrl-C does, and then kills it.
func run(ctx context.Context, report *report, s step) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	args := s.args
	if s.tests() {
		args = slices.Insert(slices.Clone(args), 2, "-json")
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, write := io.Pipe()
	var reading sync.WaitGroup
	read := func(from io.Reader, line func(step, string)) {
		reading.Go(func() {
			lines := bufio.NewReader(from)
			for {
				text, err := lines.ReadString('\n')
				if text != "" {
					line(s, text)
				}
				if err != nil {
					return
				}
			}
		})
	}
	errs, writeErrs := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, writeErrs
	if s.tests() {
		read(out, report.event)
	} else {
		read(out, report.line)
	}
	read(errs, report.line)
	err := cmd.Run()
	_, _ = write.Close(), writeErrs.Close()
	reading.Wait()
	if ended := cmd.ProcessState; ended != nil {
		report.used(s, ended.UserTime()+ended.SystemTime())
	}
	return err
}
