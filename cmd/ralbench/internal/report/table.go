package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
)

// Table is a table of texts, for the terminal and for the page.
type Table struct {
	Title, About string
	Columns      []Head
	Rows         []Row
	// Marked reports whether some cells end with Mark.
	Marked bool
}

// Head is the head of a table's column.
type Head struct {
	Name string
	// Words marks a column of words, which may be wrapped; others have figures.
	Words bool
	// Width is the least width. Tables are split between groups.
	Width, Group int
}

// Row is a row of a table, of a kind for the page's looks.
type Row struct {
	Kind  string
	Cells []string
}

// heads returns the heads of columns of words, or of figures.
func heads(areWords bool, names ...string) (all []Head) {
	for _, name := range names {
		all = append(all, Head{Name: name, Words: areWords})
	}
	return all
}

// Mark ends a cell that is the best of its column.
const Mark = "*"

// Tables returns the tables of a workload: the results, and their memory if it was measured.
func Tables(workloadReport bench.WorkloadReport) []Table {
	title := format.Task(workloadReport.Name, workloadReport.CPU)
	tables := []Table{tableOf(title, "", Columns, workloadReport, workloadReport.Results)}
	var measured []bench.Result
	var idle time.Duration
	for _, result := range workloadReport.Results {
		if result.Memory != nil {
			measured = append(measured, result)
			idle = max(idle, result.Memory.Idle)
		}
	}
	if len(measured) > 0 {
		about := fmt.Sprintf("memory of %s keys", format.Thousands(int64(measured[0].Memory.Keys)))
		if n := measured[0].Memory.KeyBytes; n > 0 {
			about = fmt.Sprintf("heap of %s keys, with the %s bytes of their names if it keeps them, and what is left of it after %s of idling",
				format.Thousands(int64(measured[0].Memory.Keys)), format.Thousands(n), format.Short(idle))
		}
		tables = append(tables, tableOf("Memory, "+title, about, MemoryColumns, workloadReport, measured))
	}
	return slices.DeleteFunc(tables, func(t Table) bool { return len(t.Columns) == 1 })
}

// tableOf returns a table of results. The best comparable results of a column are marked, unless
// all look the same or there is a single result. Latencies of known keys have rows of their own.
func tableOf(title, about string, columns []Column, workloadReport bench.WorkloadReport, measured []bench.Result) Table {
	table := Table{Title: title, About: about, Columns: heads(true, "contender")}
	var results []bench.Result
	for _, result := range measured {
		results = append(results, result)
		table.Rows = append(table.Rows, Row{KindOf(result), []string{Label(result)}})
		if result.Known != nil {
			results = append(results, bench.Result{Latency: result.Known, Outside: true})
			table.Rows = append(table.Rows, Row{KindKnown, []string{"  known keys"}})
		}
	}
	for _, column := range columns {
		texts := make([]string, 0, len(results))
		for _, result := range results {
			texts = append(texts, column.Show(result))
		}
		if column.Width == 0 || !slices.ContainsFunc(texts, func(text string) bool { return text != nothing }) {
			continue
		}
		table.Columns = append(table.Columns, Head{column.nameIn(workloadReport), false, column.Width, column.Group})
		for i, cell := range column.marked(results, texts) {
			table.Marked = table.Marked || strings.HasSuffix(cell, Mark)
			table.Rows[i].Cells = append(table.Rows[i].Cells, cell)
		}
	}
	return table
}

// Facts says how a workload was measured, in lines.
func Facts(w bench.WorkloadReport) []string {
	lines := []string{say("limit", w), say("disturbed", w), say("timing", w)}
	return slices.DeleteFunc(lines, func(line string) bool { return line == "" })
}

// Intro says what is special about a run's mode, empty for the usual one.
func Intro(document Document) string { return say("intro", document) }
