// Package terminal shows runs of ralbench and their progress as text that fits a terminal's width.
//
// Start reading at [Write].
package terminal

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
)

// Write writes the document as text of this width.
func Write(w io.Writer, d report.Document, width int) error {
	p := printer{Document: d, width: width}
	p.header()
	p.beside()
	for _, wl := range d.Workloads {
		p.workload(wl)
	}
	if t := report.GoalTable(d); len(t.Rows) > 0 && (d.Settings.Fleet || d.Settings.Serve) {
		p.table(t)
	}
	if len(d.Workloads) == 0 {
		p.nothing()
	} else {
		p.footer()
		p.verdict()
	}
	_, err := io.WriteString(w, p.String())
	return err
}

// WriteGoals writes the goals of Ral alone, as text of this width. Missed goals are no failure.
func WriteGoals(w io.Writer, d report.Document, width int) error {
	p := printer{Document: d, width: width}
	p.header()
	if t := report.GoalTable(d); len(t.Rows) > 0 {
		p.table(t)
		p.WriteString("\n")
		p.line("", report.GoalSummary(d))
		p.lines("", "", report.FirstScreen(d))
	} else {
		p.line("", "No goal is about the measured figures.")
	}
	_, err := io.WriteString(w, p.String())
	return err
}

type printer struct {
	report.Document
	strings.Builder
	width int
}

// line writes a line, wrapped if it is too long.
func (p *printer) line(lead, text string, args ...any) {
	if len(args) > 0 {
		text = fmt.Sprintf(text, args...)
	}
	p.WriteString(Wrapped(lead, text, p.width))
}

func (p *printer) header() {
	m := p.Machine
	p.line("", "ralbench, commit %s, %s", m.Commit, p.Time.Format(time.RFC3339))
	gogc := ""
	if m.GOGC != "" {
		gogc = ", GOGC " + m.GOGC
	}
	p.line("", "%s, %d cores, GOMAXPROCS %s, %s %s/%s%s", m.CPU, m.Cores, format.Numbers(p.Settings.CPUs, ", "), m.Go, m.OS, m.Arch, gogc)
	scaled := ""
	if p.Settings.Scale != 1 {
		scaled = fmt.Sprintf("; SCALED: workloads of many keys have %v times as many as they should", p.Settings.Scale)
	}
	p.line("", "%s, %v a turn, contenders interleaved%s", report.RoundsText(p.Document), p.Settings.Duration, scaled)
	if intro := report.Intro(p.Document); intro != "" {
		p.line("", intro)
	}
	if p.Interrupted {
		p.line("", "INTERRUPTED: these are the figures so far")
	}
	s := report.Audits(p.Document)
	if len(s.Broken) > 0 {
		p.line("", "PROMISE BROKEN: "+report.Breaches(s.Broken))
	}
	if len(s.Peers) > 0 {
		p.line("", report.Breaches(s.Peers))
	}
}

// beside compares Ral with its peers, in the first screen.
func (p *printer) beside() {
	if t, _ := report.Beside(p.Document); len(t.Rows) > 0 {
		p.lines("", "", report.FirstScreen(p.Document))
		p.table(t)
	}
}

func (p *printer) workload(w bench.WorkloadReport) {
	name := w.Name
	if len(p.Settings.CPUs) > 1 {
		name = fmt.Sprintf("%s, GOMAXPROCS %d", name, w.CPU)
	}
	p.WriteString("\n")
	p.line("", "%s: %s", name, w.About)
	for _, fact := range report.Facts(p.Document, w) {
		p.line("  ", fact)
	}
	for _, t := range report.Tables(w) {
		if t.About != "" {
			p.line("  ", t.About+":")
		}
		p.rows(t)
	}
	p.audits(w.Results)
}

func (p *printer) nothing() {
	p.WriteString("\n")
	if len(p.LeftOut) > 0 && !p.Interrupted {
		p.line("", "Nothing was measured: the budget of %v is too short.", p.Settings.Budget)
		return
	}
	p.line("", "Nothing was measured.")
}

// audits writes a paragraph for each audit, and one for all that could not find anything.
func (p *printer) audits(results []bench.Result) {
	var silent []string
	for _, r := range results {
		if r.Audit != nil && !report.IsTelling(*r.Audit) {
			silent = append(silent, r.Name)
		}
	}
	for _, r := range results {
		if r.Audit != nil && (report.IsTelling(*r.Audit) || len(silent) == 1) {
			p.line(fmt.Sprintf("  audit %-15s ", r.Name), report.AuditLine(*r.Audit))
		}
	}
	if len(silent) > 1 {
		p.line("  audit ", "cannot bind, no key was asked beyond its limit, and all calls passed: "+strings.Join(silent, ", "))
	}
}

func (p *printer) footer() {
	p.WriteString("\n")
	p.line("", "ops/s by the clock, ns/op in processor time. spread: the ns/op farthest from the median. "+
		"x floor, x map: median of the ratios within each round. p50 to worst: single calls, timed in passes of their own; "+
		"one clock read is in them.")
	p.line("", "%s best exact limiter of its column; %s not exact by its own design; %s admitted more than its promise: neither of these is ever the best. "+
		"floor and xsync map limit nothing.", report.Mark, report.InexactSign, report.BrokenSign)
	p.notes()
	p.line("", "The worst calls include the pauses of the machine: compare them with the yardsticks'.")
	p.line("", "Took %v. ralbench -h all explains the rest.", p.Took.Round(100*time.Millisecond))
}

// notes writes each promise and note once, with its contenders.
func (p *printer) notes() {
	seen := map[string]bool{}
	var texts []string
	names := map[string][]string{} // by text
	for _, w := range p.Workloads {
		for _, r := range w.Results {
			if seen[r.Name] || r.Promise == "" && r.Note == "" {
				continue
			}
			seen[r.Name] = true
			var parts []string
			if r.Promise != "" {
				parts = append(parts, "audited as "+string(r.Promise))
			}
			if r.Note != "" {
				parts = append(parts, r.Note)
			}
			text := strings.Join(parts, "; ")
			if names[text] == nil {
				texts = append(texts, text)
			}
			names[text] = append(names[text], r.Name)
		}
	}
	for _, text := range texts {
		if len(names[text]) == 1 {
			p.line("  "+names[text][0]+": ", text)
		} else {
			p.line("  ", strings.Join(names[text], ", ")+": "+text)
		}
	}
}

// verdict writes the verdict late, visible without scrolling far.
func (p *printer) verdict() {
	p.lines("Verdict\n", "- ", report.VerdictOf(p.Document))
	p.lines("Missed goals and losses\n", "- ", report.Shortfalls(p.Document))
}

// lines writes lines of the verdict under a title.
func (p *printer) lines(title, lead string, lines []report.Verdict) {
	if len(lines) > 0 {
		p.WriteString("\n" + title)
	}
	for _, v := range lines {
		p.line(lead, v.Title+": "+v.Text)
	}
}
