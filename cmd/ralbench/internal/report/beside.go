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
func Beside(document Document) (table Table, sentence string) {
	table = Table{
		Title: "Ral beside its peers",
		About: "Ral's processor time of a call as a multiple of each peer's. Below 1 Ral needs less. " +
			"±: the farthest round. ?: rounds disagree whether it does. Without " + strconv.Itoa(minJudged) + " undisturbed rounds no peer is judged. " + InexactSign + ": inexact by design. " + BrokenSign + ": admitted more than its limit.",
		Columns: words("peer"),
	}
	var best, unjudged []string
	for i := range document.Workloads {
		workloadReport := &document.Workloads[i]
		mine, least := workloadReport.Result(ral), costs.best(peersIn(*workloadReport))
		if mine == nil || mine.Apart || mine.Latency == nil || least == nil || workloadReport != lastOf(document, workloadReport.Name) {
			continue
		}
		table.Columns = append(table.Columns, Head{Name: workloadReport.Name, Width: len(workloadReport.Name)})
		for i := range table.Rows {
			table.Rows[i].Cells = append(table.Rows[i].Cells, nothing)
		}
		for _, result := range workloadReport.Results {
			times, why, ok := costs.judged(*mine, &result)
			if !ok || result.Elsewhere || KindOf(result) != KindPeer {
				continue
			}
			name, cell, task := result.Name, nothing, taskName(document, workloadReport.Name, workloadReport.CPU)
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
			index := slices.IndexFunc(table.Rows, func(row Row) bool { return row.Cells[0] == name })
			if index < 0 {
				index = len(table.Rows)
				table.Rows = append(table.Rows, Row{KindPeer, append([]string{name}, slices.Repeat([]string{nothing}, len(table.Columns)-1)...)})
			}
			table.Rows[index].Cells[len(table.Columns)-1] = cell
		}
	}
	if len(best) > 0 {
		sentence = "a call takes " + format.And(best) + "."
	}
	if len(unjudged) > 0 {
		sentence = strings.TrimSpace(sentence + " Not judged: " + format.And(unjudged) + ".")
	}
	return table, sentence
}
