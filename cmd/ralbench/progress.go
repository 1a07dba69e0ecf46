package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/ral-limiter/ral/bench"
)

// progress shows how far the run has come: a bar on a terminal, a line for each
// workload elsewhere.
type progress struct {
	out      io.Writer
	bar      *progressbar.ProgressBar // nil if out is no terminal
	names    []string
	begun    int
	workload string
	since    time.Time
}

func newProgress(out io.Writer, s settings) *progress {
	p := &progress{out: out, names: bench.Names(s.workloads)}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions64(1,
			progressbar.OptionSetWriter(out),
			progressbar.OptionSetWidth(24),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionSetElapsedTime(true),
			progressbar.OptionClearOnFinish(),
			progressbar.OptionThrottle(0),
		)
	}
	return p
}

// step is told before each step.
func (p *progress) step(at bench.Progress) {
	if at.Workload != p.workload {
		p.workload, p.since = at.Workload, time.Now()
		p.begun++
		if p.bar == nil && at.Workload != "" {
			fmt.Fprintf(p.out, "ralbench: %s (%d of %d) ...\n", at.Workload, p.begun, len(p.names))
		}
	}
	if p.bar == nil {
		return
	}
	p.bar.ChangeMax64(max(at.Total.Milliseconds(), 1))
	p.bar.Describe(fmt.Sprintf("%-11s %-10s %-26s", at.Workload, at.Contender, at.Doing))
	_ = p.bar.Set64(at.Done.Milliseconds()) // the bar is a courtesy
}

// finished is told what came of each workload.
func (p *progress) finished(w bench.WorkloadReport) {
	if p.bar == nil {
		fmt.Fprintf(p.out, "ralbench: %s took %v\n", w.Name, time.Since(p.since).Round(100*time.Millisecond))
	}
}

// end takes the bar away.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
