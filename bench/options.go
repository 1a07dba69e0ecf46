package bench

import (
	"fmt"
	"runtime"
	"time"
)

// Options say how to measure. All fields except Duration and Rounds may be zero.
type Options struct {
	// Duration is the time to ask a contender in each round, unless the workload ends by itself.
	// Timed passes last half of it.
	Duration time.Duration
	// Rounds is the number of rounds, unless the workload says.
	Rounds int
	// CPUs are the values of GOMAXPROCS to measure with in each workload; empty leaves it as it is.
	CPUs []int
	// Callers is the number of goroutines that ask, unless the workload says; 0 means GOMAXPROCS.
	Callers int
	// Budget is the most time of the whole run by the clock; 0 means no bound. A late run leaves
	// out spare contenders, and then rounds after the first. If even first rounds take too long, a
	// workload ends early; Report.LeftOut lists the contenders not measured. The run exceeds the
	// budget only by the time that a contender takes to begin and to close.
	Budget time.Duration
	// NewRecorder makes a recorder of latencies. Nil leaves them unmeasured.
	NewRecorder func() Recorder
	// Progress, if not nil, is called before each step and at the end, unmeasured.
	Progress func(Progress)

	// busy is for tests. Nil means machineBusy.
	busy busyTime
}

type Progress struct {
	// Workload is empty at the end of a run.
	Workload string
	// CPU is GOMAXPROCS.
	CPU int
	// Contender is empty if the step is about none.
	Contender string
	// Round is counted from 1. It is 0 for the steps before the rounds.
	Round int
	// Total is the estimated time of the run.
	Total time.Duration
}

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
