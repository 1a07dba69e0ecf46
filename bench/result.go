package bench

import "time"

// Report is what a run has measured.
type Report struct {
	Workloads []WorkloadReport `json:"workloads"`
	// Interrupted tells that the run was ended before it was done. The pass that
	// it was ended in is not among the rounds, but in the audit.
	Interrupted bool `json:"interrupted"`
	// Watched tells whether the load of other processes could be seen. If not, no
	// pass is marked as disturbed.
	Watched bool          `json:"watched"`
	Took    time.Duration `json:"took_ns"`
}

// WorkloadReport is what the contenders did in one workload.
type WorkloadReport struct {
	Name    string   `json:"name"`
	About   string   `json:"about"`
	Draw    string   `json:"draw"`
	Limit   Limit    `json:"limit"`
	Keys    int      `json:"keys"`
	MaxKeys int      `json:"max_keys"`
	Callers int      `json:"callers"`
	CPU     int      `json:"cpu"`    // GOMAXPROCS
	Rounds  int      `json:"rounds"` // that there should be
	Timed   bool     `json:"timed"`  // whether the calls of the rounds were timed one by one
	Results []Result `json:"results"`
}

// Result is what one contender did in one workload. Figures of a spread are over
// the rounds.
type Result struct {
	Contender string `json:"contender"`
	IsFloor   bool   `json:"is_floor"`
	// Note, Exact and Elsewhere are the contender's.
	Note      string `json:"note,omitempty"`
	Exact     bool   `json:"exact"`
	Elsewhere bool   `json:"elsewhere,omitempty"`
	Rounds    []Pass `json:"rounds"`
	// Disturbed is how many of the rounds other load on the machine disturbed,
	// Repeated how many passes were done again because of it.
	Disturbed int `json:"disturbed"`
	Repeated  int `json:"repeated"`

	// OpsPerSecond counts the calls of all callers together, by the clock.
	// NsPerOp is the processor time that a call takes, whichever goroutine of
	// the process spends it: neither time in which other processes had the
	// machine nor time spent waiting is in it. CPUs is how many processors were
	// in use on average.
	OpsPerSecond Spread `json:"ops_per_second"`
	NsPerOp      Spread `json:"ns_per_op"`
	CPUs         Spread `json:"cpus"`
	// OfFloor is NsPerOp as a multiple of the floor's in the same round; nil
	// where no floor was measured.
	OfFloor *Spread `json:"of_floor,omitempty"`

	AllocsPerOp Spread `json:"allocs_per_op"`
	BytesPerOp  Spread `json:"bytes_per_op"`
	// RefusedShare is over all rounds together.
	RefusedShare float64 `json:"refused_share"`

	// Latency is nil if it was not measured. Known is that of calls on known
	// keys while the others were opened, nil if there were none.
	Latency *Latency `json:"latency,omitempty"`
	Known   *Latency `json:"known_latency,omitempty"`
	// LatencyRounds is Latency round by round, for who asks whether a difference
	// between two runs is more than the rounds differ among themselves.
	LatencyRounds []Latency `json:"latency_rounds,omitempty"`

	// Memory is nil in workloads that do not measure it.
	Memory *Memory `json:"memory,omitempty"`

	// Audit is nil for a floor.
	Audit *Audit `json:"audit,omitempty"`
}

// Comparable tells whether a figure of the result may be called the best of its
// workload: that of a limiter which is exact by design, was found to be, and does
// all of its work in this process.
func (r Result) Comparable() bool {
	return r.Exact && !r.IsFloor && !r.Elsewhere && (r.Audit == nil || r.Audit.Clean())
}

// Pass is one contender's turn in one round, untimed calls only unless the
// workload says otherwise.
type Pass struct {
	Calls   int64         `json:"calls"`
	Passed  int64         `json:"passed"`
	Elapsed time.Duration `json:"elapsed_ns"`
	// CPU is the processor time that the process used; where the system does not
	// tell, elapsed time × callers that can run at once.
	CPU    time.Duration `json:"cpu_ns"`
	Allocs uint64        `json:"allocs"`
	Bytes  uint64        `json:"bytes"`
	// Others is the processor time that other processes used meanwhile on the
	// processors that this one may use. Disturbed tells that it was enough to
	// matter. Both are zero where the system does not tell.
	Others    time.Duration `json:"others_ns,omitempty"`
	Disturbed bool          `json:"disturbed,omitempty"`
	// OfFloor is this pass against the floor's in the same round, 0 if there is
	// none.
	OfFloor float64 `json:"of_floor,omitempty"`

	lost time.Duration // to others
}

// OpsPerSecond counts the calls of all callers together, by the clock.
func (p Pass) OpsPerSecond() float64 { return float64(p.Calls) / max(p.Elapsed.Seconds(), 1e-9) }

// NsPerOp is the processor time that a call takes.
func (p Pass) NsPerOp() float64 { return float64(p.CPU) / float64(max(p.Calls, 1)) }

// summarize fills in what follows from the rounds.
func (r *Result) summarize() {
	over := func(f func(Pass) float64) Spread {
		values := make([]float64, len(r.Rounds))
		for i, p := range r.Rounds {
			values[i] = f(p)
		}
		return SpreadOf(values)
	}
	r.OpsPerSecond = over(Pass.OpsPerSecond)
	r.NsPerOp = over(Pass.NsPerOp)
	r.CPUs = over(func(p Pass) float64 { return float64(p.CPU) / float64(max(p.Elapsed, 1)) })
	r.AllocsPerOp = over(func(p Pass) float64 { return float64(p.Allocs) / float64(max(p.Calls, 1)) })
	r.BytesPerOp = over(func(p Pass) float64 { return float64(p.Bytes) / float64(max(p.Calls, 1)) })

	var calls, passed int64
	for _, p := range r.Rounds {
		calls += p.Calls
		passed += p.Passed
		if p.Disturbed {
			r.Disturbed++
		}
	}
	r.RefusedShare = 1 - float64(passed)/float64(max(calls, 1))
}

// compare fills in the ratios to the floor: round by round, as long as both were
// measured.
func (w *WorkloadReport) compare() {
	var floor *Result
	for i := range w.Results {
		if w.Results[i].IsFloor {
			floor = &w.Results[i]
		}
	}
	if floor == nil {
		return
	}
	for i := range w.Results {
		r := &w.Results[i]
		var ratios []float64
		for j := range min(len(r.Rounds), len(floor.Rounds)) {
			r.Rounds[j].OfFloor = r.Rounds[j].NsPerOp() / max(floor.Rounds[j].NsPerOp(), 1e-3)
			ratios = append(ratios, r.Rounds[j].OfFloor)
		}
		if len(ratios) > 0 {
			s := SpreadOf(ratios)
			r.OfFloor = &s
		}
	}
}
