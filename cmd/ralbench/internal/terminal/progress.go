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
	if file, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return DefaultWidth
}

// Progress tells each workload of a run in a line, and how long it took.
type Progress struct {
	out io.Writer
	// parts is the number of workloads, counted once for each value of GOMAXPROCS.
	parts int
	// sweeps reports whether there are several values of GOMAXPROCS.
	sweeps bool
	// most is the budget of the run, 0 for none.
	most  time.Duration
	begun int
	// name is the workload's, with GOMAXPROCS if there are several values, and since is its beginning.
	name  string
	since time.Time
}

// NewProgress returns the progress of a run of so many workloads, bounded by most unless 0.
func NewProgress(out io.Writer, parts int, sweeps bool, most time.Duration) *Progress {
	return &Progress{out: out, parts: parts, sweeps: sweeps, most: most}
}

// Step is called before each step, and at the end.
func (p *Progress) Step(step bench.Progress) {
	name := step.Workload
	if p.sweeps && name != "" {
		name = fmt.Sprintf("%s/%d", name, step.CPU)
	}
	if name == p.name {
		return
	}
	if p.name != "" {
		fmt.Fprintf(p.out, "ralbench: %s took %v\n", p.name, time.Since(p.since).Round(100*time.Millisecond))
	}
	if p.name, p.since = name, time.Now(); name == "" {
		return
	}
	if p.begun++; p.begun == 1 && step.Total > 0 {
		fmt.Fprintln(p.out, p.estimate(step.Total))
	}
	fmt.Fprintf(p.out, "ralbench: %s (%d of %d) ...\n", name, p.begun, p.parts)
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
