package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
)

// fleetTable is a table about fleet mode, for the terminal and for the page.
type fleetTable struct {
	ID, Title, About string
	Columns          []string
	Left             int // so many columns are of words
	Rows             []fleetRow
}

type fleetRow struct {
	Kind  string // as contenderStyle.Kind, or failed
	Cells []string
}

// fleetFooter says what is to be known of the tables.
const fleetFooter = `* compares only those who do all of their work in this process: here, the engine.
Redis ns/op: processor time of redis-server by call, the timed ones included.
`

// fleetTables returns what was measured of fleet mode besides the workloads.
func fleetTables(d document) (tables []fleetTable) {
	f := d.Fleet
	for _, t := range []fleetTable{goalTable(f.Goals), workTable(d), memoryTable(f.Memory), shareTable(f.Shares)} {
		if len(t.Rows) > 0 {
			tables = append(tables, t)
		}
	}
	return tables
}

func goalTable(goals []fleetbench.Goal) fleetTable {
	t := fleetTable{
		ID: "goals", Title: "goals", About: "what was measured, beside what it is to reach",
		Columns: []string{"mode", "figure", "where", "measured", "rounds", "goal", "reached"}, Left: 3,
	}
	for _, g := range goals {
		t.Rows = append(t.Rows, fleetRow{kindNamed(g.Of), []string{
			g.Of, g.What, g.Where, goalFigure(g, g.Value.Median), goalRounds(g), goalText(g), yes(g.Reached),
		}})
	}
	return t
}

func goalFigure(g fleetbench.Goal, x float64) string {
	if g.Percent {
		return percent(x)
	}
	return digits(x)
}

// goalRounds tells from where to where the rounds reach.
func goalRounds(g fleetbench.Goal) string {
	if g.Value.Min == g.Value.Max {
		return "-"
	}
	return goalFigure(g, g.Value.Min) + " to " + goalFigure(g, g.Value.Max)
}

func goalText(g fleetbench.Goal) string {
	word := "at most "
	if g.Least {
		word = "at least "
	} else if g.Less() {
		word = "less than "
	}
	if g.Percent {
		return word + fmt.Sprintf("%.0f%%", 100*g.Goal)
	}
	return word + fmt.Sprintf("%g", g.Goal)
}

func yes(ok bool) string {
	if ok {
		return "yes"
	}
	return "NO"
}

func percent(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }

func workTable(d document) fleetTable {
	t := fleetTable{
		ID: "work", Title: "what Redis does", About: "processor time of redis-server by call, and who answered",
		Columns: []string{"workload", "contender", "Redis ns/op", "spread", "with ns/op", "by Redis", "by lease", "by neither"}, Left: 2,
	}
	last := ""
	for _, w := range d.Fleet.Work {
		name := w.Workload
		if len(d.Settings.CPUs) > 1 {
			name = taskName(w.Workload, w.CPU)
		}
		shown := name
		if name == last {
			shown = ""
		}
		last = name
		spread := "-"
		if len(w.Rounds) > 1 {
			spread = fmt.Sprintf("±%.0f%%", 100*w.RedisNsPerOp.Relative())
		}
		together := "-"
		if r := resultIn(d.Report, w); r != nil {
			together = digits(w.RedisNsPerOp.Median + r.NsPerOp.Median)
		}
		by := []string{"all", "-", "-"}
		if sum := w.ByRedis + w.ByLease + w.Neither; sum > 0 {
			by = nil
			for _, n := range []uint64{w.ByRedis, w.ByLease, w.Neither} {
				by = append(by, percent(float64(n)/float64(sum)))
			}
		}
		t.Rows = append(t.Rows, fleetRow{kindNamed(w.Contender), append([]string{shown, w.Contender, digits(w.RedisNsPerOp.Median), spread, together}, by...)})
	}
	return t
}

// resultIn returns what bench tells of the same.
func resultIn(report bench.Report, of fleetbench.Work) *bench.Result {
	for _, w := range report.Workloads {
		if w.Name == of.Workload && w.CPU == of.CPU {
			return resultOf(w, of.Contender)
		}
	}
	return nil
}

func memoryTable(memory []fleetbench.Memory) fleetTable {
	t := fleetTable{
		ID: "memory", Title: "memory in Redis", About: "bytes a key, each asked once",
		Columns: []string{"contender", "a key's name", "keys", "MEMORY USAGE", "used_memory"}, Left: 2,
	}
	for _, m := range memory {
		t.Rows = append(t.Rows, fleetRow{kindNamed(m.Contender), []string{
			m.Contender, m.Name, thousands(int64(m.Keys)), digits(m.Usage), digits(m.Used),
		}})
	}
	return t
}

func shareTable(shares []fleetbench.Share) fleetTable {
	t := fleetTable{
		ID: "shares", Title: "usable share of the limit", About: "what 4 servers admitted of capacity + rate x time, asked for three times the rate",
		Columns: []string{"limit", "load", "mode", "calls", "admitted", "allowed", "share", "aim", "audit", "each server"}, Left: 3,
	}
	for _, s := range shares {
		kind, verdict := "ral", "kept"
		if s.Over > 0 {
			kind, verdict = "failed", fmt.Sprintf("%s TOO MANY", thousands(s.Over))
		}
		if s.Neither > 0 {
			verdict += fmt.Sprintf("; %s answered by neither", thousands(s.Neither))
		}
		var each []string
		for _, n := range s.Each {
			each = append(each, fmt.Sprint(n))
		}
		t.Rows = append(t.Rows, fleetRow{kind, []string{
			limit(s.Limit), s.Load, s.Mode, thousands(s.Calls), thousands(s.Admitted), thousands(s.Allowed),
			percent(s.Share), percent(s.Aim), verdict, strings.Join(each, " "),
		}})
	}
	return t
}

// kindNamed is kindOf for who has only a name.
func kindNamed(contender string) string { return kindOf(bench.Result{Contender: contender}) }

// fleetSection writes the tables.
func (d document) fleetSection(b *strings.Builder) {
	fmt.Fprintf(b, "\nfleet mode on Redis %s, started for this run and asked over TCP on this machine\n", d.Fleet.Redis)
	for _, t := range fleetTables(d) {
		fmt.Fprintf(b, "\n%s: %s\n%s\n", t.Title, t.About, t.render())
	}
}

func (t fleetTable) render() string {
	out := newTable()
	var configs []table.ColumnConfig
	heads := table.Row{}
	for i, name := range t.Columns {
		align := text.AlignRight
		if i < t.Left || i == len(t.Columns)-1 && t.ID == "shares" {
			align = text.AlignLeft
		}
		heads = append(heads, name)
		configs = append(configs, table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align})
	}
	out.AppendHeader(heads)
	out.SetColumnConfigs(configs)
	for _, r := range t.Rows {
		row := table.Row{}
		for _, c := range r.Cells {
			row = append(row, c)
		}
		out.AppendRow(row)
	}
	return out.Render()
}
