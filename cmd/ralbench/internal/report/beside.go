package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
)

// Beside returns Ral's processor time of a call as a multiple of each peer's, by workload, and the
// multiples of the best peers in a sentence, empty without peers. It judges by undisturbed rounds.
// The last value of GOMAXPROCS counts.
func Beside(d Document) (t Table, sentence string) {
	t = Table{
		Title: "Ral beside its peers",
		About: "Ral's processor time of a call as a multiple of each peer's. Below 1 Ral needs less. " +
			"±: the farthest round. ?: rounds disagree whether it does. Without " + strconv.Itoa(minJudged) + " undisturbed rounds no peer is judged. " + InexactSign + ": inexact by design. " + BrokenSign + ": admitted more than its limit.",
		Columns: words("peer"),
	}
	var best, unjudged []string
	for i := range d.Workloads {
		w := &d.Workloads[i]
		mine, least := w.Result(ral), costs.best(peersIn(*w))
		if mine == nil || mine.Apart || mine.Latency == nil || least == nil || w != lastOf(d, w.Name) {
			continue
		}
		t.Columns = append(t.Columns, Head{Name: w.Name, Width: len(w.Name)})
		for i := range t.Rows {
			t.Rows[i].Cells = append(t.Rows[i].Cells, nothing)
		}
		for _, r := range w.Results {
			times, why, ok := costs.judged(*mine, &r)
			if !ok || r.Elsewhere || KindOf(r) != KindPeer {
				continue
			}
			name, cell, task := r.Name, nothing, taskName(d, w.Name, w.CPU)
			if !r.Exact {
				name += " " + InexactSign
			}
			if why == "" {
				cell = format.Spread(times, format.Ratio)
				if times.Min < 1 && times.Max > 1 {
					cell += "?"
				}
			}
			switch {
			case r.Name != least.Name:
			case why == "":
				best = append(best, fmt.Sprintf("%s %s's time in %s (%s)", format.Part(times.Median), name, task, format.Range(times)))
			default:
				unjudged = append(unjudged, fmt.Sprintf("%s (%s)", task, strings.TrimPrefix(why, notJudged)))
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
		sentence = "a call takes " + format.And(best) + "."
	}
	if len(unjudged) > 0 {
		sentence = strings.TrimSpace(sentence + " Not judged: " + format.And(unjudged) + ".")
	}
	return t, sentence
}
