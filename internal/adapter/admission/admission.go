package admission

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// MaxLimits is the most limits that a request may have.
const MaxLimits = 8

// Config configures a Controller.
type Config[R, S any] struct {
	// Cost and Charge are those of limits without their own. They may be nil.
	Cost   func(r R) int64
	Charge func(r R, served S) int64
	// WaitUpTo is the longest time that a request waits for its turn.
	WaitUpTo time.Duration
	// ByDeadline also bounds a wait by the deadline of the request's context: a request whose
	// turn comes later is refused at once.
	ByDeadline bool
	// AtOnce lets no request wait, also not under a policy.Queue. WaitUpTo is 0 then.
	AtOnce bool
	// Keep keeps what each request takes until it is settled or cancelled, also without a Charge.
	Keep bool
	// Shadow enforces no limit.
	Shadow bool
	// Log and Counters may be shared by several controllers over the same limits. They are required.
	Log      *Log
	Counters *Counters
}

// Controller holds requests to limits. New makes one. Any number of goroutines may call its methods.
type Controller[R, S any] struct {
	config   Config[R, S]
	limiters []Any[R, S]    // nil where a limit is none of this controller
	parts    []*Parts[R, S] // of the limiters
	single   int            // the index of the only limit, or -1
	engines  bool           // whether all limits are Parts.plain
	charges  bool           // whether requests are charged afterwards
	live     bool           // whether one of the limits is enforced
	shadow   bool           // whether no limit is enforced
	shadows  bool           // whether some are not, and others are
	log      *Log
	counters *Counters
}

// New returns a controller. limiters holds all limits in their order, 8 at the most, of which has says
// which are those of this controller. If all have Shadow, that is the Shadow of the config.
func New[R, S any](config Config[R, S], limiters []Any[R, S], has func(at int) bool) *Controller[R, S] {
	d := &Controller[R, S]{
		config:  config,
		single:  -1,
		engines: true, charges: config.Charge != nil || config.Keep,
		log: config.Log, counters: config.Counters,
	}
	enforced, liveEngines, own := 0, true, 0
	for at, l := range limiters {
		p := l.Of()
		if !p.Shadow {
			enforced++
		}
		if has != nil && !has(at) {
			d.limiters, d.parts = append(d.limiters, nil), append(d.parts, nil)
			continue
		}
		d.limiters, d.parts = append(d.limiters, l), append(d.parts, p)
		own++
		d.single = at
		d.engines, d.charges, d.shadows = d.engines && p.plain, d.charges || p.Charge != nil, d.shadows || p.Shadow
		if !p.Shadow {
			d.live = true
			liveEngines = liveEngines && p.plain
		}
	}
	d.shadow = config.Shadow || enforced == 0
	d.live = d.live || d.shadow
	if d.shadows = d.shadows && !d.shadow; d.shadows {
		d.engines = liveEngines // those that are tried are asked apart
	}
	if own != 1 || d.shadows {
		d.single = -1
	}
	return d
}

// Shadow reports whether no limit is enforced.
func (d *Controller[R, S]) Shadow() bool { return d.shadow }

// Tried reports whether the limit at that index is tried beside others.
func (d *Controller[R, S]) Tried(at int) bool { return d.shadows && d.parts[at].Shadow }

// Begin finds a request's cost, and reports whether the limits are to decide. If not, v has the
// reason.
func (d *Controller[R, S]) Begin(r R, v *Result) bool {
	v.Cost = 1
	if d.config.Cost != nil {
		v.Cost = d.config.Cost(r)
	}
	if v.common = v.Cost; v.Cost < 0 {
		v.Reason = limits.Misconfigured
		return false
	}
	return true
}

// Decide decides about a request whose Begin reports true. It takes from all limits or from none, and
// waits for the request's turn if need be. quotas has as many elements as there are limits. They
// are no part of the result, so that they need not be allocated. The Settlement is nil unless the
// request is charged afterwards and is admitted.
func (d *Controller[R, S]) Decide(ctx context.Context, r R, v *Result, quotas []Quota) (s Settlement) {
	if d.engines {
		s = d.takeAll(ctx, r, v, quotas)
	} else {
		s = d.askAll(ctx, r, v, quotas)
	}
	if d.shadows && v.Reason == limits.Admitted {
		s = d.askShadows(ctx, r, v, s)
	}
	return s
}

// Single returns the limit that decides alone, or nil if there is none. Its Take does the same as
// Decide at less cost.
func (d *Controller[R, S]) Single() Any[R, S] {
	if d.single < 0 {
		return nil
	}
	return d.limiters[d.single]
}

// Settle ends what a request has taken, by what it has used. A request for which that may not
// count is counted.
func (d *Controller[R, S]) Settle(ctx context.Context, s Settlement, r R, served S) {
	if !s.settle(ctx, d.used(ctx, r, served)) {
		d.counters.unsettled.Add(1)
	}
}

// Cancel gives back all that a request has taken.
func (d *Controller[R, S]) Cancel(ctx context.Context, s Settlement) {
	if !s.settle(ctx, [MaxLimits]int64{}) {
		d.counters.unsettled.Add(1)
	}
}

// used returns what a request has used of each limit.
func (d *Controller[R, S]) used(ctx context.Context, r R, served S) (used [MaxLimits]int64) {
	common := int64(asTaken)
	if d.config.Charge != nil {
		common = max(0, d.config.Charge(r, served))
	}
	for i, p := range d.parts {
		switch used[i] = common; {
		case p == nil || p.Charge == nil:
		case p.Shadow && d.shadows:
			used[i] = d.shadowCharge(ctx, r, i, served)
		default:
			used[i] = max(0, p.Charge(r, served))
		}
	}
	return used
}

// patience returns the longest time that a request waits under a limit, which may be nil. 0 does not
// wait, except under a limit that delays calls by itself.
func (d *Controller[R, S]) patience(ctx context.Context, limit policy.Policy) time.Duration {
	upTo := d.config.WaitUpTo
	if d.config.AtOnce {
		if limit != nil && limit.Delays() {
			return 1 // a nanosecond is no wait
		}
		return 0
	}
	if !d.config.ByDeadline || upTo <= 0 && (limit == nil || !limit.Delays()) {
		return upTo
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return upTo
	}
	left := max(1, time.Until(deadline)-1) // a turn at the deadline comes too late
	if upTo <= 0 {
		return left
	}
	return min(upTo, left)
}
