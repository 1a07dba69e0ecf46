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
	// Budget is the most time that the whole run takes, by the clock; 0 means no bound.
	// When the run is late by it, rounds of a workload after the first are left out, and
	// disturbed passes are not repeated. If even the first rounds take too long, a
	// workload is ended in the middle, so that the others have their part of the time.
	// Report.LeftOut says which contenders were not measured because of it. The run
	// exceeds the budget only by the time that a contender takes to begin and to close.
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
