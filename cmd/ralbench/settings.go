package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/servebench"
	"github.com/ral-limiter/ral/internal/testkit/child"
)

// settings are what a run records of them, and the rest.
type settings struct {
	report.Settings
	mode
	json       string // "" for none, "-" for standard output, else a file
	html       string // "" for none, else a file
	goals      bool   // only the table of goals, and the workloads that it needs
	benchmarks string // "" for none, else a file for benchstat
	shown      string // "" to measure, else the file of a run to show instead
	workloads  []bench.Workload
	contenders []bench.Contender
	missing    []string // contenders that are left out because they are not installed
}

// Bounds and defaults of the flags, and their defaults with -full.
const (
	minDuration, maxDuration, defaultDuration = time.Millisecond, time.Hour, 120 * time.Millisecond
	maxRounds, defaultRounds                  = 1000, 5
	maxCPU                                    = 1024
	minScale, maxScale                        = 0.0001, 1.0
	maxBudget, defaultBudget                  = 24 * time.Hour, 110 * time.Second

	fullDuration = 250 * time.Millisecond
	fullRounds   = 9

	// With -fleet a call may take a hundred times as long, and there are fewer workloads.
	fleetDuration, fleetFullDuration = 200 * time.Millisecond, 500 * time.Millisecond
	fleetBudget                      = 75 * time.Second // for the throughput

	serveDuration, serveFullDuration = time.Second, 3 * time.Second
)

// add adds a flag. read returns the value of a text, or reports false.
func add[T any](flags *flag.FlagSet, name, want string, to *T, read func(text string) (T, bool)) {
	flags.Func(name, "", func(text string) error {
		value, ok := read(text)
		if !ok {
			return fmt.Errorf("want %s", want)
		}
		*to = value
		return nil
	})
}

// within returns a function that reads a value between two bounds.
func within[T cmp.Ordered](least, most T, read func(text string) (T, error)) func(text string) (T, bool) {
	return func(text string) (T, bool) {
		value, err := read(strings.TrimSpace(text))
		return value, err == nil && least <= value && value <= most
	}
}

// listed returns a function that reads values with commas between them, each at most once.
func listed[T comparable](read func(text string) (T, bool)) func(text string) ([]T, bool) {
	return func(text string) (all []T, ok bool) {
		for part := range strings.SplitSeq(text, ",") {
			value, ok := read(part)
			if !ok || slices.Contains(all, value) {
				return nil, false
			}
			all = append(all, value)
		}
		return all, true
	}
}

// given reads a text that is not empty.
func given(text string) (string, bool) { return strings.TrimSpace(text), text != "" }

// parse reads the flags. The error is flag.ErrHelp, or names flag, value and accepted values.
func parse(args []string) (settings settings, err error) {
	settings.Settings = report.Settings{Args: args, CPUs: []int{runtime.GOMAXPROCS(0)}, Scale: 1}
	var names, chosen []string
	flags := flag.NewFlagSet("ralbench", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	add(flags, "duration", fmt.Sprintf("a duration from %v to %v, such as 200ms", minDuration, maxDuration), &settings.Duration, within(minDuration, maxDuration, time.ParseDuration))
	add(flags, "budget", fmt.Sprintf("a duration up to %v, such as 30s, or 0 for no bound", maxBudget), &settings.Budget, within(0, maxBudget, time.ParseDuration))
	add(flags, "rounds", fmt.Sprintf("a whole number from 1 to %d", maxRounds), &settings.Rounds, within(1, maxRounds, strconv.Atoi))
	add(flags, "cpu", fmt.Sprintf("whole numbers from 1 to %d with commas between them, such as 1,2,4", maxCPU), &settings.CPUs, listed(within(1, maxCPU, strconv.Atoi)))
	add(flags, "scale", fmt.Sprintf("a number from %v to %v", minScale, maxScale), &settings.Scale,
		within(minScale, maxScale, func(text string) (float64, error) { return strconv.ParseFloat(text, 64) }))
	const list = "names with commas between them, of "
	var known []string
	for _, mode := range []mode{usual, fleets, servers} {
		known = append(known, strings.Join(bench.Names(mode.workloads(1)), ", "))
	}
	add(flags, "workloads", list+strings.Join(known, ", or in other modes of "), &names, listed(given))
	add(flags, "peers", list+strings.Join(peerNames(), ", ")+", or all, or none", &chosen, listed(given))
	add(flags, "o", "a file to write", &settings.benchmarks, given)
	add(flags, "json", "a file to write, or - for standard output", &settings.json, given)
	add(flags, "html", "a file to write", &settings.html, given)
	flags.BoolVar(&settings.Full, "full", false, "")
	flags.BoolVar(&settings.Fleet, "fleet", false, "")
	flags.BoolVar(&settings.Serve, "serve", false, "")
	flags.BoolVar(&settings.goals, "goals", false, "")
	flags.BoolVar(&settings.Cores, "cores", false, "")
	if len(args) > 0 && args[0] == "help" {
		args = slices.Concat([]string{"-h"}, args[1:])
	}
	if err := flags.Parse(args); err != nil {
		return settings, err
	}
	if settings.shown, err = shown(flags); err != nil {
		return settings, err
	}
	set := map[string]bool{}
	flags.Visit(func(option *flag.Flag) { set[option.Name] = true })
	return settings, settings.complete(set, names, chosen)
}

// mode is a kind of run: what it has in place of flags that were not given, and which flags it has
// not.
type mode struct {
	// name is the flag of the mode, empty for the usual one.
	name string
	// durations are those of a turn, the second with -full.
	durations [2]time.Duration
	budget    time.Duration
	workloads func(scale float64) []bench.Workload
	// contenders returns all, nil if -peers chooses.
	contenders func() []bench.Contender
	without    []string
	// needs returns an error if a program that a run starts is missing. It may be nil.
	needs func([]bench.Workload) error
	// run measures on servers, and returns the version of their Redis. It is nil for limiters in this process.
	run func(context.Context, []bench.Workload, bench.Options) (bench.Report, string, error)
}

var (
	usual = mode{durations: [2]time.Duration{defaultDuration, fullDuration}, budget: defaultBudget, workloads: bench.All}
	// A run of fleet mode always shows its goals.
	fleets = mode{
		name: "-fleet", durations: [2]time.Duration{fleetDuration, fleetFullDuration}, budget: fleetBudget,
		workloads: fleetbench.Workloads, contenders: fleetbench.Contenders, run: fleetbench.Run, without: []string{"peers", "goals"},
		needs: func([]bench.Workload) error { _, err := child.FindRedis(""); return err },
	}
	cores = mode{
		name: "-cores", durations: usual.durations, contenders: always, without: []string{"fleet", "serve", "goals", "peers"},
		workloads: func(scale float64) []bench.Workload {
			return slices.DeleteFunc(bench.All(scale), func(w bench.Workload) bool { return !slices.Contains(report.CoreWorkloads(), w.Name) })
		},
	}
	servers = mode{
		name: "-serve", durations: [2]time.Duration{serveDuration, serveFullDuration}, workloads: servebench.Workloads, contenders: servebench.Contenders,
		run: servebench.Run, needs: servebench.Missing, without: []string{"fleet", "goals", "peers", "cpu", "budget"},
	}
)

// complete fills in the flags that were not given.
func (s *settings) complete(set map[string]bool, names, chosen []string) (err error) {
	s.mode = usual
	switch {
	case s.Cores:
		s.mode = cores
		s.json, s.html = cmp.Or(s.json, coresJSON), cmp.Or(s.html, coresHTML)
		if !set["cpu"] {
			s.CPUs = powersOfTwo(runtime.GOMAXPROCS(0))
		}
	case s.Serve:
		s.mode = servers
	case s.Fleet:
		s.mode = fleets
	}
	for _, flag := range slices.Sorted(maps.Keys(set)) {
		if slices.Contains(s.without, flag) {
			return fmt.Errorf("flag -%s: a run of %s has none; leave one of them out", flag, s.name)
		}
	}
	full := 0
	if s.Full {
		full = 1
	}
	s.Duration = cmp.Or(s.Duration, s.durations[full])
	s.Rounds = cmp.Or(s.Rounds, [2]int{defaultRounds, fullRounds}[full])
	// Rounds that were asked for are not left out.
	asked := s.Full || set["duration"] || set["rounds"]
	if !asked && !set["budget"] {
		s.Budget = s.budget
	}
	s.workloads = s.mode.workloads(s.Scale)
	if s.Brief = !asked && s.name == ""; s.Brief {
		s.workloads = bench.Brief(s.workloads)
	}
	s.workloads = slices.DeleteFunc(s.workloads, func(w bench.Workload) bool {
		// A round of growth takes half a minute, and a goal needs three.
		isLong := s.Brief && w.Name == bench.GrowthWorkload || s.Fleet && !s.Full && fleetbench.IsLong(w)
		return names == nil && isLong || s.goals && !report.HasGoal(w.Name)
	})
	if names != nil {
		if s.workloads, err = bench.Select(s.workloads, names); err != nil {
			return fmt.Errorf("flag -workloads: %w", err)
		}
	}
	if s.mode.contenders != nil {
		s.contenders = s.mode.contenders()
		return nil
	}
	if s.contenders, s.missing, err = choose(chosen, s.Full, s.workloads); err != nil {
		return fmt.Errorf("flag -peers: %w", err)
	}
	return nil
}

// shown returns the run to show, an argument that is no flag. It excludes flags about measuring.
func shown(flags *flag.FlagSet) (file string, err error) {
	if flags.NArg() > 1 {
		return "", fmt.Errorf("argument %q: ralbench takes only flags, and after them one file that ralbench -json has written", flags.Arg(1))
	}
	if flags.NArg() == 1 {
		flags.Visit(func(flag *flag.Flag) {
			if !slices.Contains([]string{"html", "o", "goals"}, flag.Name) {
				err = fmt.Errorf("flag -%s: nothing is measured when a run is given to be shown, %q; only -html, -o and -goals go with it", flag.Name, flags.Arg(0))
			}
		})
	}
	return flags.Arg(0), err
}
