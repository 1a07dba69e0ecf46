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

func words(names ...string) (heads []Head) {
	for _, name := range names {
		heads = append(heads, Head{Name: name, Words: true})
	}
	return heads
}

func figures(names ...string) (heads []Head) {
	for _, name := range names {
		heads = append(heads, Head{Name: name})
	}
	return heads
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
	table := Table{Title: title, About: about, Columns: words("contender")}
	var results []bench.Result
	for _, r := range measured {
		results = append(results, r)
		table.Rows = append(table.Rows, Row{KindOf(r), []string{Label(r)}})
		if r.Known != nil {
			results = append(results, bench.Result{Latency: r.Known, Outside: true})
			table.Rows = append(table.Rows, Row{KindKnown, []string{"  known keys"}})
		}
	}
	for _, column := range columns {
		texts := make([]string, 0, len(results))
		for _, r := range results {
			texts = append(texts, column.Show(r))
		}
		if column.Width == 0 || !slices.ContainsFunc(texts, func(s string) bool { return s != nothing }) {
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
func Facts(d Document, workloadReport bench.WorkloadReport) (lines []string) {
	first := fmt.Sprintf("each key has the limit %s; %s, %s", format.Limit(workloadReport.Limit), format.Plural(workloadReport.Keys, "key"), format.Plural(workloadReport.Callers, "caller"))
	if n := Rounds(workloadReport); n < workloadReport.Rounds {
		first += fmt.Sprintf("; %d of %d rounds", n, workloadReport.Rounds)
	}
	lines = append(lines, first)
	all, disturbed := 0, 0
	for _, r := range workloadReport.Results {
		all += len(r.Rounds)
		disturbed += r.Disturbed
	}
	if disturbed > 0 {
		lines = append(lines, fmt.Sprintf("other load DISTURBED %d of %s", disturbed, format.Plural(all, "pass")))
	}
	if workloadReport.OneTimedPass {
		lines = append(lines, "one pass of timed calls: the cost of timing is in ops/s and ns/op too")
	}
	return lines
}

// Intro says what is special about a run's mode, empty for the usual one.
func Intro(document Document) string {
	switch {
	case document.Settings.Fleet:
		return fmt.Sprintf("fleet mode on Redis %s, started for this run and asked over TCP on this machine: by redis_rate, by package fleet in both its modes, and the engine in this process beside them", document.Redis)
	case document.Settings.Serve:
		return "rald beside other servers that keep limits for programs in any language; the generator and the servers share the cores of this machine"
	}
	return ""
}
