package report

import (
	"fmt"
	"slices"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
)

// Beside returns Ral's processor time of a call as a multiple of each peer's, by workload, and the
// multiples of the best peers in a sentence, empty without peers. The last value of GOMAXPROCS
// counts.
func Beside(d Document) (t Table, sentence string) {
	t = Table{
		Title: "Ral beside its peers",
		About: "Ral's processor time of a call as a multiple of each peer's. Below 1 Ral needs less. " +
			"?: rounds disagree whether it does. " + InexactSign + ": inexact by design. " + BrokenSign + ": admitted more than its limit.",
		Columns: words("peer"),
	}
	var best []string
	for i := range d.Workloads {
		w := &d.Workloads[i]
		mine, least := w.Result(ral), costs.best(peersIn(*w))
		if mine == nil || mine.Apart || mine.Latency == nil || least == nil || w != lastOf(d, w.Name) {
			continue
		}
		t.Columns = append(t.Columns, figures(w.Name)...)
		for i := range t.Rows {
			t.Rows[i].Cells = append(t.Rows[i].Cells, nothing)
		}
		for _, r := range w.Results {
			s, ok := bench.Ratios(mine.Rounds, r.Rounds, bench.Pass.NsPerOp)
			if !ok || r.Elsewhere || KindOf(r) != KindPeer {
				continue
			}
			name, cell := r.Name, format.Ratio(s.Median)
			if !r.Exact {
				name += " " + InexactSign
			}
			if s.Min < 1 && s.Max > 1 {
				cell += "?"
			}
			if r.Name == least.Name {
				best = append(best, fmt.Sprintf("%s in %s (%s)", cell, taskName(d, w.Name, w.CPU), name))
			}
			if r.Audit != nil && !r.Audit.Clean() {
				cell += BrokenSign
			}
			index := slices.IndexFunc(t.Rows, func(row Row) bool { return row.Cells[0] == name })
			if index < 0 {
				index = len(t.Rows)
				t.Rows = append(t.Rows, Row{KindPeer, append([]string{name}, slices.Repeat([]string{nothing}, len(t.Columns)-1)...)})
			}
			t.Rows[index].Cells[len(t.Columns)-1] = cell
		}
	}
	if len(best) > 0 {
		sentence = "a call takes, of the best peer's processor time, " + format.And(best) + "."
	}
	return t, sentence
}
