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
	// each has a Recorder for each goroutine, for the current round.
	each []Recorder
	// all has the earlier rounds.
	all Recorder
	// rounds has the latency of each round.
	rounds []Latency
}

func newRecorders(n int, newRecorder func() Recorder) *recorders {
	r := new(recorders)
	if newRecorder == nil || n == 0 {
		return r
	}
	r.all = newRecorder()
	for range n {
		r.each = append(r.each, newRecorder())
	}
	return r
}

// get returns the recorder of a goroutine, nil if nothing is kept.
func (r *recorders) get(i int) Recorder {
	if r.all == nil {
		return nil
	}
	return r.each[i]
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
	if l := round.Latency(); whole && l.Calls > 0 {
		l.Disturbed = timed.Disturbed
		r.rounds = append(r.rounds, l)
	}
	r.all.Add(round)
	round.Reset()
}

// latency returns the summary of all rounds, nil if nothing was kept.
func (r *recorders) latency() *Latency {
	if r.all == nil {
		return nil
	}
	if l := r.all.Latency(); l.Calls > 0 {
		return &l
	}
	return nil
}
