package bench

import "time"

// Audit compares what a limiter let pass with what its limit allowed, over all
// that it was asked in a workload: opening the keys, warming up, and every pass.
type Audit struct {
	// Calls is how often the limiter was asked, Admitted how often it said yes,
	// as counted by the callers.
	Calls    int64 `json:"calls"`
	Admitted int64 `json:"admitted"`
	// Allowed is the most that the limit allowed: summed over the keys, the
	// lesser of how often a key was asked and capacity + rate × time.
	Allowed int64 `json:"allowed"`
	// Over is what was admitted beyond Allowed, 0 if nothing was.
	Over int64 `json:"over"`
	// Possible is what an ideal limiter would have admitted of the same calls, if
	// they came evenly over each pass. It is no more than Allowed; a limiter that
	// admits clearly less refuses what its limit would have let it pass.
	Possible int64 `json:"possible"`
	// Binds tells whether the limit allowed less than was asked. If not, every
	// call was within the limit and the audit cannot find too many admitted.
	Binds bool `json:"binds"`
	// Asked is the time during which the limiter was asked.
	Asked time.Duration `json:"asked_ns"`
	// Limiters is how many limiters these sums are over: in some workloads each
	// pass begins with a new one.
	Limiters int `json:"limiters"`
	// Own is what the limiters themselves counted, if they do.
	Own *Counts `json:"own,omitempty"`
}

// Clean tells whether nothing was admitted beyond the limit.
func (a Audit) Clean() bool { return a.Over == 0 }

// OfPossible returns what was admitted as a share of what was possible, 1 if
// nothing was.
func (a Audit) OfPossible() float64 {
	if a.Possible == 0 {
		return 1
	}
	return float64(a.Admitted) / float64(a.Possible)
}

// add adds the audit of one limiter to that of others. The sums hide nothing:
// what one limiter admitted too many is not set off against another's less.
func (a *Audit) add(of *accountant, admitted int64, own *Counts) {
	calls, allowed := of.calls(), of.allowed()
	a.Calls += calls
	a.Admitted += admitted
	a.Allowed += allowed
	a.Possible += of.possible()
	a.Over += max(admitted-allowed, 0)
	a.Binds = a.Binds || allowed < calls
	a.Limiters++
	for _, w := range of.windows {
		a.Asked += w.End - w.Start
	}
	if own != nil {
		if a.Own == nil {
			a.Own = new(Counts)
		}
		a.Own.add(*own)
	}
}
