package main

import (
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/ral-limiter/ral/bench"
)

// figure is what a column of a table shows of a result. The sign of better is
// that of change for the better: -1 where less is, +1 where more is, 0 where
// neither is.
type figure struct {
	better int
	show   func(bench.Result) string
	// value is what is compared; false if the result has none.
	value func(bench.Result) (float64, bool)
}

// mark ends a cell that is the best of its column, and noMark one that is not.
const (
	mark   = "*"
	noMark = " "
)

// cells returns a row of cells for each result. The best among those that are
// exact is marked, with all that look the same; none is if all of them do, as a
// single one does.
func cells(figures []figure, results []bench.Result) []table.Row {
	rows := make([]table.Row, len(results))
	for i := range rows {
		rows[i] = make(table.Row, 0, len(figures)+1)
	}
	for _, f := range figures {
		best, all := f.best(results)
		for i, r := range results {
			text, end := f.show(r), noMark
			if !all && f.competes(r) && text == best {
				end = mark
			}
			rows[i] = append(rows[i], text+end)
		}
	}
	return rows
}

// competes tells whether a result may be the best.
func (f figure) competes(r bench.Result) bool {
	if f.better == 0 || !r.Comparable() {
		return false
	}
	_, ok := f.value(r)
	return ok
}

// best returns how the best figure looks, and whether all of them look like that.
func (f figure) best(results []bench.Result) (text string, all bool) {
	var best float64
	first := true
	all = true
	for _, r := range results {
		if !f.competes(r) {
			continue
		}
		x, _ := f.value(r)
		shown := f.show(r)
		all = all && (first || shown == text)
		if first || float64(f.better)*(x-best) > 0 {
			best, text = x, shown
		}
		first = false
	}
	return text, all
}

// What ends the name of a limiter that is not, or not found to be, exact.
const (
	inexactSign = "~"
	overSign    = "!"
)

// label returns a contender's name with its signs.
func label(r bench.Result) string {
	var signs strings.Builder
	if !r.IsFloor && !r.Exact {
		signs.WriteString(inexactSign)
	}
	if r.Audit != nil && !r.Audit.Clean() {
		signs.WriteString(overSign)
	}
	if signs.Len() == 0 {
		return r.Contender
	}
	return r.Contender + " " + signs.String()
}
