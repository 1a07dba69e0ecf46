package bench

import (
	"slices"
	"time"
)

type Report struct {
	Workloads []WorkloadReport `json:"workloads"`
	// Interrupted reports whether the run ended early. Only the audit has its last pass.
	Interrupted bool `json:"interrupted"`
	// LeftOut lists the contenders without a measurement for lack of time.
	LeftOut []LeftOut `json:"left_out,omitempty"`
	// Watched reports whether other load could be seen; if not, no pass is Disturbed.
	Watched bool          `json:"watched"`
	Took    time.Duration `json:"took_ns"`
}

// LeftOut names the contenders of a workload without a measurement.
type LeftOut struct {
	Workload string `json:"workload"`
	// CPU is GOMAXPROCS.
	CPU        int      `json:"cpu"`
	Contenders []string `json:"contenders"`
}

// WorkloadReport is the outcome of a workload, with the limit, callers and rounds that it had.
type WorkloadReport struct {
	Workload
	// CPU is GOMAXPROCS.
	CPU     int      `json:"cpu"`
	Results []Result `json:"results"`
}

// Yardstick returns the result of that yardstick, nil if it was not measured.
func (w *WorkloadReport) Yardstick(yardstick Yardstick) *Result {
	return w.find(func(result Result) bool { return result.Yardstick == yardstick })
}

// Result returns the result of a contender, nil if there is none.
func (w *WorkloadReport) Result(contender string) *Result {
	return w.find(func(result Result) bool { return result.Name == contender })
}

func (w *WorkloadReport) find(wanted func(Result) bool) *Result {
	if i := slices.IndexFunc(w.Results, wanted); i >= 0 {
		return &w.Results[i]
	}
	return nil
}

// Result is the outcome of a contender in a workload. Spreads are over the rounds.
type Result struct {
	Contender
	// Apart reports whether contenders make different calls.
	Apart bool `json:"apart,omitempty"`
	// Outside reports whether the contender measured itself, so that its allocations are unknown.
	Outside bool   `json:"outside,omitempty"`
	Rounds  []Pass `json:"rounds"`
	// Disturbed counts rounds disturbed by other load.
	Disturbed int `json:"disturbed"`

	// OpsPerSecond counts the calls of all callers, by the clock. NsPerOp is the processor time of
	// a call over all goroutines, without waiting.
	OpsPerSecond Spread `json:"ops_per_second"`
	NsPerOp      Spread `json:"ns_per_op"`
	// OfFloor and OfMap are NsPerOp relative to a yardstick in the same round, nil without it.
	OfFloor *Spread `json:"of_floor,omitempty"`
	OfMap   *Spread `json:"of_map,omitempty"`
	// OfBase is the same for the workload's base, nil for the base itself.
	OfBase *Spread `json:"of_base,omitempty"`

	RefusedShare float64 `json:"refused_share"`

	// Latency is nil if not measured. Known is for calls on known keys while others were opened.
	Latency *Latency `json:"latency,omitempty"`
	Known   *Latency `json:"known_latency,omitempty"`
	// LatencyRounds is Latency by round, to decide whether two runs differ by more than the rounds.
	LatencyRounds []Latency `json:"latency_rounds,omitempty"`

	Memory *Memory `json:"memory,omitempty"`
	// Share is the admitted share of the most that the limit allowed, 0 if not measured.
	Share float64 `json:"share,omitempty"`

	// Audit is nil for a yardstick.
	Audit *Audit `json:"audit,omitempty"`
}

func (r Result) IsLimiter() bool { return r.Yardstick == "" }

// Comparable reports whether a figure may be called the best of its workload: see KeptPromise. In a
// workload of different calls there is no best.
func (r Result) Comparable() bool {
	return !r.Apart && r.KeptPromise()
}

// KeptPromise reports whether a limiter exact by design, all in this process, kept its promise.
func (r Result) KeptPromise() bool {
	return r.Exact && r.IsLimiter() && !r.Elsewhere && (r.Audit == nil || r.Audit.Clean())
}

// Over returns the spread of a figure over the rounds.
func (r Result) Over(figure func(Pass) float64) Spread {
	values := make([]float64, len(r.Rounds))
	for i, pass := range r.Rounds {
		values[i] = figure(pass)
	}
	return SpreadOf(values)
}

func (r *Result) summarize() {
	r.OpsPerSecond, r.NsPerOp = r.Over(Pass.OpsPerSecond), r.Over(Pass.NsPerOp)

	var calls, passed int64
	r.Disturbed = 0
	for _, pass := range r.Rounds {
		calls += pass.Calls
		passed += pass.Passed
		if pass.Disturbed {
			r.Disturbed++
		}
	}
	r.RefusedShare = 1 - float64(passed)/float64(max(calls, 1))

	if r.Latency == nil && len(r.LatencyRounds) > 0 {
		// Contenders that measure themselves know percentiles of each round, and no others.
		median := func(figure func(Latency) time.Duration) time.Duration {
			values := make([]float64, len(r.LatencyRounds))
			for i, latency := range r.LatencyRounds {
				values[i] = float64(figure(latency))
			}
			return time.Duration(SpreadOf(values).Median)
		}
		r.Latency = &Latency{
			P50: median(func(latency Latency) time.Duration { return latency.P50 }),
			P99: median(func(latency Latency) time.Duration { return latency.P99 }),
		}
	}
}

// Summarize fills in what follows from the rounds: spreads, and ratios round by round.
func (w *WorkloadReport) Summarize() {
	for i := range w.Results {
		w.Results[i].summarize()
	}
	for i := range w.Results {
		result := &w.Results[i]
		result.OfFloor = result.ratioTo(w.Yardstick(YardstickFloor))
		result.OfMap = result.ratioTo(w.Yardstick(YardstickMap))
		if w.Base != result.Name {
			result.OfBase = result.ratioTo(w.Result(w.Base))
		}
	}
}

// ratioTo returns the ratio of processor times to a yardstick, nil if there is none.
func (r *Result) ratioTo(yardstick *Result) *Spread {
	if yardstick == nil {
		return nil
	}
	spread, ok := Ratios(r.Rounds, yardstick.Rounds, Pass.NsPerOp)
	if !ok {
		return nil
	}
	return &spread
}

// Ratios returns the ratios of a figure by round. Rounds whose divisor is 0 are skipped; without
// any others it reports false.
func Ratios(rounds, by []Pass, figure func(Pass) float64) (Spread, bool) {
	var ratios []float64
	for i := range min(len(rounds), len(by)) {
		if value := figure(by[i]); value > 0 {
			ratios = append(ratios, figure(rounds[i])/value)
		}
	}
	return SpreadOf(ratios), len(ratios) > 0
}

// Spread is the median, least and greatest of some values.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf returns the spread of the values, zero without values. The median of an even number is
// the mean of the middle two.
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

// Relative returns the greatest distance from the median as a share of it, 0 if it is 0.
func (s Spread) Relative() float64 {
	if s.Median == 0 {
		return 0
	}
	return max(s.Max-s.Median, s.Median-s.Min) / s.Median
}
