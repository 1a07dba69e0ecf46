package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/bench"
)

// path is a way through Choke on a known key, and the locked instructions on it. A test counts them
// in the compiled code.
type path struct {
	name   string
	shared int // on the entry's cache line, which callers of the key share
	own    int // on a stripe of the tally, which other goroutines seldom use
}

var (
	admitted = path{"admitted", 1, 1}
	refused  = path{"refused", 0, 1}
)

// transfers are the times that a compare-and-swap needs for a line that another core has changed,
// and the cores for which the model takes them: about 120, 320 and 430 cycles of a Xeon of 2.13 GHz
// with the other core on the same die, one hop and two hops away, in David, Guerraoui and
// Trigonakis, Everything you always wanted to know about synchronization, SOSP 2013.
var transfers = []struct {
	cores int
	time  float64 // in nanoseconds
}{{8, 56}, {16, 56}, {32, 150}, {128, 202}}

// cost returns the nanoseconds of processor time of a call on N cores that all call all the time.
// alone is the cost on one core.
//
// The cores hand a hot key's line round, so that a call waits for the N-1 others. A key drawn with
// share s of all calls has its line last written by another core in all but 1/N of them, and
// becomes a queue once its admissions need all the time that there is.
func (p path) cost(alone, transfer float64, cores int, share float64) float64 {
	n := float64(cores)
	moved := alone + float64(p.shared)*transfer*(n-1)/n
	return max(moved, float64(p.shared)*transfer*n*share)
}

// topShare is the share of the most frequent of n keys under Zipf's law.
func topShare(n int) float64 {
	sum := 0.0
	for i := 1; i <= n; i++ {
		sum += 1 / float64(i)
	}
	return 1 / sum
}

// writeModel prints the costs by the model, beside the measured costs of this machine.
func writeModel(w io.Writer, turn time.Duration) error {
	hot, err := measureHot(turn)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "Locked instructions of Choke on a known key, on shared and on own cache lines: admitted %d and %d, refused %d and %d.\n",
		admitted.shared, admitted.own, refused.shared, refused.own)
	fmt.Fprintf(w, "Measured here, ns of processor time a call: 1 caller admitted %.0f, refused %.0f; %d callers of a hot key %.0f, %.0f; of a bare word %.0f.\n\n",
		hot[0].admitted, hot[0].refused, runtime.GOMAXPROCS(0), hot[1].admitted, hot[1].refused, hot[1].word)
	row := func(name, format string, figure func(cores int, time float64) float64) {
		fmt.Fprintf(w, "%-31s", name)
		for _, t := range transfers {
			fmt.Fprintf(w, format, figure(t.cores, t.time))
		}
		fmt.Fprintln(w)
	}
	row("By the model, on cores", "%7.0f", func(cores int, _ float64) float64 { return float64(cores) })
	for _, r := range []struct {
		name  string
		path  path
		alone float64
		share float64
	}{
		{"hot key, admitted", admitted, hot[0].admitted, 1},
		{"hot key, refused", refused, hot[0].refused, 1},
		{"Zipf over a million, admitted", admitted, hot[0].admitted, topShare(1_000_000)},
		{"uniform over 100,000, admitted", admitted, hot[0].admitted, 1e-5},
	} {
		row(r.name, "%7.0f", func(cores int, time float64) float64 { return r.path.cost(r.alone, time, cores, r.share) })
	}
	row("most admissions of a key, M/s", "%7.1f", func(_ int, time float64) float64 { return 1000 / time })
	fmt.Fprint(w, "\nMisses of memory come on top. A refused call writes no shared line, so only limits above the last row\nwould gain from capacity that is lent to cores.\n")
	return nil
}

// hotCost holds nanoseconds of processor time a call.
type hotCost struct{ admitted, refused, word float64 }

// measureHot measures one caller, and a caller for each processor. The cost is the least of five
// turns.
func measureHot(turn time.Duration) (costs [2]hotCost, err error) {
	word := bench.Contender{Name: "word", New: func(bench.Setup) (bench.Limiter, error) {
		word := new(atomic.Uint64)
		return bench.Limiter{Ask: func(keys []string) int {
			return bench.AskEach(keys, func(string) bool {
				for old := word.Load(); !word.CompareAndSwap(old, old+1); old = word.Load() {
				}
				return true
			})
		}}, nil
	}}
	hot, err := bench.Select(bench.Standard(1), []string{"hot-pass", "hot-refused"})
	if err != nil {
		return costs, err
	}
	for i, callers := range []int{1, runtime.GOMAXPROCS(0)} {
		report, err := bench.Run(context.Background(), hot, []bench.Contender{bench.Ral(), word}, bench.Options{Duration: turn, Rounds: 5, Callers: callers})
		if err != nil {
			return costs, err
		}
		passed, shut := report.Workloads[0].Results, report.Workloads[1].Results
		costs[i] = hotCost{passed[0].NsPerOp.Min, shut[0].NsPerOp.Min, passed[1].NsPerOp.Min}
	}
	return costs, nil
}
