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
func Tables(w bench.WorkloadReport) []Table {
	title := format.Task(w.Name, w.CPU)
	tables := []Table{tableOf(title, "", Columns, w, w.Results)}
	var measured []bench.Result
	var idle time.Duration
	for _, r := range w.Results {
		if r.Memory != nil {
			measured = append(measured, r)
			idle = max(idle, r.Memory.Idle)
		}
	}
	if len(measured) > 0 {
		about := fmt.Sprintf("memory of %s keys", format.Thousands(int64(measured[0].Memory.Keys)))
		if n := measured[0].Memory.KeyBytes; n > 0 {
			about = fmt.Sprintf("heap of %s keys, with the %s bytes of their names if it keeps them, and what is left of it after %s of idling",
				format.Thousands(int64(measured[0].Memory.Keys)), format.Thousands(n), format.Short(idle))
		}
		tables = append(tables, tableOf("Memory, "+title, about, MemoryColumns, w, measured))
	}
	return slices.DeleteFunc(tables, func(t Table) bool { return len(t.Columns) == 1 })
}

// tableOf returns a table of results. The best comparable results of a column are marked, unless
// all look the same or there is a single result. Latencies of known keys have rows of their own.
func tableOf(title, about string, columns []Column, w bench.WorkloadReport, results []bench.Result) Table {
	t := Table{Title: title, About: about, Columns: words("contender")}
	for _, r := range results {
		t.Rows = append(t.Rows, Row{KindOf(r), []string{Label(r)}})
		if r.Known != nil {
			t.Rows = append(t.Rows, Row{KindKnown, []string{"  known keys"}})
		}
	}
	for _, c := range columns {
		texts := make([]string, 0, len(results))
		for _, r := range results {
			texts = append(texts, c.Show(r))
		}
		if c.Width == 0 || !slices.ContainsFunc(texts, func(s string) bool { return s != nothing }) {
			continue
		}
		t.Columns = append(t.Columns, Head{c.nameIn(w), false, c.Width, c.Group})
		row := 0
		for i, cell := range c.marked(results, texts) {
			t.Marked = t.Marked || strings.HasSuffix(cell, Mark)
			t.Rows[row].Cells = append(t.Rows[row].Cells, cell)
			row++
			if known := results[i].Known; known != nil {
				cell := ""
				if c.Latency != nil {
					cell = c.Show(bench.Result{Latency: known})
				}
				t.Rows[row].Cells = append(t.Rows[row].Cells, cell)
				row++
			}
		}
	}
	return t
}

// Facts says how a workload was measured, in lines.
func Facts(d Document, w bench.WorkloadReport) (lines []string) {
	first := fmt.Sprintf("each key has the limit %s; %s, %s", format.Limit(w.Limit), format.Plural(w.Keys, "key"), format.Plural(w.Callers, "caller"))
	if n := Rounds(w); n < w.Rounds {
		first += fmt.Sprintf("; %d of %d rounds", n, w.Rounds)
	}
	lines = append(lines, first)
	all, disturbed := 0, 0
	for _, r := range w.Results {
		all += len(r.Rounds)
		disturbed += r.Disturbed
	}
	if disturbed > 0 {
		lines = append(lines, fmt.Sprintf("other load DISTURBED %d of %s", disturbed, format.Plural(all, "pass")))
	}
	if w.OneTimedPass {
		lines = append(lines, "one pass of timed calls: the cost of timing is in ops/s and ns/op too")
	}
	return lines
}

// Intro says what is special about a run's mode, empty for the usual one.
func Intro(d Document) string {
	switch {
	case d.Settings.Fleet:
		return fmt.Sprintf("fleet mode on Redis %s, started for this run and asked over TCP on this machine: by redis_rate, by package fleet in both its modes, and the engine in this process beside them", d.Redis)
	case d.Settings.Serve:
		return "rald beside other servers that keep limits for programs in any language; the generator and the servers share the cores of this machine"
	}
	return ""
}
