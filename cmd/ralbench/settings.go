package main

import (
	"flag"
	"fmt"
	"io"
	"math"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/ral-limiter/ral/bench"
)

// settings are what the flags say.
type settings struct {
	duration  time.Duration
	rounds    int
	cpu       int
	scale     float64
	budget    time.Duration // 0 for none
	json      string        // "" for none, "-" for standard output, else a file
	workloads []bench.Workload
}

// What the flags accept, and take if they are not given.
const (
	minDuration, maxDuration, defaultDuration = time.Millisecond, time.Hour, 120 * time.Millisecond
	maxRounds, defaultRounds                  = 1000, 5
	maxCPU                                    = 1024
	minScale, maxScale, defaultScale          = 0.0001, 1.0, 1.0
	maxBudget, defaultBudget                  = 24 * time.Hour, 40 * time.Second
)

// parse reads the flags. The error is flag.ErrHelp, or names the flag, the value
// and what is accepted.
func parse(args []string) (settings, error) {
	s := settings{duration: defaultDuration, rounds: defaultRounds, cpu: runtime.GOMAXPROCS(0), scale: defaultScale}
	var names []string

	f := flag.NewFlagSet("ralbench", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	add := func(name, want string, set func(string) bool) {
		f.Func(name, "", func(value string) error {
			if !set(value) {
				return fmt.Errorf("want %s", want)
			}
			return nil
		})
	}
	add("duration", fmt.Sprintf("a duration from %v to %v, such as 200ms", minDuration, maxDuration), func(v string) (ok bool) {
		d, err := time.ParseDuration(v)
		s.duration = d
		return err == nil && minDuration <= d && d <= maxDuration
	})
	add("rounds", fmt.Sprintf("a whole number from 1 to %d", maxRounds), func(v string) bool {
		return whole(v, maxRounds, &s.rounds)
	})
	add("cpu", fmt.Sprintf("a whole number from 1 to %d", maxCPU), func(v string) bool {
		return whole(v, maxCPU, &s.cpu)
	})
	add("scale", fmt.Sprintf("a number from %v to %v", minScale, maxScale), func(v string) bool {
		x, err := strconv.ParseFloat(v, 64)
		s.scale = x
		return err == nil && !math.IsNaN(x) && minScale <= x && x <= maxScale
	})
	add("budget", fmt.Sprintf("a duration up to %v, such as 30s, or 0 for no bound", maxBudget), func(v string) bool {
		d, err := time.ParseDuration(v)
		s.budget = d
		return err == nil && 0 <= d && d <= maxBudget
	})
	add("workloads", "names with commas between them, of "+known(), func(v string) bool {
		names = nil
		for name := range strings.SplitSeq(v, ",") {
			if name = strings.TrimSpace(name); name != "" {
				names = append(names, name)
			}
		}
		return len(names) > 0
	})
	add("json", "a file to write, or nothing for standard output", func(v string) bool {
		s.json = v
		return v != ""
	})

	if err := f.Parse(withFile(args)); err != nil {
		return s, err
	}
	// Who asks for rounds gets them.
	given := false
	f.Visit(func(f *flag.Flag) {
		given = given || f.Name == "duration" || f.Name == "rounds" || f.Name == "budget"
	})
	if !given {
		s.budget = defaultBudget
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("argument %q: ralbench takes none, only flags", f.Arg(0))
	}
	s.workloads = bench.Standard(s.scale)
	if names != nil {
		var err error
		if s.workloads, err = bench.Select(s.workloads, names); err != nil {
			return s, fmt.Errorf("flag -workloads: %w", err)
		}
	}
	return s, nil
}

// withFile writes -json without a file as -json=-, so that the file may be left
// out.
func withFile(args []string) []string {
	var out []string
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

func known() string { return strings.Join(bench.Names(bench.Standard(1)), ", ") }

// recorded is how the settings are written down beside the figures.
type recorded struct {
	Duration  time.Duration `json:"duration_ns"`
	Rounds    int           `json:"rounds"`
	CPU       int           `json:"cpu"`
	Scale     float64       `json:"scale"`
	Budget    time.Duration `json:"budget_ns"`
	Workloads []string      `json:"workloads"`
}

func (s settings) record() recorded {
	return recorded{s.duration, s.rounds, s.cpu, s.scale, s.budget, bench.Names(s.workloads)}
}
