package bench

import "time"

// Recorder keeps the latencies of single calls, as a histogram does.
type Recorder interface {
	// Record keeps one latency. One goroutine at a time calls it, and it must not
	// allocate.
	Record(d time.Duration)
	// Add takes over what another one of the same make has kept.
	Add(other Recorder)
	// Latency tells what was kept.
	Latency() Latency
	// Reset forgets it.
	Reset()
}

// Latency is how long single calls took, one clock read included.
type Latency struct {
	Calls int64         `json:"calls"`
	P50   time.Duration `json:"p50_ns"`
	P90   time.Duration `json:"p90_ns,omitempty"` // 0 in reports from before it was kept
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	Worst time.Duration `json:"worst_ns"`
}

// recorders keep the latencies of one contender in one workload. The zero value
// keeps none.
type recorders struct {
	each   []Recorder // one for each goroutine that asks, for the round at hand
	all    Recorder   // the rounds before
	rounds []Latency  // each of them
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

// of returns the recorder of a goroutine, nil if nothing is kept.
func (r *recorders) of(i int) Recorder {
	if r.all == nil {
		return nil
	}
	return r.each[i]
}

// endRound is called when nobody records. A round that is not whole counts among
// all, as its calls are calls as well, but not as a round.
func (r *recorders) endRound(whole bool) {
	if r.all == nil {
		return
	}
	round := r.each[0]
	for _, other := range r.each[1:] {
		round.Add(other)
		other.Reset()
	}
	if l := round.Latency(); whole && l.Calls > 0 {
		r.rounds = append(r.rounds, l)
	}
	r.all.Add(round)
	round.Reset()
}

// latency returns what was kept in all rounds, or nil if that is nothing.
func (r *recorders) latency() *Latency {
	if r.all == nil {
		return nil
	}
	if l := r.all.Latency(); l.Calls > 0 {
		return &l
	}
	return nil
}
