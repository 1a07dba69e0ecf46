package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/servebench"
)

// settings are what a run records of them, and the rest.
type settings struct {
	report.Settings
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
	minScale, maxScale, defaultScale          = 0.0001, 1.0, 1.0
	maxBudget, defaultBudget                  = 24 * time.Hour, 110 * time.Second

	fullDuration = 250 * time.Millisecond
	fullRounds   = 9

	// With -fleet a call may take a hundred times as long, and there are fewer workloads.
	fleetDuration, fleetFullDuration = 200 * time.Millisecond, 500 * time.Millisecond
	fleetBudget                      = 75 * time.Second // for the throughput
	fleetShare, fleetFullShare       = 15 * time.Second, 30 * time.Second
	minShare, maxShare               = 100 * time.Millisecond, time.Hour

	serveDuration, serveFullDuration = time.Second, 3 * time.Second
)

// parse reads the flags. The error is flag.ErrHelp, or names flag, value and accepted values.
func parse(args []string) (settings, error) {
	s := settings{Settings: report.Settings{Args: args, Duration: defaultDuration, Rounds: defaultRounds, CPUs: []int{runtime.GOMAXPROCS(0)}, Scale: defaultScale}}
	var names, chosen []string

	flags := flag.NewFlagSet("ralbench", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	add := func(name, want string, set func(string) bool) {
		flags.Func(name, "", func(value string) error {
			if !set(value) {
				return fmt.Errorf("want %s", want)
			}
			return nil
		})
	}
	duration := func(name, want string, to *time.Duration, least, most time.Duration, zero bool) {
		add(name, want, func(v string) (ok bool) {
			d, err := time.ParseDuration(v)
			*to = d
			return err == nil && (zero && d == 0 || least <= d && d <= most)
		})
	}
	duration("duration", fmt.Sprintf("a duration from %v to %v, such as 200ms", minDuration, maxDuration), &s.Duration, minDuration, maxDuration, false)
	duration("budget", fmt.Sprintf("a duration up to %v, such as 30s, or 0 for no bound", maxBudget), &s.Budget, 0, maxBudget, true)
	duration("share", fmt.Sprintf("a duration from %v to %v, such as 15s, or 0 for none", minShare, maxShare), &s.Share, minShare, maxShare, true)
	add("rounds", fmt.Sprintf("a whole number from 1 to %d", maxRounds), func(v string) bool {
		return whole(v, maxRounds, &s.Rounds)
	})
	add("cpu", fmt.Sprintf("whole numbers from 1 to %d with commas between them, such as 1,2,4", maxCPU), func(v string) bool {
		s.CPUs = nil
		for number := range strings.SplitSeq(v, ",") {
			cpu := 0
			if !whole(strings.TrimSpace(number), maxCPU, &cpu) || slices.Contains(s.CPUs, cpu) {
				return false
			}
			s.CPUs = append(s.CPUs, cpu)
		}
		return true
	})
	add("scale", fmt.Sprintf("a number from %v to %v", minScale, maxScale), func(v string) bool {
		x, err := strconv.ParseFloat(v, 64)
		s.Scale = x
		return err == nil && !math.IsNaN(x) && minScale <= x && x <= maxScale
	})
	list := func(name, known string, to *[]string) {
		add(name, "names with commas between them, of "+known, func(v string) bool {
			*to = nil
			for name := range strings.SplitSeq(v, ",") {
				if name = strings.TrimSpace(name); name != "" {
					*to = append(*to, name)
				}
			}
			return len(*to) > 0
		})
	}
	list("workloads", workloadNames(bench.All)+", or with -fleet of "+workloadNames(fleetbench.Workloads)+", or with -serve of "+workloadNames(servebench.Workloads), &names)
	list("peers", strings.Join(peerNames(), ", ")+", or all, or none", &chosen)
	flags.BoolVar(&s.Full, "full", false, "")
	flags.BoolVar(&s.Fleet, "fleet", false, "")
	flags.BoolVar(&s.Serve, "serve", false, "")
	flags.BoolVar(&s.goals, "goals", false, "")
	flags.BoolVar(&s.Cores, "cores", false, "")
	file := func(name, want string, to *string) {
		add(name, want, func(v string) bool {
			*to = v
			return v != ""
		})
	}
	file("o", "a file to write", &s.benchmarks)
	file("json", "a file to write, or nothing for standard output", &s.json)
	file("html", "a file to write", &s.html)
	if err := flags.Parse(withFile(args)); err != nil {
		return s, err
	}
	var err error
	if s.shown, err = shown(flags); err != nil {
		return s, err
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	return s, s.complete(given, names, chosen)
}

// mode is a kind of run: what it has in place of flags that were not given, and which flags it has
// not.
type mode struct {
	durations, shares [2]time.Duration // the second with -full
	budget            time.Duration
	workloads         func(scale float64) []bench.Workload
	contenders        func() []bench.Contender // nil if -peers chooses
	without           map[string]string        // why, by flag
}

const manyCores = "a run of -cores has none; leave one of them out"

const alone = "a run of -serve has none; leave one of them out"

var (
	usual = mode{
		durations: [2]time.Duration{defaultDuration, fullDuration}, budget: defaultBudget, workloads: bench.All,
		without: map[string]string{"share": "only fleet mode has shares: give -fleet as well"},
	}
	fleets = mode{
		durations: [2]time.Duration{fleetDuration, fleetFullDuration}, shares: [2]time.Duration{fleetShare, fleetFullShare},
		budget: fleetBudget, workloads: fleetbench.Workloads, contenders: fleetbench.Contenders,
		without: map[string]string{
			"peers": "with -fleet the contenders are always the same; leave one of them out",
			"goals": "a run of -fleet always shows its goals; leave one of them out",
		},
	}
	cores = mode{
		durations: [2]time.Duration{defaultDuration, fullDuration}, contenders: always,
		workloads: func(scale float64) []bench.Workload {
			return slices.DeleteFunc(bench.All(scale), func(w bench.Workload) bool { return !slices.Contains(report.CoreWorkloads(), w.Name) })
		},
		without: map[string]string{"fleet": manyCores, "serve": manyCores, "goals": manyCores, "peers": manyCores, "share": manyCores},
	}
	servers = mode{
		durations: [2]time.Duration{serveDuration, serveFullDuration}, workloads: servebench.Workloads, contenders: servebench.Contenders,
		without: map[string]string{"fleet": alone, "goals": alone, "peers": alone, "cpu": alone, "budget": alone, "share": alone},
	}
)

// complete fills in the flags that were not given.
func (s *settings) complete(given map[string]bool, names, chosen []string) (err error) {
	mode := usual
	switch {
	case s.Cores:
		mode = cores
		s.json, s.html = cmp.Or(s.json, coresJSON), cmp.Or(s.html, coresHTML)
		if !given["cpu"] {
			s.CPUs = powersOfTwo(runtime.GOMAXPROCS(0))
		}
	case s.Serve:
		mode = servers
	case s.Fleet:
		mode = fleets
	}
	for _, flag := range slices.Sorted(maps.Keys(given)) {
		if why := mode.without[flag]; why != "" {
			return fmt.Errorf("flag -%s: %s", flag, why)
		}
	}
	full := 0
	if s.Full {
		full = 1
	}
	if !given["duration"] {
		s.Duration = mode.durations[full]
	}
	if !given["rounds"] {
		s.Rounds = [2]int{defaultRounds, fullRounds}[full]
	}
	if !given["share"] {
		s.Share = mode.shares[full]
	}
	// Rounds that were asked for are not left out.
	asked := s.Full || given["duration"] || given["rounds"]
	if !asked && !given["budget"] {
		s.Budget = mode.budget
	}
	s.workloads = mode.workloads(s.Scale)
	if s.Brief = !asked && !s.Fleet && !s.Serve && !s.Cores; s.Brief {
		s.workloads = bench.Brief(s.workloads)
	}
	if s.Brief && names == nil {
		// A round of it takes half a minute, and a goal needs three.
		s.workloads = slices.DeleteFunc(s.workloads, func(w bench.Workload) bool { return w.Name == bench.GrowthWorkload })
	}
	if s.Fleet && names == nil {
		s.workloads = fleetbench.Chosen(s.workloads, s.Full, s.Share)
	}
	if s.goals {
		s.workloads = slices.DeleteFunc(s.workloads, func(w bench.Workload) bool { return !report.HasGoal(w.Name) })
	}
	if names != nil {
		if s.workloads, err = bench.Select(s.workloads, names); err != nil {
			return fmt.Errorf("flag -workloads: %w", err)
		}
	}
	if mode.contenders != nil {
		s.contenders = mode.contenders()
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

// withFile writes -json without a file as -json=-, and help as -h.
func withFile(args []string) []string {
	var out []string
	if len(args) > 0 && args[0] == "help" {
		args = slices.Concat([]string{"-h"}, args[1:])
	}
	for i, arg := range args {
		if (arg == "-json" || arg == "--json") && (i+1 == len(args) || strings.HasPrefix(args[i+1], "-")) {
			arg = "-json=-"
		}
		out = append(out, arg)
	}
	return out
}

func whole(v string, most int, to *int) bool {
	n, err := strconv.Atoi(v)
	*to = n
	return err == nil && 1 <= n && n <= most
}

func workloadNames(known func(scale float64) []bench.Workload) string {
	return strings.Join(bench.Names(known(1)), ", ")
}
