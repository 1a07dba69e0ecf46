package terminal

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
)

// Width returns the width of the terminal w, or DefaultWidth.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return DefaultWidth
}

// Progress tells each workload of a run in a line, and how long it took.
type Progress struct {
	out      io.Writer
	parts    int           // number of workloads, counted once for each value of GOMAXPROCS
	sweeps   bool          // there are several values of GOMAXPROCS
	most     time.Duration // the budget of the run, 0 for none
	begun    int
	workload string
	cpu      int
	since    time.Time // the beginning of the workload
}

// NewProgress returns the progress of a run of so many workloads, bounded by most unless 0.
func NewProgress(out io.Writer, parts int, sweeps bool, most time.Duration) *Progress {
	return &Progress{out: out, parts: parts, sweeps: sweeps, most: most}
}

// Step is called before each step, and at the end.
func (p *Progress) Step(step bench.Progress) {
	if step.Workload == p.workload && step.CPU == p.cpu {
		return
	}
	p.workload, p.cpu, p.since = step.Workload, step.CPU, time.Now()
	if step.Workload == "" {
		return
	}
	if p.begun++; p.begun == 1 && step.Total > 0 {
		fmt.Fprintln(p.out, p.estimate(step.Total))
	}
	fmt.Fprintf(p.out, "ralbench: %s (%d of %d) ...\n", p.name(step.Workload, step.CPU), p.begun, p.parts)
}

func (p *Progress) estimate(quiet time.Duration) string {
	if p.most > 0 && quiet > p.most {
		return "ralbench: at most " + format.Minutes(p.most)
	}
	text := "ralbench: " + format.Minutes(quiet) + " by estimate, if the machine is quiet"
	if p.most > 0 {
		text += ", and at most " + format.Minutes(p.most)
	}
	return text
}

// Finished shows that a workload is over.
func (p *Progress) Finished(w bench.WorkloadReport) {
	fmt.Fprintf(p.out, "ralbench: %s took %v\n", p.name(w.Name, w.CPU), time.Since(p.since).Round(100*time.Millisecond))
}

// name returns a workload's name, with GOMAXPROCS if there are several values.
func (p *Progress) name(workload string, cpu int) string {
	if p.sweeps && workload != "" && cpu > 0 {
		return fmt.Sprintf("%s/%d", workload, cpu)
	}
	return workload
}
