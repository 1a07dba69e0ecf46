package page

import (
	"fmt"
	"strings"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
)

// tablesOf returns the tables of a workload, as in the terminal.
func tablesOf(w bench.WorkloadReport) []report.Table {
	facts := fmt.Sprintf("Each key has the limit %s; %s, %s", format.Limit(w.Limit), format.Plural(w.Keys, "key"), format.Plural(w.Callers, "caller"))
	if n := report.Rounds(w); n > 0 {
		facts += "; " + format.Medians(n)
		if n < w.Rounds {
			facts += fmt.Sprintf(", of %d that were planned", w.Rounds)
		}
	}
	facts += "."
	if w.Timed {
		facts += " One pass of timed calls: the cost of timing is in ops/s and ns/op too."
	}
	for _, r := range w.Results {
		if r.Disturbed > 0 {
			facts += fmt.Sprintf(" %s: %s disturbed by other work on the machine.", r.Contender, format.Plural(r.Disturbed, "round"))
		}
	}
	title := format.Task(w.Name, w.CPU)
	tables := []report.Table{tableOf(title, facts, report.Columns, w.Results)}
	if measured, about := report.WithMemory(w); len(measured) > 0 {
		tables = append(tables, tableOf("Memory, "+title, format.Sentence(about), report.MemoryColumns, measured))
	}
	return tables
}

func tableOf(title, about string, columns []report.Column, results []bench.Result) report.Table {
	t := report.Table{Title: title, About: about, Columns: []string{"contender"}}
	columns = report.Filled(columns, results)
	for _, c := range columns {
		t.Columns = append(t.Columns, c.Name)
	}
	add := func(kind, name string, cells []string) {
		row := report.Row{Kind: kind, Cells: []string{name}}
		for _, c := range cells {
			row.Cells = append(row.Cells, strings.TrimSuffix(c, report.NoMark))
		}
		t.Rows = append(t.Rows, row)
	}
	for i, cells := range report.Cells(columns, results) {
		add(report.KindOf(results[i]), report.Label(results[i]), cells)
		if known := report.KnownCells(results[i], columns); known != nil {
			add("known", "known keys meanwhile", known)
		}
	}
	return t
}
