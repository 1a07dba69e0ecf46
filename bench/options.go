package bench

import (
	"fmt"
	"runtime"
	"time"
)

// Options say how to measure. All fields except Duration and Rounds may be left
// zero.
type Options struct {
	// Duration is the time for which a contender is asked in each round, in the
	// workloads that do not end by themselves. Passes that time single calls last
	// half of it.
	Duration time.Duration
	// Rounds is the number of rounds of workloads that do not say.
	Rounds int
	// CPUs are the values of GOMAXPROCS to measure with, one after the other in each
	// workload. Empty leaves GOMAXPROCS as it is.
	CPUs []int
	// Callers is the number of goroutines that ask in workloads that do not say; 0
	// means as many as GOMAXPROCS.
	Callers int
	// Budget is the most time that the whole run should take; 0 means no bound. When
	// the run is late by it, rounds of a workload after the first are left out. The
	// first rounds are not, so the budget may still be exceeded. Disturbed passes are
	// repeated as long as the run is not late.
	Budget time.Duration
	// NewRecorder makes what keeps latencies. Nil leaves them unmeasured.
	NewRecorder func() Recorder
	// Progress, if not nil, is called before each step with a description of it, and
	// at the end. The clock does not run meanwhile.
	Progress func(Progress)
	// Finished, if not nil, is called with the outcome of each workload.
	Finished func(WorkloadReport)

	busy busyTime // for tests; nil means what the machine tells
}

// Progress says how far a run has come.
type Progress struct {
	Workload  string
	CPU       int    // GOMAXPROCS
	Contender string // empty if the step is about none
	Doing     string
	// Done of Total is over, both by estimate. At the end they are equal.
	Done, Total time.Duration
}

// Estimate returns the rough time of a run on a quiet machine, without regard to the
// budget.
func Estimate(workloads []Workload, contenders []Contender, o Options) time.Duration {
	o, err := o.complete()
	if err != nil {
		return 0
	}
	_, total := plan(workloads, contenders, workers{}, o)
	return total
}

// complete checks the options and fills in the defaults.
func (o Options) complete() (Options, error) {
	if o.Duration <= 0 || o.Rounds < 1 || o.Callers < 0 {
		return o, fmt.Errorf("bench: Duration, Rounds and Callers are %v, %d and %d, but must be positive", o.Duration, o.Rounds, o.Callers)
	}
	if len(o.CPUs) == 0 {
		o.CPUs = []int{runtime.GOMAXPROCS(0)}
	}
	for _, cpu := range o.CPUs {
		if cpu < 1 {
			return o, fmt.Errorf("bench: CPUs are %v, but must be positive", o.CPUs)
		}
	}
	if o.busy == nil {
		o.busy = machineBusy
	}
	return o, nil
}

// isLate reports whether a round that begins with a step of this cost would begin
// too late for the budget, if time goes by as estimated from then on.
func (o Options) isLate(elapsed time.Duration, at Progress, cost time.Duration) bool {
	due := float64(o.Budget) * float64(at.Done+cost) / float64(at.Total)
	return o.Budget > 0 && float64(elapsed) > due+float64(min(o.Budget/50, grace))
}

// grace is the delay that a run may have without being late: the first steps are too
// short to tell.
const grace = time.Second
