// Mutation takes the safety mechanisms of Ral out, one at a time, and runs the tests
// that should notice:
//
//	go run ./tools/mutation                # all, and write docs/mutations.md
//	go run ./tools/mutation -only horizon  # those whose name matches; others keep their results
//
// The list is in the files list_*.go. Nothing in the work tree is changed: the go
// command is told, by -overlay, to read the changed file from elsewhere. It ends with
// 1 if a mutant survives, if a text to be replaced is not there exactly once, or if the
// tests fail without any mutant.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
	"time"
)

func main() {
	only := flag.String("only", "", "a regular expression: only mutants whose name it matches")
	root := flag.String("root", ".", "the root of the repository")
	jobs := flag.Int("jobs", runtime.NumCPU(), "how many to run at a time")
	limit := flag.Duration("limit", 2*time.Minute, "how long the tests of one mutant may take")
	flag.Parse()

	if err := run(*root, *only, *jobs, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1)
	}
}

func run(root, only string, jobs int, limit time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if jobs < 1 {
		return fmt.Errorf("flag -jobs is %d, want 1 or more", jobs)
	}
	match, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("flag -only: %w", err)
	}
	var chosen []mutation
	for _, m := range all() {
		if match.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("flag -only is %q, which is in the name of no mutant", only)
	}
	if root, err = filepath.Abs(root); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "mutation")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	r := runner{root: root, folder: folder, limit: limit}

	// A test that fails without a mutant would seem to notice each.
	if err := r.sound(ctx, chosen); err != nil {
		return err
	}
	results := make([]result, len(chosen))
	var done sync.WaitGroup
	places := make(chan struct{}, jobs)
	for i, m := range chosen {
		places <- struct{}{}
		done.Go(func() {
			defer func() { <-places }()
			results[i] = r.try(ctx, i, m)
			fmt.Println(results[i])
		})
	}
	done.Wait()

	bad := 0
	for _, r := range results {
		if r.killer == "" {
			bad++
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d mutants were not noticed by their tests", bad, len(results))
	}
	fmt.Printf("all %d mutants were noticed\n", len(results))
	name := filepath.Join(root, reportFile)
	before, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(name, []byte(report(results, string(before))), 0o644)
}
