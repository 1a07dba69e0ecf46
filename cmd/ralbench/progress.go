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
	parts    int                      // workloads, once for each value of GOMAXPROCS
	begun    int
	workload string
	cpu      int
	sweeps   bool
	since    time.Time
}

func newProgress(out io.Writer, s settings) *progress {
	p := &progress{out: out, parts: len(s.workloads) * len(s.cpus), sweeps: len(s.cpus) > 1}
	if s.fleet {
		p.parts++ // memory
		if s.share > 0 {
			p.parts++
		}
	}
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
	if at.Workload != p.workload || at.CPU != p.cpu {
		if p.begun == 0 && p.bar == nil && at.Total > 0 {
			fmt.Fprintf(p.out, "ralbench: %s by estimate, if the machine is quiet\n", minutes(at.Total))
		}
		p.workload, p.cpu, p.since = at.Workload, at.CPU, time.Now()
		if at.Workload != "" {
			p.begun++
		}
		if p.bar == nil && at.Workload != "" {
			fmt.Fprintf(p.out, "ralbench: %s (%d of %d) ...\n", p.name(at.Workload, at.CPU), p.begun, p.parts)
		}
	}
	if p.bar == nil {
		return
	}
	p.bar.ChangeMax64(max(at.Total.Milliseconds(), 1))
	p.bar.Describe(fmt.Sprintf("%-11s %-15s %-26s", p.name(at.Workload, at.CPU), at.Contender, at.Doing))
	_ = p.bar.Set64(at.Done.Milliseconds()) // the bar is a courtesy
}

// finished is told what came of each workload.
func (p *progress) finished(w bench.WorkloadReport) {
	if p.bar == nil {
		fmt.Fprintf(p.out, "ralbench: %s took %v\n", p.name(w.Name, w.CPU), time.Since(p.since).Round(100*time.Millisecond))
	}
}

// name returns a workload's name, with GOMAXPROCS if there are several values.
func (p *progress) name(workload string, cpu int) string {
	if p.sweeps && workload != "" && cpu > 0 {
		return fmt.Sprintf("%s/%d", workload, cpu)
	}
	return workload
}

// minutes writes how long something takes, roughly.
func minutes(d time.Duration) string {
	if d < 2*time.Minute {
		return fmt.Sprintf("%.0f seconds", max(d.Seconds(), 1))
	}
	return fmt.Sprintf("%.0f minutes", d.Minutes())
}

// end takes the bar away.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
