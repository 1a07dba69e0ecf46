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
	// Binds tells whether the limit allowed less than was asked. If not, every
	// call was within the limit and the audit cannot find a fault.
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

// add adds the audit of one limiter to that of others. The sums hide nothing:
// what one limiter admitted too many is not set off against another's less.
func (a *Audit) add(limit Limit, asked []int64, admitted int64, windows []Window, own *Counts) {
	most := limit.MostDuring(windows...)
	var calls, allowed int64
	for _, n := range asked {
		calls += n
		allowed += min(n, most)
	}
	a.Calls += calls
	a.Admitted += admitted
	a.Allowed += allowed
	a.Over += max(admitted-allowed, 0)
	a.Binds = a.Binds || allowed < calls
	a.Limiters++
	for _, w := range windows {
		a.Asked += w.End - w.Start
	}
	if own != nil {
		if a.Own == nil {
			a.Own = new(Counts)
		}
		a.Own.add(*own)
	}
}
