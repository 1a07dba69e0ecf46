package main

import (
	"fmt"
	"strings"

	"github.com/ral-limiter/ral/bench"
)

// pageTable is what the terminal shows of a workload at a number of processors.
type pageTable struct {
	Title, Facts string
	Columns      []string
	Rows         []pageRow
}

type pageRow struct {
	Kind  string // as contenderStyle.Kind
	Cells []string
}

// tablesOf returns the tables of a workload: what the terminal shows, and memory.
func tablesOf(w bench.WorkloadReport) (tables []pageTable) {
	facts := fmt.Sprintf("A key may take %s; %s, %s", limit(w.Limit), plural(w.Keys, "key"), plural(w.Callers, "caller"))
	if n := roundsOf(w); n > 0 {
		facts += "; medians of " + plural(n, "round")
		if n < w.Rounds {
			facts += fmt.Sprintf(", of %d that there should be", w.Rounds)
		}
	}
	facts += "."
	if w.Timed {
		facts += " One pass of timed calls: what timing costs is in ops/s and ns/op too."
	}
	for _, r := range w.Results {
		if r.Disturbed > 0 {
			facts += fmt.Sprintf(" %s: %s disturbed by other work on the machine.", r.Contender, plural(r.Disturbed, "round"))
		}
	}
	measured := pageTable{Title: taskName(w.Name, w.CPU), Facts: facts}
	measured.Columns = []string{"contender"}
	var figures []figure
	for _, c := range columns {
		measured.Columns = append(measured.Columns, c.name)
		figures = append(figures, c.figure)
	}
	rows := cells(figures, w.Results)
	memory := pageTable{
		Title: "Memory, " + taskName(w.Name, w.CPU), Facts: facts,
		Columns: []string{"contender", "keys", "B/key", "the key's own, besides", "GC", "heap, all keys", "heap, idle", "idle for"},
	}
	for i, r := range w.Results {
		if m := r.Memory; m != nil {
			memory.Rows = append(memory.Rows, pageRow{kindOf(r), []string{
				r.Contender, thousands(int64(m.Keys)), digits(m.BytesPerKey), digits(float64(m.KeyBytes) / float64(max(m.Keys, 1))), duration(m.GC),
				size(float64(m.FullHeap)), size(float64(m.IdleHeap)), short(m.Idle),
			}})
		}
		if len(r.Rounds) == 0 {
			continue
		}
		measured.Rows = append(measured.Rows, pageRow{kindOf(r), append([]string{label(r)}, strs(rows[i])...)})
		if r.Known != nil {
			known := strs(knownRow(r))
			known[0] = "known keys meanwhile"
			measured.Rows = append(measured.Rows, pageRow{"known", known})
		}
	}
	if len(measured.Rows) == 0 {
		memory.Title = measured.Title
	}
	for _, t := range []pageTable{measured, memory} {
		if len(t.Rows) > 0 {
			tables = append(tables, t)
		}
	}
	return tables
}

// roundsOf returns how many rounds all contenders have.
func roundsOf(w bench.WorkloadReport) int {
	n := w.Rounds
	for _, r := range w.Results {
		n = min(n, len(r.Rounds))
	}
	return n
}

func strs(cells []any) []string {
	out := make([]string, len(cells))
	for i, c := range cells {
		out[i] = strings.TrimSuffix(fmt.Sprint(c), noMark)
	}
	return out
}
