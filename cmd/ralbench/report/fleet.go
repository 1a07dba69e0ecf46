package report

import (
	"fmt"
	"strings"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
)

// Table is a table of texts, for the terminal and for the page.
type Table struct {
	ID, Title, About string
	Columns          []string
	Left, Right      int // numbers of columns of words on both sides of the figures
	Rows             []Row
}

type Row struct {
	Kind  string
	Cells []string
}

// FleetFooter explains the tables of fleet mode.
const FleetFooter = `* compares only limiters that do all of their work in this process: here, the engine. Redis ns/op: processor time of redis-server by call, the timed ones included.`

// FleetTables returns the measurements of fleet mode beyond the workloads.
func FleetTables(d Document) (tables []Table) {
	f := d.Fleet
	for _, t := range []Table{goalsTable(f.Goals, "mode"), workTable(d), memoryTable(f.Memory), shareTable(f.Shares)} {
		if len(t.Rows) > 0 {
			tables = append(tables, t)
		}
	}
	return tables
}

// goalsTable returns a table of goals. of is the head of the first column.
func goalsTable(goals []fleetbench.Goal, of string) Table {
	t := Table{
		ID: "goals", Title: "goals", About: "the figures, beside their goals",
		Columns: []string{of, "figure", "where", "measured", "rounds", "goal", "reached"}, Left: 3,
	}
	for _, g := range goals {
		t.Rows = append(t.Rows, Row{KindNamed(g.Of), []string{
			g.Of, g.What, g.Where, fleetFigure(g, g.Value.Median), fleetRounds(g), fleetGoal(g), yes(g.Reached, ""),
		}})
	}
	return t
}

// fleetRounds writes the least and the greatest value of the rounds.
func fleetRounds(g fleetbench.Goal) string {
	if g.Value.Min == g.Value.Max {
		return "-"
	}
	return fleetFigure(g, g.Value.Min) + " to " + fleetFigure(g, g.Value.Max)
}

func fleetGoal(g fleetbench.Goal) string {
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

func workTable(d Document) Table {
	t := Table{
		ID: "work", Title: "what Redis does", About: "processor time of redis-server by call, and the source of the answers",
		Columns: []string{"workload", "contender", "Redis ns/op", "spread", "with ns/op", "by Redis", "by lease", "by neither"}, Left: 2,
	}
	last := ""
	for _, w := range d.Fleet.Work {
		name := taskName(d, w.Workload, w.CPU)
		shown := name
		if name == last {
			shown = ""
		}
		last = name
		spread := "-"
		if len(w.Rounds) > 1 {
			spread = percents(w.RedisNsPerOp.Relative())
		}
		together := "-"
		if r := ResultOfWork(d.Report, w); r != nil {
			together = format.Digits(w.RedisNsPerOp.Median + r.NsPerOp.Median)
		}
		by := []string{"all", "-", "-"}
		if sum := w.ByRedis + w.ByLease + w.Neither; sum > 0 {
			by = nil
			for _, n := range []uint64{w.ByRedis, w.ByLease, w.Neither} {
				by = append(by, format.Percent(float64(n)/float64(sum)))
			}
		}
		t.Rows = append(t.Rows, Row{KindNamed(w.Contender), append([]string{shown, w.Contender, format.Digits(w.RedisNsPerOp.Median), spread, together}, by...)})
	}
	return t
}

// ResultOfWork returns the result of the same workload and contender, or nil.
func ResultOfWork(report bench.Report, of fleetbench.Work) *bench.Result {
	for _, w := range report.Workloads {
		if w.Name == of.Workload && w.CPU == of.CPU {
			return w.Result(of.Contender)
		}
	}
	return nil
}

func memoryTable(memory []fleetbench.Memory) Table {
	t := Table{
		ID: "memory", Title: "memory in Redis", About: "bytes a key, each asked once",
		Columns: []string{"contender", "a key's name", "keys", "MEMORY USAGE", "used_memory"}, Left: 2,
	}
	for _, m := range memory {
		t.Rows = append(t.Rows, Row{KindNamed(m.Contender), []string{
			m.Contender, m.Name, format.Thousands(int64(m.Keys)), format.Digits(m.Usage), format.Digits(m.Used),
		}})
	}
	return t
}

func shareTable(shares []fleetbench.Share) Table {
	t := Table{
		ID: "shares", Title: "usable share of the limit", About: "the part of capacity + rate x time that 4 servers admitted, asked for three times the rate",
		Columns: []string{"limit", "load", "mode", "calls", "admitted", "allowed", "share", "aim", "audit", "each server"}, Left: 3, Right: 2,
	}
	for _, s := range shares {
		kind, verdict := KindRal, "kept"
		if s.Over > 0 {
			kind, verdict = KindFailed, fmt.Sprintf("%s TOO MANY", format.Thousands(s.Over))
		}
		if s.Neither > 0 {
			verdict += fmt.Sprintf("; %s answered by neither", format.Thousands(s.Neither))
		}
		var each []string
		for _, n := range s.Each {
			each = append(each, fmt.Sprint(n))
		}
		t.Rows = append(t.Rows, Row{kind, []string{
			format.Limit(s.Limit), s.Load, s.Mode, format.Thousands(s.Calls), format.Thousands(s.Admitted), format.Thousands(s.Allowed),
			format.Percent(s.Share), format.Percent(s.Aim), verdict, strings.Join(each, " "),
		}})
	}
	return t
}
