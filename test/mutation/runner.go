package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// runner runs tests in the repository at root, with its own files in folder.
type runner struct {
	root, folder string
	limit        time.Duration
}

type result struct {
	mutant
	killer string // the test that noticed; "" if none did
	took   time.Duration
	why    string // the problem if none did
}

func (r result) String() string {
	if r.killer == "" {
		return fmt.Sprintf("SURVIVES  %s (%s): %s", r.name, strings.Join(r.changes, ", "), r.why)
	}
	return fmt.Sprintf("noticed   %s: %s, %.1fs", r.name, r.killer, r.took.Seconds())
}

// sound runs all named tests without a mutant.
func (r runner) sound(ctx context.Context, chosen []mutant) error {
	patterns := map[string][]string{}
	for _, mutant := range chosen {
		if !slices.Contains(patterns[mutant.pkg], mutant.tests) {
			patterns[mutant.pkg] = append(patterns[mutant.pkg], mutant.tests)
		}
	}
	for pkg, tests := range patterns {
		ran, failed, out, err := r.test(ctx, pkg, strings.Join(tests, "|"), "", r.limit)
		switch {
		case err != nil:
			return fmt.Errorf("%s without any mutant: %w\n%s", pkg, err, out)
		case ran == 0:
			return fmt.Errorf("%s has no test %s", pkg, strings.Join(tests, "|"))
		case failed != "":
			return fmt.Errorf("%s: %s fails without any mutant\n%s", pkg, failed, out)
		}
	}
	return nil
}

func (r runner) try(ctx context.Context, number int, mutant mutant) result {
	begin := time.Now()
	overlay, err := r.overlay(number, mutant)
	if err != nil {
		return result{mutant: mutant, why: err.Error()}
	}
	ran, failed, out, err := r.test(ctx, mutant.pkg, mutant.tests, overlay, cmp.Or(mutant.limit, r.limit))
	took := time.Since(begin)
	switch {
	case err != nil:
		return result{mutant: mutant, why: err.Error() + "\n" + out}
	case ran == 0:
		return result{mutant: mutant, why: "no test has run\n" + out}
	case failed == "":
		return result{mutant: mutant, why: fmt.Sprintf("%d tests passed", ran)}
	}
	return result{mutant: mutant, killer: failed, took: took}
}

// overlay writes the changed files, and the file that has the go command read them.
func (r runner) overlay(number int, mutant mutant) (name string, err error) {
	folder := filepath.Join(r.folder, fmt.Sprint(number))
	if err := os.Mkdir(folder, 0o700); err != nil {
		return "", err
	}
	if err := mutant.apply(r.root, folder); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for _, file := range mutant.changes {
		file = filepath.FromSlash(file)
		replace[filepath.Join(r.root, file)] = filepath.Join(folder, file)
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name = folder + ".json"
	return name, os.WriteFile(name, content, 0o600)
}

// test runs tests until one fails. It returns how many began and the failed test, also if its
// process died or took too long. The error says why there is no answer, such as a failure to
// compile.
func (r runner) test(ctx context.Context, pkg, tests, overlay string, limit time.Duration) (ran int, failed, out string, err error) {
	// The go command enforces -timeout; the context ends a go command that hangs.
	ctx, stop := context.WithTimeout(ctx, limit+5*time.Minute)
	defer stop()
	args := []string{"test", "-json", "-count=1", "-vet=off", "-failfast", "-timeout", limit.String(), "-run", tests}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	cmd.Dir = r.root
	cmd.WaitDelay = time.Second
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		return 0, "", string(output), fmt.Errorf("go test: %w", errors.Join(err, ctx.Err()))
	}
	var text strings.Builder
	var atWork []string
	for line := range bytes.Lines(output) {
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(line, &event) != nil {
			text.Write(line)
			continue
		}
		text.WriteString(event.Output)
		switch {
		case event.Test == "" || strings.Contains(event.Test, "/"):
		case event.Action == "run":
			ran++
			atWork = append(atWork, event.Test)
		case event.Action == "fail":
			if failed == "" {
				failed = event.Test
			}
			fallthrough
		case event.Action == "pass" || event.Action == "skip":
			atWork = slices.DeleteFunc(atWork, func(t string) bool { return t == event.Test })
		}
	}
	out = text.String()
	out = out[max(0, len(out)-4096):] // where the failure is
	switch {
	case exit == nil && failed == "":
		return ran, "", out, nil
	case failed == "" && len(atWork) > 0:
		failed = atWork[len(atWork)-1]
	case failed == "":
		return ran, "", out, errors.New("the tests could not be run")
	}
	return ran, failed, out, nil
}
