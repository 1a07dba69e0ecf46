package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// compareColumns are those of the comparison, on the terminal and on the page.
var compareColumns = []string{"contender", "measure", "old", "new", "ratio", "by floor", "p", "verdict"}

// cells returns the row as it is shown.
func (r row) cells() []string {
	p := "-"
	if !math.IsNaN(r.P) {
		p = fmt.Sprintf("%.3f", r.P)
	}
	return []string{r.Contender, r.Measure, r.format(r.Old), r.format(r.New), times(r.Ratio), times(r.OfFloor), p, r.Verdict.String()}
}

func times(x float64) string {
	if math.IsNaN(x) {
		return "-"
	}
	return fmt.Sprintf("%.2f", x)
}

// write writes the comparison for people.
func (c comparison) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\nCompared with %s: commit %s, %s\n", c.OldName, c.Old.Machine.Commit, c.Old.Time.Format(time.RFC3339))
	for _, note := range c.Notes {
		fmt.Fprintf(&b, "  %s\n", note)
	}
	for _, t := range c.Tasks {
		fmt.Fprintf(&b, "\n%s\n", taskName(t.Name, t.CPU))
		for _, note := range t.Notes {
			fmt.Fprintf(&b, "  OTHER SETTINGS, %s\n", note)
		}
		b.WriteString(t.render())
		b.WriteString("\n")
	}
	if len(c.Tasks) == 0 {
		b.WriteString("\nThe two runs have nothing in common that could be compared.\n")
	} else {
		fmt.Fprintf(&b, "\n%s\n", c.summary())
		for _, change := range c.changes() {
			fmt.Fprintf(&b, "  %-6s  %s\n", change.Verdict, change.Text)
		}
		fmt.Fprintf(&b, "\n%s\nratio: new as a multiple of old. by floor: the same of the ratios to the floor.\n", rule)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t task) render() string {
	out := newTable()
	var heads table.Row
	var configs []table.ColumnConfig
	widths := []int{15, 9, 8, 8, 5, 8, 5, 1}
	for i, name := range compareColumns {
		heads = append(heads, name)
		align := text.AlignRight
		if i < 2 || i == len(compareColumns)-1 {
			align = text.AlignLeft
		}
		configs = append(configs, table.ColumnConfig{Number: i + 1, WidthMin: widths[i], Align: align, AlignHeader: align})
	}
	out.AppendHeader(heads)
	out.SetColumnConfigs(configs)
	last := ""
	for _, r := range t.Rows {
		var cells table.Row
		for _, cell := range r.cells() {
			cells = append(cells, cell)
		}
		if r.Contender == last {
			cells[0] = ""
		}
		last = r.Contender
		out.AppendRow(cells)
	}
	return out.Render()
}

// summary counts the verdicts in a sentence.
func (c comparison) summary() string {
	t := tallyOf(c.Tasks)
	s := t.String()
	if chance := alpha * float64(t.Better+t.Worse+t.Noise); chance >= 1 {
		s += fmt.Sprintf("; if nothing had changed, up to %.0f would look better or worse by chance", chance)
	}
	return s + "."
}

// changes lists what changed by more than noise: in a long comparison that is what
// everybody looks for.
func (c comparison) changes() (all []change) {
	for _, v := range []verdict{worse, better} {
		for _, t := range c.Tasks {
			for _, r := range t.Rows {
				if r.Verdict == v {
					all = append(all, change{v, fmt.Sprintf("%s, %s: %s", taskName(t.Name, t.CPU), r.Contender, r.change())})
				}
			}
		}
	}
	return all
}

// change is something that changed by more than noise.
type change struct {
	Verdict verdict
	Text    string
}

// Class is the change's class in the style sheet.
func (c change) Class() string { return strings.ToLower(c.Verdict.String()) }

// change says what became of the measure.
func (r row) change() string {
	s := fmt.Sprintf("%s %s, was %s", r.Measure, r.format(r.New), r.format(r.Old))
	by := r.Ratio
	if !math.IsNaN(r.OfFloor) {
		by = r.OfFloor
		s += "; beside the floor"
	}
	return fmt.Sprintf("%s %+.0f%%, p %.3f", s, 100*(by-1), r.P)
}
