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
}

// Latency is how long single calls took, one clock read included.
type Latency struct {
	Calls int64         `json:"calls"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	Worst time.Duration `json:"worst_ns"`
}

// recorders are one for each goroutine, or none.
type recorders []Recorder

func newRecorders(n int, newRecorder func() Recorder) recorders {
	if newRecorder == nil {
		return nil
	}
	r := make(recorders, n)
	for i := range r {
		r[i] = newRecorder()
	}
	return r
}

// latency returns what all of them kept, or nil if that is nothing.
func (r recorders) latency() *Latency {
	if len(r) == 0 {
		return nil
	}
	for _, other := range r[1:] {
		r[0].Add(other)
	}
	if l := r[0].Latency(); l.Calls > 0 {
		return &l
	}
	return nil
}
