package bench

import (
	"slices"
	"time"
)

// Report is the outcome of a run.
type Report struct {
	Workloads []WorkloadReport `json:"workloads"`
	// Interrupted reports whether the run was ended before it was done. The pass in
	// which it was ended is not among the rounds, but in the audit.
	Interrupted bool `json:"interrupted"`
	// LeftOut lists what was not measured at all, because the budget of time was used up.
	LeftOut []LeftOut `json:"left_out,omitempty"`
	// Watched reports whether the load of other processes could be seen. If not, no
	// pass is marked as disturbed.
	Watched bool          `json:"watched"`
	Took    time.Duration `json:"took_ns"`
}

// LeftOut names the contenders of a workload for which there was no time.
type LeftOut struct {
	Workload   string   `json:"workload"`
	CPU        int      `json:"cpu"` // GOMAXPROCS
	Contenders []string `json:"contenders"`
}

// WorkloadReport is the outcome of one workload.
type WorkloadReport struct {
	Name    string   `json:"name"`
	About   string   `json:"about"`
	Why     string   `json:"why"`
	Draw    string   `json:"draw"`
	Limit   Limit    `json:"limit"`
	Keys    int      `json:"keys"`
	MaxKeys int      `json:"max_keys"`
	Callers int      `json:"callers"`
	CPU     int      `json:"cpu"`    // GOMAXPROCS
	Rounds  int      `json:"rounds"` // as planned
	Timed   bool     `json:"timed"`  // whether the calls of the rounds were timed one by one
	Base    string   `json:"base,omitempty"`
	Results []Result `json:"results"`
}

// Yardstick returns the result of that yardstick, nil if it was not measured.
func (w *WorkloadReport) Yardstick(y Yardstick) *Result {
	for i := range w.Results {
		if w.Results[i].Yardstick == y {
			return &w.Results[i]
		}
	}
	return nil
}

// Result returns the result of a contender, nil if there is none.
func (w *WorkloadReport) Result(contender string) *Result {
	for i := range w.Results {
		if w.Results[i].Contender == contender {
			return &w.Results[i]
		}
	}
	return nil
}

// Result is the outcome of one contender in one workload. Figures of a spread are
// over the rounds.
type Result struct {
	Contender string `json:"contender"`
	// About, Note, Yardstick, Promise, Exact and Elsewhere are the contender's.
	About     string    `json:"contender_about,omitempty"`
	Note      string    `json:"note,omitempty"`
	Yardstick Yardstick `json:"yardstick,omitempty"`
	Promise   Promise   `json:"promise,omitempty"`
	Exact     bool      `json:"exact"`
	Elsewhere bool      `json:"elsewhere,omitempty"`
	// Apart reports whether the contenders of the workload make different calls. Like
	// names the one that makes the same kind of call, if any.
	Apart  bool   `json:"apart,omitempty"`
	Like   string `json:"like,omitempty"`
	Rounds []Pass `json:"rounds"`
	// Disturbed is the number of rounds that other load on the machine disturbed,
	// Repeated the number of passes that were repeated because of it.
	Disturbed int `json:"disturbed"`
	Repeated  int `json:"repeated"`

	// OpsPerSecond counts the calls of all callers together, by the clock. NsPerOp
	// is the processor time of a call, on all goroutines of the process: neither the
	// time of other processes nor time spent waiting is in it. CPUs is the average
	// number of processors in use.
	OpsPerSecond Spread `json:"ops_per_second"`
	NsPerOp      Spread `json:"ns_per_op"`
	CPUs         Spread `json:"cpus"`
	// OfFloor and OfMap are NsPerOp as a multiple of a yardstick's in the same round.
	// They are nil if that yardstick was not measured.
	OfFloor *Spread `json:"of_floor,omitempty"`
	OfMap   *Spread `json:"of_map,omitempty"`
	// OfBase is the same for the workload's base. It is nil for the base itself.
	OfBase *Spread `json:"of_base,omitempty"`

	AllocsPerOp Spread `json:"allocs_per_op"`
	BytesPerOp  Spread `json:"bytes_per_op"`
	// RefusedShare is over all rounds together.
	RefusedShare float64 `json:"refused_share"`

	// Latency is nil if it was not measured. Known is that of calls on known keys
	// while the others were opened, nil if there were none.
	Latency *Latency `json:"latency,omitempty"`
	Known   *Latency `json:"known_latency,omitempty"`
	// LatencyRounds is Latency round by round. It serves to decide whether two runs
	// differ by more than the rounds differ among themselves.
	LatencyRounds []Latency `json:"latency_rounds,omitempty"`

	// Memory is nil in workloads that do not measure it.
	Memory *Memory `json:"memory,omitempty"`

	// Audit is nil for a yardstick.
	Audit *Audit `json:"audit,omitempty"`
}

// IsLimiter reports whether the result is that of a limiter, not of a yardstick.
func (r Result) IsLimiter() bool { return r.Yardstick == "" }

// Comparable reports whether a figure of the result may be called the best of its
// workload. It may if the limiter is exact by design, kept its promise, and does all
// of its work in this process. In a workload of different calls there is no best.
func (r Result) Comparable() bool {
	return !r.Apart && r.KeptPromise()
}

// KeptPromise reports whether the result is that of a limiter that is exact by design,
// kept its promise, and does all of its work in this process.
func (r Result) KeptPromise() bool {
	return r.Exact && r.IsLimiter() && !r.Elsewhere && (r.Audit == nil || r.Audit.Clean())
}

// Pass is one contender's turn in one round, untimed calls only unless the workload
// says otherwise.
type Pass struct {
	Calls   int64         `json:"calls"`
	Passed  int64         `json:"passed"`
	Elapsed time.Duration `json:"elapsed_ns"`
	// CPU is the processor time that the process used. If the system does not tell,
	// it is the elapsed time × the number of callers that can run at once.
	CPU    time.Duration `json:"cpu_ns"`
	Allocs uint64        `json:"allocs"`
	Bytes  uint64        `json:"bytes"`
	// Others is the processor time that other processes used meanwhile on the
	// processors that this one may use. Disturbed reports whether it was enough to
	// matter. Both are zero if the system does not tell.
	Others    time.Duration `json:"others_ns,omitempty"`
	Disturbed bool          `json:"disturbed,omitempty"`

	lost time.Duration // processor time that others took away
}

// OpsPerSecond returns the calls of all callers together, by the clock.
func (p Pass) OpsPerSecond() float64 { return float64(p.Calls) / max(p.Elapsed.Seconds(), 1e-9) }

// NsPerOp returns the processor time of a call.
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

// fillRatios fills in the ratios to the yardsticks, round by round, as far as both
// were measured.
func (w *WorkloadReport) fillRatios() {
	for i := range w.Results {
		r := &w.Results[i]
		r.OfFloor = r.ratioTo(w.Yardstick(YardstickFloor))
		r.OfMap = r.ratioTo(w.Yardstick(YardstickMap))
		if w.Base != r.Contender {
			r.OfBase = r.ratioTo(w.Result(w.Base))
		}
	}
}

// ratioTo returns the processor time of a call as a multiple of a yardstick's in the
// same round, nil if there is none.
func (r *Result) ratioTo(yardstick *Result) *Spread {
	if yardstick == nil {
		return nil
	}
	s, ok := Ratios(r.Rounds, yardstick.Rounds, Pass.NsPerOp)
	if !ok {
		return nil
	}
	return &s
}

// Ratios returns the figure of passes as a multiple of other passes' in the same round. A
// round in which the other is 0 is passed over. Ratios reports false if none is left.
func Ratios(of, by []Pass, figure func(Pass) float64) (Spread, bool) {
	var ratios []float64
	for i := range min(len(of), len(by)) {
		if x := figure(by[i]); x > 0 {
			ratios = append(ratios, figure(of[i])/x)
		}
	}
	return SpreadOf(ratios), len(ratios) > 0
}

// Spread is the median of some values, with the least and the greatest.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf returns the spread of the values, and the zero Spread without values.
// The median of an even number is the mean of the two in the middle.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	v := slices.Sorted(slices.Values(values))
	mid := len(v) / 2
	median := v[mid]
	if len(v)%2 == 0 {
		median = (v[mid-1] + v[mid]) / 2
	}
	return Spread{Median: median, Min: v[0], Max: v[len(v)-1]}
}

// Relative returns the distance of the value farthest from the median, as a share of
// the median. It is 0 if the median is 0.
func (s Spread) Relative() float64 {
	if s.Median == 0 {
		return 0
	}
	return max(s.Max-s.Median, s.Median-s.Min) / s.Median
}
