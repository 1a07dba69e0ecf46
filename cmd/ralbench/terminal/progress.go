package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
)

// Width returns the width of the terminal that w is, or DefaultWidth if it is none.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return DefaultWidth
}

// Progress shows how far a run has come: a bar on a terminal, a line for each
// workload elsewhere.
type Progress struct {
	out      io.Writer
	bar      bool // out is a terminal
	parts    int  // number of workloads, counted once for each value of GOMAXPROCS
	sweeps   bool // there are several values of GOMAXPROCS
	begun    int
	workload string
	cpu      int
	since    time.Time // the beginning of the workload
	start    time.Time // the beginning of the run
}

// NewProgress returns the progress of a run of so many workloads.
func NewProgress(out io.Writer, parts int, sweeps bool) *Progress {
	p := &Progress{out: out, parts: parts, sweeps: sweeps, start: time.Now()}
	if f, ok := out.(*os.File); ok {
		p.bar = term.IsTerminal(int(f.Fd()))
	}
	return p
}

// Step shows a step. It is called before each step, and at the end.
func (p *Progress) Step(at bench.Progress) {
	if at.Workload != p.workload || at.CPU != p.cpu {
		if p.begun == 0 && !p.bar && at.Total > 0 {
			fmt.Fprintf(p.out, "ralbench: %s by estimate, if the machine is quiet\n", format.Minutes(at.Total))
		}
		p.workload, p.cpu, p.since = at.Workload, at.CPU, time.Now()
		if at.Workload != "" {
			p.begun++
		}
		if !p.bar && at.Workload != "" {
			fmt.Fprintf(p.out, "ralbench: %s (%d of %d) ...\n", p.name(at.Workload, at.CPU), p.begun, p.parts)
		}
	}
	if p.bar {
		fmt.Fprint(p.out, "\r\x1b[K"+p.render(at, time.Since(p.start), Width(p.out)))
	}
}

// barWidth is the width of the bar without the texts around it.
const barWidth = 24

// render returns the line that shows a step. The time left goes by the speed so far.
func (p *Progress) render(at bench.Progress, elapsed time.Duration, width int) string {
	share := 1.0
	if at.Total > 0 {
		share = min(float64(at.Done)/float64(at.Total), 1)
	}
	full := int(share * barWidth)
	line := fmt.Sprintf("%3d%% %s%s %s", int(100*share), strings.Repeat("█", full), strings.Repeat("░", barWidth-full), elapsed.Round(time.Second))
	if share > 0 && share < 1 {
		left := time.Duration(float64(elapsed) * (1 - share) / share)
		line += ", " + left.Round(time.Second).String() + " left"
	}
	for _, part := range []string{p.name(at.Workload, at.CPU), at.Contender, at.Doing} {
		if part != "" {
			line += "  " + part
		}
	}
	// A line that is too long would scroll the terminal.
	for utf8.RuneCountInString(line) >= width {
		_, n := utf8.DecodeLastRuneInString(line)
		line = line[:len(line)-n]
	}
	return line
}

// Finished shows that a workload is over.
func (p *Progress) Finished(w bench.WorkloadReport) {
	if !p.bar {
		fmt.Fprintf(p.out, "ralbench: %s took %v\n", p.name(w.Name, w.CPU), time.Since(p.since).Round(100*time.Millisecond))
	}
}

// name returns a workload's name, with GOMAXPROCS if there are several values.
func (p *Progress) name(workload string, cpu int) string {
	if p.sweeps && workload != "" && cpu > 0 {
		return fmt.Sprintf("%s/%d", workload, cpu)
	}
	return workload
}

// End leaves the bar as it is and ends its line.
func (p *Progress) End() {
	if p.bar {
		fmt.Fprintln(p.out)
	}
}
