package terminal

import (
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

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
