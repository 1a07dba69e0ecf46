package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
)

// table is a table of a workload at a number of processors.
type table struct {
	Title, Facts string
	Columns      []string
	Rows         []report.Row
}

// tablesOf returns the tables of a workload: that of the terminal, and memory.
func tablesOf(w bench.WorkloadReport) (tables []table) {
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
	measured := table{Title: format.Task(w.Name, w.CPU), Facts: facts}
	measured.Columns = []string{"contender"}
	columns := slices.DeleteFunc(slices.Clone(report.Columns), func(c report.Column) bool { return w.Base == "" && c.NeedsBase() })
	for _, c := range columns {
		measured.Columns = append(measured.Columns, c.Name)
	}
	rows := report.Cells(columns, w.Results)
	memory := table{
		Title: "Memory, " + format.Task(w.Name, w.CPU), Facts: facts,
		Columns: []string{"contender", "keys", "B/key", "a key's name", "GC", "heap, all keys", "heap, idle", "idle for"},
	}
	for i, r := range w.Results {
		if m := r.Memory; m != nil {
			idle := format.Size(float64(m.IdleHeap))
			if m.IdleUnknown {
				idle = "not measured"
			}
			memory.Rows = append(memory.Rows, report.Row{Kind: report.KindOf(r), Cells: []string{
				r.Contender, format.Thousands(int64(m.Keys)), format.Digits(m.BytesPerKey), format.Digits(float64(m.KeyBytes) / float64(max(m.Keys, 1))), format.Duration(m.GC),
				format.Size(float64(m.FullHeap)), idle, format.Short(m.Idle),
			}})
		}
		if len(r.Rounds) == 0 {
			continue
		}
		measured.Rows = append(measured.Rows, report.Row{Kind: report.KindOf(r), Cells: append([]string{report.Label(r)}, trimmed(rows[i])...)})
		if r.Known != nil {
			measured.Rows = append(measured.Rows, report.Row{Kind: "known", Cells: append([]string{"known keys meanwhile"}, trimmed(report.KnownCells(r, columns))...)})
		}
	}
	if len(measured.Rows) == 0 {
		memory.Title = measured.Title
	}
	for _, t := range []table{measured, memory} {
		if len(t.Rows) > 0 {
			tables = append(tables, t)
		}
	}
	return tables
}

// trimmed returns cells without the space at the end of those that have no mark.
func trimmed(cells []string) []string {
	out := make([]string, len(cells))
	for i, c := range cells {
		out[i] = strings.TrimSuffix(c, report.NoMark)
	}
	return out
}
