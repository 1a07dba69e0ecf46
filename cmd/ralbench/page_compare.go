package main

// comparePage is a comparison.
type comparePage struct {
	comparison
	Summary string
	Changes []change
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

func newComparePage(c comparison) *comparePage {
	p := &comparePage{comparison: c, Summary: c.summary(), Changes: c.changes(), Rule: rule, Columns: compareColumns}
	for _, t := range c.Tasks {
		out := compareTask{Title: taskName(t.Name, t.CPU), Summary: tallyOf([]task{t}).String(), Notes: t.Notes}
		for _, r := range t.Rows {
			class := ""
			switch r.Verdict {
			case better:
				class = "better"
			case worse:
				class = "worse"
			case onlyMachine:
				class = "floor"
			}
			out.Rows = append(out.Rows, compareRow{class, r.cells()})
		}
		p.Tasks = append(p.Tasks, out)
	}
	return p
}
