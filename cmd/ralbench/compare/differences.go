package compare

import (
	"fmt"
	"math"
	"strings"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
)

// differences lists the differences of machine and settings between two runs.
func differences(old, new report.Document) (notes []string) {
	say := func(what string, before, now any) {
		if before != now {
			notes = append(notes, fmt.Sprintf("%s: %v before, %v now", what, orUnset(before), orUnset(now)))
		}
	}
	a, b := old.Machine, new.Machine
	say("DIFFERENT MACHINE, processor", a.CPU, b.CPU)
	say("DIFFERENT MACHINE, cores", a.Cores, b.Cores)
	say("system", a.OS+"/"+a.Arch, b.OS+"/"+b.Arch)
	say("Go version", a.Go, b.Go)
	say("GOGC", a.GOGC, b.GOGC)
	say("GOMAXPROCS", a.GOMAXPROCS, b.GOMAXPROCS)
	say("duration of a turn", old.Settings.Duration, new.Settings.Duration)
	say("rounds", old.Settings.Rounds, new.Settings.Rounds)
	say("scale", old.Settings.Scale, new.Settings.Scale)
	if old.Interrupted {
		notes = append(notes, "the earlier run was interrupted")
	}
	if new.Interrupted {
		notes = append(notes, "the later run was interrupted")
	}
	for _, side := range []struct {
		name       string
		have, lack report.Document
	}{{"earlier", old, new}, {"later", new, old}} {
		if only := onlyIn(side.have, side.lack); only != "" {
			notes = append(notes, "only in the "+side.name+" run: "+only)
		}
	}
	return notes
}

func orUnset(v any) any {
	if v == "" {
		return "unset"
	}
	return v
}

// onlyIn lists the workloads and contenders that the other run lacks.
func onlyIn(have, lack report.Document) string {
	others := make(map[string]*bench.WorkloadReport)
	for i, w := range lack.Workloads {
		others[format.Task(w.Name, w.CPU)] = &lack.Workloads[i]
	}
	var only []string
	for _, w := range have.Workloads {
		name := format.Task(w.Name, w.CPU)
		other := others[name]
		if other == nil {
			only = append(only, name)
			continue
		}
		for _, r := range w.Results {
			if report.ResultOf(*other, r.Contender) == nil {
				only = append(only, r.Contender+" in "+name)
			}
		}
	}
	return strings.Join(only, ", ")
}

// taskDifferences lists how two workloads of the same name differ. If they do, their
// figures are shown, but not judged.
func taskDifferences(old, new bench.WorkloadReport) (notes []string) {
	say := func(what string, before, now any) {
		if before != now {
			notes = append(notes, fmt.Sprintf("%s: %v before, %v now", what, before, now))
		}
	}
	say("draw", old.Draw, new.Draw)
	say("keys", old.Keys, new.Keys)
	say("most keys kept", old.MaxKeys, new.MaxKeys)
	say("callers", old.Callers, new.Callers)
	say("calls timed in the rounds", old.Timed, new.Timed)
	if !limitIsFound(new.Name) {
		if old.Limit != new.Limit {
			say("limit", format.Limit(old.Limit), format.Limit(new.Limit))
		}
		return notes
	}
	// The limit that refuses a set share at the speed of the day is another one in
	// every run; the share that it refuses is what counts.
	for _, r := range new.Results {
		if o := report.ResultOf(old, r.Contender); o != nil && math.Abs(o.RefusedShare-r.RefusedShare) > 0.15 {
			say("refused by "+r.Contender, fmt.Sprintf("%.0f%%", 100*o.RefusedShare), fmt.Sprintf("%.0f%%", 100*r.RefusedShare))
		}
	}
	return notes
}

// limitIsFound reports whether the limit of the workload is found by measuring.
func limitIsFound(name string) bool {
	for _, w := range bench.All(1) {
		if w.Name == name {
			return w.Limit == bench.Limit{}
		}
	}
	return false
}
