package terminal

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/ral-limiter/ral/cmd/ralbench/compare"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
)

// fleet writes the tables of fleet mode.
func (p *printer) fleet() {
	p.WriteString("\n")
	p.line("", "fleet mode on Redis %s, started for this run and asked over TCP on this machine", p.Fleet.Redis)
	p.tables(report.FleetTables(p.Document))
}

// serve writes the tables of servers.
func (p *printer) serve() {
	p.tables(report.ServeTables(p.Document))
	p.WriteString("\n")
	p.line("", report.ServeFooter)
}

func (p *printer) tables(all []report.Table) {
	for _, t := range all {
		p.WriteString("\n")
		p.line("", "%s: %s", t.Title, t.About)
		var rows [][]string
		for _, r := range t.Rows {
			rows = append(rows, r.Cells)
		}
		words := func(i int) bool { return i < t.Left || t.ID == "shares" && i >= len(t.Columns)-2 }
		p.WriteString(textTable(t.Columns, rows, words, p.width) + "\n")
	}
}

// textTable returns a table of texts that fits the width.
func textTable(columns []string, rows [][]string, words func(column int) bool, width int) string {
	t := newTable()
	limits := fit(append([][]string{columns}, rows...), words, width)
	var configs []table.ColumnConfig
	for i := range columns {
		align := text.AlignRight
		if words(i) {
			align = text.AlignLeft
		}
		configs = append(configs, table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align, WidthMax: limits[i], WidthMaxEnforcer: text.WrapSoft})
	}
	t.SetColumnConfigs(configs)
	t.AppendHeader(rowOf(columns[0], columns[1:]))
	for _, r := range rows {
		t.AppendRow(rowOf(r[0], r[1:]))
	}
	return t.Render()
}

// WriteComparison writes the comparison as text of this width.
func WriteComparison(w io.Writer, c compare.Comparison, width int) error {
	p := printer{width: width}
	p.WriteString("\n")
	p.line("", "Compared with %s: commit %s, %s", c.OldName, c.Old.Machine.Commit, c.Old.Time.Format(time.RFC3339))
	for _, note := range c.Notes {
		p.line("  ", note)
	}
	for _, t := range c.Tasks {
		p.WriteString("\n")
		p.line("", format.Task(t.Name, t.CPU))
		for _, note := range t.Notes {
			p.line("  ", "OTHER SETTINGS, "+note)
		}
		p.WriteString(comparisonTable(t, width) + "\n")
	}
	if len(c.Tasks) == 0 {
		p.WriteString("\n")
		p.line("", "The two runs have nothing in common that could be compared.")
	} else {
		p.WriteString("\n")
		p.line("", c.Summary())
		for _, change := range c.Changes() {
			p.line(fmt.Sprintf("  %-6s  ", change.Verdict), change.Text)
		}
		p.WriteString("\n")
		p.line("", compare.Rule)
		p.line("", compare.Legend)
	}
	_, err := io.WriteString(w, p.String())
	return err
}

func comparisonTable(t compare.Task, width int) string {
	var rows [][]string
	last := ""
	for _, r := range t.Rows {
		cells := r.Cells()
		// The columns stand where they stand in the other tables of the comparison.
		for i, least := range []int{15, 9, 8, 8, 5, 6, 5, 0} {
			if n := len([]rune(cells[i])); n < least && i < 2 {
				cells[i] += strings.Repeat(" ", least-n)
			} else if n < least {
				cells[i] = strings.Repeat(" ", least-n) + cells[i]
			}
		}
		if r.Contender == last {
			cells[0] = strings.Repeat(" ", len([]rune(cells[0])))
		}
		last = r.Contender
		rows = append(rows, cells)
	}
	verdict := len(compare.Columns) - 1
	words := func(i int) bool { return i < 2 || i == verdict }
	return textTable(compare.Columns, rows, words, width)
}
