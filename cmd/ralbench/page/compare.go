package page

import (
	"github.com/ral-limiter/ral/cmd/ralbench/compare"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
)

// comparison is the comparison with an earlier run.
type comparison struct {
	compare.Comparison
	Summary string
	Changes []compare.Change
	Rule    string
	Columns []string
	Tasks   []compareTask
}

type compareTask struct {
	Title   string
	Summary string
	Notes   []string
	Rows    []compareRow
}

type compareRow struct {
	Class string
	Cells []string
}

func newComparison(c compare.Comparison) *comparison {
	p := &comparison{Comparison: c, Summary: c.Summary(), Changes: c.Changes(), Rule: compare.Rule + " " + compare.Legend, Columns: compare.Columns}
	for _, t := range c.Tasks {
		out := compareTask{Title: format.Task(t.Name, t.CPU), Summary: compare.TallyOf(t).String(), Notes: t.Notes}
		for _, r := range t.Rows {
			out.Rows = append(out.Rows, compareRow{r.Verdict.Class(), r.Cells()})
		}
		p.Tasks = append(p.Tasks, out)
	}
	return p
}
