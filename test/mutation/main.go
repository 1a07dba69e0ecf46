// Mutation removes the safety mechanisms of Ral in turn and runs the tests that should notice:
//
//	go run ./test/mutation                # in random order, for an hour; says which are left out
//	go run ./test/mutation -for 0         # all of them, which takes hours
//	go run ./test/mutation -only horizon  # those whose name matches
//	go run ./test/mutation -only ^cell/   # those of a package
//	go run ./test/mutation -o results.md  # writes the results as a table
//
// A mutant is a patch in test/mutation/mutants with a heading that names the mechanism and the
// tests: see docs/mutations.md. The go command reads changed files by -overlay, so the work tree
// stays unchanged. The exit status is 1 if a mutant survives, a patch does not apply, or tests fail
// without mutants.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
	"time"
)

func main() {
	only := flag.String("only", "", "a regular expression: only mutants whose name, or whose patch's path within mutants, it matches")
	root := flag.String("root", ".", "the root of the repository")
	out := flag.String("o", "", "the file to write the results to, as a Markdown table; - is standard output, and none if empty")
	jobs := flag.Int("jobs", runtime.NumCPU(), "how many to run at a time")
	length := flag.Duration("for", time.Hour, "how long to begin mutants; 0 is until all are tried")
	limit := flag.Duration("limit", 2*time.Minute, "how long the tests of one mutant may take")
	flag.Parse()

	if err := run(*root, *only, *out, *jobs, *length, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1)
	}
}

func run(root, only, out string, jobs int, length, limit time.Duration) error {
	began := time.Now()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if jobs < 1 {
		return fmt.Errorf("flag -jobs is %d, want 1 or more", jobs)
	}
	if length < 0 {
		return fmt.Errorf("flag -for is %v, want 0 or more", length)
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	all, err := readMutants(root)
	if err != nil {
		return err
	}
	chosen, err := choose(all, only)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "mutation")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	r := runner{root: root, folder: folder, limit: limit}

	// A test that fails without a mutant would seem to notice everything.
	if err := r.sound(ctx, chosen); err != nil {
		return err
	}
	var end time.Time
	if length > 0 {
		end = began.Add(length)
		rand.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	}
	results := r.tryAll(ctx, chosen, jobs, end)
	left := chosen[len(results):]
	survivors := 0
	for _, result := range results {
		if result.killer == "" {
			survivors++
		}
	}
	if out != "" {
		if err := writeTable(out, table(results, left)); err != nil {
			return err
		}
	}
	if survivors > 0 {
		return fmt.Errorf("%d of %d mutants were not noticed by their tests", survivors, len(results))
	}
	for _, mutant := range left {
		fmt.Println("left out ", mutant.name)
	}
	fmt.Printf("all %d mutants tried were noticed; %d left out\n", len(results), len(left))
	return nil
}

// choose returns the mutants with a name or path that matches.
func choose(all []mutant, only string) (chosen []mutant, err error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("flag -only: %w", err)
	}
	for _, mutant := range all {
		if match.MatchString(mutant.name) || match.MatchString(mutant.path) {
			chosen = append(chosen, mutant)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("flag -only is %q, which matches the name or path of no mutant", only)
	}
	return chosen, nil
}

// tryAll tries the mutants in order, so many at a time, and prints results and progress. It begins
// none after end, unless that is zero.
func (r runner) tryAll(ctx context.Context, chosen []mutant, jobs int, end time.Time) []result {
	results := make([]result, len(chosen))
	var done sync.WaitGroup
	var mu sync.Mutex
	finished := 0
	places := make(chan struct{}, jobs)
	begun := 0
	for i, mutant := range chosen {
		places <- struct{}{}
		if !end.IsZero() && time.Now().After(end) {
			break
		}
		begun++
		done.Go(func() {
			defer func() { <-places }()
			results[i] = r.try(ctx, i, mutant)
			mu.Lock()
			defer mu.Unlock()
			finished++
			fmt.Printf("%4d of %d  %v\n", finished, len(chosen), results[i])
		})
	}
	done.Wait()
	return results[:begun]
}

// writeTable writes the table to a file, or to standard output if its name is -.
func writeTable(name, table string) error {
	if name == "-" {
		_, err := os.Stdout.WriteString(table)
		return err
	}
	return os.WriteFile(name, []byte(table), 0o644)
}
