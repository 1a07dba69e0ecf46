package terminal

import (
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/ral-limiter/ral/cmd/ralbench/report"
)

func (p *printer) fleet() {
	p.WriteString("\n")
	p.line("", "fleet mode on Redis %s, started for this run and asked over TCP on this machine", p.Fleet.Redis)
	p.tables(report.FleetTables(p.Document))
}

func (p *printer) serve() {
	p.tables(report.ServeTables(p.Document))
	p.WriteString("\n")
	p.line("", report.ServeFooter)
}

func (p *printer) tables(all []report.Table) {
	for _, t := range all {
		p.table(t)
	}
}

// table writes a table of texts that fits the width.
func (p *printer) table(of report.Table) {
	words := func(i int) bool { return i < of.Left || i >= len(of.Columns)-of.Right }
	cells := [][]string{of.Columns}
	for _, r := range of.Rows {
		cells = append(cells, r.Cells)
	}
	t := newTable()
	limits := fit(cells, words, p.width)
	var configs []table.ColumnConfig
	for i := range of.Columns {
		align := text.AlignRight
		if words(i) {
			align = text.AlignLeft
		}
		configs = append(configs, table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align, WidthMax: limits[i], WidthMaxEnforcer: text.WrapSoft})
	}
	t.SetColumnConfigs(configs)
	for i, row := range cells {
		if i == 0 {
			t.AppendHeader(rowOf(row...))
		} else {
			t.AppendRow(rowOf(row...))
		}
	}
	p.WriteString("\n")
	p.line("", "%s: %s", of.Title, of.About)
	p.WriteString(t.Render() + "\n")
}
