package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
)

// AuditRow is an audit in words.
type AuditRow struct {
	Contender, Task, Text string
	Clean, Binds          bool
	Exact                 bool   // by the contender's own design
	In                    string // the passes in which the excess grew, or empty
}

// Broken reports whether a contender exact by design admitted more than its promise.
func (r AuditRow) Broken() bool { return r.Exact && !r.Clean }

// AuditSummary counts the audits of a run.
type AuditSummary struct {
	Clean, CannotBind      int
	Broken, Peers, Inexact []AuditRow // audits that found too much admitted: by Ral, by exact peers, by others
}

// Any reports whether a limiter was audited.
func (s AuditSummary) Any() bool {
	return s.Clean+s.CannotBind+len(s.Broken)+len(s.Peers)+len(s.Inexact) > 0
}

func Audits(document Document) (summary AuditSummary) {
	for _, w := range document.Workloads {
		for _, row := range AuditRows(w) {
			switch {
			case row.Broken() && KindNamed(row.Contender) == KindRal:
				summary.Broken = append(summary.Broken, row)
			case row.Broken():
				summary.Peers = append(summary.Peers, row)
			case !row.Clean:
				summary.Inexact = append(summary.Inexact, row)
			case row.Binds:
				summary.Clean++
			default:
				summary.CannotBind++
			}
		}
	}
	return summary
}

func AuditRows(workloadReport bench.WorkloadReport) (rows []AuditRow) {
	for _, result := range workloadReport.Results {
		if result.Audit != nil {
			rows = append(rows, AuditRow{result.Name, format.Task(workloadReport.Name, workloadReport.CPU), AuditLine(*result.Audit), result.Audit.Clean(), result.Audit.Binds, result.Exact, overPasses(*result.Audit)})
		}
	}
	return rows
}

// Breaches names the limiters, and where each admitted more than its limit.
func Breaches(rows []AuditRow) string {
	var names, texts []string
	for _, auditRow := range rows {
		where := auditRow.Task + auditRow.In
		if i := slices.Index(names, auditRow.Contender); i >= 0 {
			texts[i] += "; " + where
			continue
		}
		names, texts = append(names, auditRow.Contender), append(texts, auditRow.Contender+" admits more than its limit: "+where)
	}
	return strings.Join(texts, ". ")
}

func overPasses(audit bench.Audit) string {
	if audit.OverPasses == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of %s", audit.OverPasses, format.Plural(audit.Passes, "pass"))
}

// AuditLine tells the admitted, allowed and possible calls in a line.
func AuditLine(audit bench.Audit) string { return say("audit", audit) }

// contendersOf joins the names of the rows' contenders, each once.
func contendersOf(rows []AuditRow) string {
	var names []string
	for _, row := range rows {
		if !slices.Contains(names, row.Contender) {
			names = append(names, row.Contender)
		}
	}
	return format.And(names)
}

// IsTelling reports whether an audit has found anything, or could have.
func IsTelling(audit bench.Audit) bool {
	return audit.Binds || audit.Over > 0 || audit.Admitted != audit.Calls || audit.Own != nil && *audit.Own != (bench.Counts{})
}
