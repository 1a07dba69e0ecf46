package main

import (
	"slices"

	"github.com/ral-limiter/ral/bench"
)

type auditRow struct {
	Contender, Task, Text string
	Clean, Binds          bool
	Exact                 bool // by its own claim
}

// Fault tells whether more was admitted than the contender claims to admit.
func (r auditRow) Fault() bool { return r.Exact && !r.Clean }

// auditSummary is about all audits together.
type auditSummary struct {
	Clean, CannotBind int
	Faults, Inexact   []auditRow // that found too much
}

func (a *auditSummary) add(r auditRow) {
	switch {
	case r.Fault():
		a.Faults = append(a.Faults, r)
	case !r.Clean:
		a.Inexact = append(a.Inexact, r)
	case r.Binds:
		a.Clean++
	default:
		a.CannotBind++
	}
}

// anyClaims tells whether the run knows who claims to be exact. Older ones do not,
// and there everybody is taken by the word.
func anyClaims(workloads []bench.WorkloadReport) bool {
	return slices.ContainsFunc(workloads, func(w bench.WorkloadReport) bool {
		return slices.ContainsFunc(w.Results, func(r bench.Result) bool { return r.Exact })
	})
}
