package bench

import "time"

// Audit compares what a limiter admitted with what its own promise allowed, over
// all that it was asked in a workload: opening the keys, warming up, and every
// pass.
type Audit struct {
	// Promise is the rule that the limiter was held to.
	Promise Promise `json:"promise"`
	// Calls is the number of calls, Admitted the number of those that passed, as
	// counted by the callers.
	Calls    int64 `json:"calls"`
	Admitted int64 `json:"admitted"`
	// Allowed is the most that the promise allowed. It is summed over the keys: for
	// each the lesser of the calls for it and of what the promise allows one key.
	Allowed int64 `json:"allowed"`
	// Over is what was admitted beyond Allowed, or 0.
	Over int64 `json:"over"`
	// BucketAllowed is the most that a bucket of the same limit would have allowed.
	// It is Allowed for a limiter that promises a bucket.
	BucketAllowed int64 `json:"bucket_allowed"`
	// Possible is what an ideal limiter of the same promise would have admitted of
	// the same calls, if they came evenly over each pass. It is no more than
	// Allowed. A limiter that admits clearly less refuses calls that its limit would
	// have let pass.
	Possible int64 `json:"possible"`
	// Binds reports whether the promise allowed less than was asked. If not, every
	// call was within the limit and the audit cannot find too many admitted.
	Binds bool `json:"binds"`
	// Asked is the time during which the limiter was asked.
	Asked time.Duration `json:"asked_ns"`
	// Limiters is the number of limiters that these sums are over: in some
	// workloads each pass begins with a new one.
	Limiters int `json:"limiters"`
	// Own is what the limiters themselves counted, or nil.
	Own *Counts `json:"own,omitempty"`
}

// Clean reports whether no more was admitted than the promise allowed.
func (a Audit) Clean() bool { return a.Over == 0 }

// OverBucket returns by how much more was admitted than a bucket would have
// allowed, or 0. It is no fault of a limiter that promises something else.
func (a Audit) OverBucket() int64 { return max(a.Admitted-a.BucketAllowed, 0) }

// OfPossible returns what was admitted as a share of what was possible, 1 if
// nothing was.
func (a Audit) OfPossible() float64 {
	if a.Possible == 0 {
		return 1
	}
	return float64(a.Admitted) / float64(a.Possible)
}
