package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
)

// Beside returns Ral's processor time of a call as a multiple of each peer's, by workload, and the
// multiples of the best peers in a sentence, empty without peers. It judges by undisturbed rounds.
// The last value of GOMAXPROCS counts.
func Beside(document Document) (table Table, sentence string) {
	table = Table{
		Title: "Ral beside its peers",
		About: "Ral's processor time of a call as a multiple of each peer's. Below 1 Ral needs less. " +
			"±: the farthest round. ?: rounds disagree whether it does. Without " + strconv.Itoa(minJudged) + " undisturbed rounds no peer is judged. " + InexactSign + ": inexact by design. " + BrokenSign + ": admitted more than its limit.",
		Columns: heads(true, "peer"),
	}
	var best, unjudged, names []string
	// cells are by peer and workload.
	cells := map[[2]string]string{}
	for i := range document.Workloads {
		w := &document.Workloads[i]
		mine, least := w.Result(ral), costs.best(peersIn(*w))
		if mine == nil || mine.Apart || mine.Latency == nil || least == nil || w != lastOf(document, w.Name) {
			continue
		}
		table.Columns = append(table.Columns, Head{Name: w.Name, Width: len(w.Name)})
		for _, result := range w.Results {
			times, why, ok := costs.judged(*mine, &result)
			if !ok || result.Elsewhere || KindOf(result) != KindPeer {
				continue
			}
			name, cell, task := result.Name, nothing, taskName(document, w.Name, w.CPU)
			if !result.Exact {
				name += " " + InexactSign
			}
			if why == "" {
				cell = format.Spread(times, format.Ratio)
				if times.Min < 1 && times.Max > 1 {
					cell += "?"
				}
			}
			switch {
			case result.Name != least.Name:
			case why == "":
				best = append(best, fmt.Sprintf("%s of %s's time in %s", format.Spread(times, format.Ratio), name, task))
			default:
				unjudged = append(unjudged, fmt.Sprintf("%s (%s)", task, strings.TrimPrefix(why, notJudged)))
			}
			if result.Audit != nil && !result.Audit.Clean() {
				cell += BrokenSign
			}
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
			cells[[2]string{name, w.Name}] = cell
		}
	}
	for _, name := range names {
		row := Row{KindPeer, []string{name}}
		for _, head := range table.Columns[1:] {
			row.Cells = append(row.Cells, cmp.Or(cells[[2]string{name, head.Name}], nothing))
		}
		table.Rows = append(table.Rows, row)
	}
	if len(best) > 0 {
		sentence = "a call takes " + format.And(best) + "."
	}
	if len(unjudged) > 0 {
		sentence = strings.TrimSpace(sentence + " Not judged: " + format.And(unjudged) + ".")
	}
	return table, sentence
}
