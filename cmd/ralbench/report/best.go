package report

import (
	"strings"

	"github.com/ral-limiter/ral/bench"
)

// Figure is what a column of a table shows of a result.
type Figure struct {
	// Better is the sign of a change for the better: -1 if less is better, +1 if
	// more is, 0 if neither is.
	Better int
	Show   func(bench.Result) string
	// Value returns the value that is compared, and false if the result has none.
	Value func(bench.Result) (float64, bool)
}

// Mark ends a cell that is the best of its column, NoMark any other one.
const (
	Mark   = "*"
	NoMark = " "
)

// Cells returns a row of cells for each result. In each column the best comparable
// result is marked, with all that look the same. None is marked if all look the
// same, or if there is only one.
func Cells(columns []Column, results []bench.Result) [][]string {
	rows := make([][]string, len(results))
	for _, c := range columns {
		best, all := c.best(results)
		for i, r := range results {
			text, end := c.Show(r), NoMark
			if !all && c.competes(r) && text == best {
				end = Mark
			}
			rows[i] = append(rows[i], text+end)
		}
	}
	return rows
}

// competes reports whether a result may be the best.
func (f Figure) competes(r bench.Result) bool {
	if f.Better == 0 || !r.Comparable() {
		return false
	}
	_, ok := f.Value(r)
	return ok
}

// best returns the text of the best figure, and whether all of them look the same.
func (f Figure) best(results []bench.Result) (text string, all bool) {
	var best float64
	first := true
	all = true
	for _, r := range results {
		if !f.competes(r) {
			continue
		}
		x, _ := f.Value(r)
		shown := f.Show(r)
		all = all && (first || shown == text)
		if first || float64(f.Better)*(x-best) > 0 {
			best, text = x, shown
		}
		first = false
	}
	return text, all
}

// Signs behind the names of limiters.
const (
	InexactSign = "~" // not exact by its own design
	BrokenSign  = "!" // admitted more than its promise
)

// Label returns a contender's name with its signs.
func Label(r bench.Result) string {
	var signs strings.Builder
	if r.IsLimiter() && !r.Exact {
		signs.WriteString(InexactSign)
	}
	if r.Audit != nil && !r.Audit.Clean() {
		signs.WriteString(BrokenSign)
	}
	if signs.Len() == 0 {
		return r.Contender
	}
	return r.Contender + " " + signs.String()
}
