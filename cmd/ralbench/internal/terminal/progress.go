package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
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

// Progress shows the progress of a run: a bar on a terminal, a line per workload elsewhere.
type Progress struct {
	out      io.Writer
	bar      *progressbar.ProgressBar // nil if out is no terminal
	parts    int                      // number of workloads, counted once for each value of GOMAXPROCS
	sweeps   bool                     // there are several values of GOMAXPROCS
	most     time.Duration            // the budget of the run, 0 for none
	begun    int
	workload string
	cpu      int
	since    time.Time // the beginning of the workload
}

// NewProgress returns the progress of a run of so many workloads, bounded by most unless 0.
func NewProgress(out io.Writer, parts int, sweeps bool, most time.Duration) *Progress {
	p := &Progress{out: out, parts: parts, sweeps: sweeps, most: most}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = newBar(out)
	}
	return p
}

// barWidth is the width of the bar alone. The library narrows it on narrow terminals.
const barWidth = 24

// newBar returns an empty bar. It is overwritten in place, since clearing it flickers.
func newBar(out io.Writer) *progressbar.ProgressBar {
	return progressbar.NewOptions64(1,
		progressbar.OptionSetWriter(out),
		progressbar.OptionSetWidth(barWidth),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionShowElapsedTimeOnFinish(),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionShowDescriptionAtLineEnd(),
		progressbar.OptionUseANSICodes(true),
	)
}

// Step shows a step. It is called before each step, and at the end.
func (p *Progress) Step(step bench.Progress) {
	if step.Workload != p.workload || step.CPU != p.cpu {
		if p.begun == 0 && p.bar == nil && step.Total > 0 {
			fmt.Fprintln(p.out, p.estimate(step.Total))
		}
		p.workload, p.cpu, p.since = step.Workload, step.CPU, time.Now()
		if step.Workload != "" {
			p.begun++
		}
		if p.bar == nil && step.Workload != "" {
			fmt.Fprintf(p.out, "ralbench: %s (%d of %d) ...\n", p.name(step.Workload, step.CPU), p.begun, p.parts)
		}
	}
	if p.bar != nil {
		p.draw(step, Width(p.out))
	}
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

// draw shows a step on a bar. Errors in drawing do not matter.
func (p *Progress) draw(step bench.Progress, width int) {
	if step.Done > 0 {
		// There is no speed to predict by before the first step is done.
		progressbar.OptionSetPredictTime(true)(p.bar)
	}
	text := p.describe(step, width)
	progressbar.OptionSetDescription(text)(p.bar) // draws nothing
	if total := max(step.Total.Milliseconds(), 1); total != p.bar.GetMax64() {
		p.bar.ChangeMax64(total) // counts as a step without progress
	}
	_ = p.bar.Set64(step.Done.Milliseconds()) // draws if the percentage changed
	p.bar.Describe(text)
}

// aroundBar is the most room of the figures beside the bar.
const aroundBar = 28

// describe returns the text behind the bar, cut to the width: a longer line would scroll.
func (p *Progress) describe(step bench.Progress, width int) string {
	var parts []string
	for _, part := range []string{p.name(step.Workload, step.CPU), step.Contender, step.Doing} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	text := []rune(strings.Join(parts, "  "))
	return string(text[:min(len(text), max(width-barWidth-aroundBar, 0))])
}

// Finished shows that a workload is over.
func (p *Progress) Finished(w bench.WorkloadReport) {
	if p.bar == nil {
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
	if p.bar != nil {
		fmt.Fprintln(p.out)
	}
}
