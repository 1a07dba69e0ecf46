package bench

import "time"

// Recorder keeps the latencies of single calls, like a histogram.
type Recorder interface {
	// Record keeps a latency. One goroutine at a time calls it; it must not allocate.
	Record(d time.Duration)
	// Add adds the latencies of another Recorder of the same kind.
	Add(other Recorder)
	Latency() Latency
	Reset()
}

// Latency summarizes the latencies of calls, each with a clock read.
type Latency struct {
	Calls int64         `json:"calls"`
	P50   time.Duration `json:"p50_ns"`
	// P90 is 0 in reports from before it was kept.
	P90   time.Duration `json:"p90_ns,omitempty"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	Worst time.Duration `json:"worst_ns"`
	// Disturbed is [Pass.Disturbed] of the pass that was timed, in the latencies of a round.
	Disturbed bool `json:"disturbed,omitempty"`
}

// recorders keep the latencies of a contender in a workload. The zero value keeps none.
type recorders struct {
	// each has a Recorder for each goroutine, for the current round, or nil if nothing is kept.
	each []Recorder
	// all has the earlier rounds.
	all Recorder
	// rounds has the latency of each round.
	rounds []Latency
}

func newRecorders(n int, newRecorder func() Recorder) *recorders {
	r := &recorders{each: make([]Recorder, n)}
	if newRecorder != nil && n > 0 {
		r.all = newRecorder()
		for i := range r.each {
			r.each[i] = newRecorder()
		}
	}
	return r
}

// endRound ends the round of a timed pass while no goroutine records. An incomplete round counts
// only in all.
func (r *recorders) endRound(timed Pass, whole bool) {
	if r.all == nil {
		return
	}
	round := r.each[0]
	for _, other := range r.each[1:] {
		round.Add(other)
		other.Reset()
	}
	if latency := round.Latency(); whole && latency.Calls > 0 {
		latency.Disturbed = timed.Disturbed
		r.rounds = append(r.rounds, latency)
	}
	r.all.Add(round)
	round.Reset()
}

// latency returns the summary of all rounds, nil if nothing was kept.
func (r *recorders) latency() *Latency {
	if r.all == nil {
		return nil
	}
	if latency := r.all.Latency(); latency.Calls > 0 {
		return &latency
	}
	return nil
}

// Pass is a contender's turn in a round, of untimed calls unless Timed.
type Pass struct {
	Calls   int64         `json:"calls"`
	Passed  int64         `json:"passed"`
	Elapsed time.Duration `json:"elapsed_ns"`
	// CPU is the process's CPU time, or if unknown, Elapsed × the callers that can run at once.
	CPU time.Duration `json:"cpu_ns"`
	// Behind is the CPU time of another process that works for the contender.
	Behind time.Duration `json:"behind_ns,omitempty"`
	Allocs uint64        `json:"allocs"`
	Bytes  uint64        `json:"bytes"`
	// Others is the processor time of other processes on this process's processors. Disturbed
	// reports whether it matters. Both are zero if unknown.
	Others    time.Duration `json:"others_ns,omitempty"`
	Disturbed bool          `json:"disturbed,omitempty"`
}

// OpsPerSecond returns the calls of all callers together, by the clock, 0 if their time is unknown.
func (p Pass) OpsPerSecond() float64 {
	if p.Elapsed <= 0 {
		return 0
	}
	return float64(p.Calls) / p.Elapsed.Seconds()
}

// NsPerOp returns the processor time of a call.
func (p Pass) NsPerOp() float64 { return float64(p.CPU) / float64(max(p.Calls, 1)) }

// BehindNsPerOp returns the processor time of a call in another process, 0 if unknown.
func (p Pass) BehindNsPerOp() float64 { return float64(p.Behind) / float64(max(p.Calls, 1)) }
