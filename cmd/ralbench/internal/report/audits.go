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

func Audits(d Document) (s AuditSummary) {
	for _, w := range d.Workloads {
		for _, row := range AuditRows(w) {
			s.add(row)
		}
	}
	return s
}

func AuditRows(w bench.WorkloadReport) (rows []AuditRow) {
	for _, r := range w.Results {
		if r.Audit != nil {
			rows = append(rows, AuditRow{r.Name, format.Task(w.Name, w.CPU), AuditLine(*r.Audit), r.Audit.Clean(), r.Audit.Binds, r.Exact, overPasses(*r.Audit)})
		}
	}
	return rows
}

func (s *AuditSummary) add(r AuditRow) {
	switch {
	case r.Broken() && KindNamed(r.Contender) == KindRal:
		s.Broken = append(s.Broken, r)
	case r.Broken():
		s.Peers = append(s.Peers, r)
	case !r.Clean:
		s.Inexact = append(s.Inexact, r)
	case r.Binds:
		s.Clean++
	default:
		s.CannotBind++
	}
}

// Breaches names the limiters, and where each admitted more than its limit.
func Breaches(rows []AuditRow) string {
	var names, texts []string
	for _, r := range rows {
		where := r.Task + r.In
		if i := slices.Index(names, r.Contender); i >= 0 {
			texts[i] += "; " + where
			continue
		}
		names, texts = append(names, r.Contender), append(texts, r.Contender+" admits more than its limit: "+where)
	}
	return strings.Join(texts, ". ")
}

func overPasses(a bench.Audit) string {
	if a.OverPasses == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of %s", a.OverPasses, format.Plural(a.Passes, "pass"))
}

// minPossible is the share of the possible calls below which a limiter is said to miss some.
// Smaller gaps may be due to the instants of the calls.
const minPossible = 0.95

// AuditLine tells the admitted, allowed and possible calls.
func AuditLine(a bench.Audit) string {
	var b strings.Builder
	if a.Promise != "" {
		fmt.Fprintf(&b, "%s: ", a.Promise)
	}
	fmt.Fprintf(&b, "admitted %s of %s calls; at most %s allowed, %s possible",
		format.Thousands(a.Admitted), format.Thousands(a.Calls), format.Thousands(a.Allowed), format.Thousands(a.Possible))
	if a.Limiters > 1 {
		fmt.Fprintf(&b, " (%s)", strings.TrimSuffix(fmt.Sprintf("%d limiters: %s", a.Limiters, strings.Trim(fmt.Sprint(a.Each), "[]")), ": "))
	}
	switch {
	case a.Over > 0:
		fmt.Fprintf(&b, ": %s TOO MANY%s", format.Thousands(a.Over), overPasses(a))
	case !a.Binds:
		b.WriteString(": cannot bind, no key was asked beyond its limit")
	default:
		b.WriteString(": promise kept")
	}
	if share := a.OfPossible(); share < minPossible {
		fmt.Fprintf(&b, ", but ONLY %s of what was possible", format.Percent(share))
	}
	if more := a.OverBucket(); more > 0 && a.Clean() {
		fmt.Fprintf(&b, "; %s more than a bucket would admit, around the ends of windows", format.Thousands(more))
	}
	if own := a.Own; own != nil {
		for _, c := range []struct {
			n    int64
			what string
		}{
			{own.Overadmitted, "over-admitted"}, {own.Unavailable, "answered without the key's state"},
			{own.ByRedis, "answered by Redis"}, {own.ByLease, "on a lease"}, {own.Evicted, "keys evicted"}, {own.Forgiven, "of them still owing"}, {own.Restarts, "restarts"},
		} {
			if c.n > 0 {
				fmt.Fprintf(&b, "; %s %s", format.Thousands(c.n), c.what)
			}
		}
	}
	return b.String()
}

// IsTelling reports whether an audit has found anything, or could have.
func IsTelling(a bench.Audit) bool {
	return a.Binds || a.Over > 0 || a.Admitted != a.Calls || a.Own != nil && *a.Own != (bench.Counts{})
}
