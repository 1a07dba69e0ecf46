package admission

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/ral-limiter/ral/internal/core/whole"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// MaxLimits is the most limits that a request may have.
const MaxLimits = 8

// Config configures a Controller.
type Config[R, S any] struct {
	// Cost and Charge are for limits that have no Cost or Charge of their own. They may be nil.
	Cost   func(r R) int64
	Charge func(r R, served S) int64
	// WaitUpTo is the longest time that a request waits for its turn.
	WaitUpTo time.Duration
	// ByDeadline refuses a request at once if its turn comes after its context's deadline.
	ByDeadline bool
	// AtOnce lets no request wait, not even under a policy.Queue. WaitUpTo must then be 0.
	AtOnce bool
	// Keep makes Decide return a Settlement for each admitted request, even without a Charge.
	Keep bool
	// RetryGuess bounds the time after which a request is told to come back if a limit of units in use refused it.
	// The default is a second.
	RetryGuess time.Duration
	// Shadow reports whether no limit is enforced: limits are asked, and every request passes.
	Shadow bool
	// Turns, if not nil, computes the time at which a refused request is told to come back. Controllers of the same
	// limits share it.
	Turns *Turns
	// Log and Counters are required. Controllers over the same limits may share them.
	Log      *Log
	Counters *Counters
}

// Controller holds requests to limits. Call New to make it. It is safe for concurrent use.
type Controller[R, S any] struct {
	config Config[R, S]
	// limiters has nil in the place of a limit that only another controller has.
	limiters []Any[R, S]
	// parts has Any.Of for each of the limiters.
	parts []*Parts[R, S]
	// single is the index of the only limit, or -1.
	single int
	// onlyEngines reports whether all limits are Parts.plain, except those that are tried: see shadows.
	onlyEngines bool
	// charges reports whether admitted requests are charged when they end.
	charges bool
	// live reports whether the controller has a limit without Shadow, or none is enforced.
	live bool
	// shadow reports whether no limit is enforced.
	shadow bool
	// shadows reports whether some limits are enforced and some are not.
	shadows bool
	// hides reports whether some limits are hidden from clients.
	hides    bool
	log      *Log
	counters *Counters
}

// New returns a controller for the limiters for whose index has returns true, or for all if has is nil.
// There must be at most MaxLimits limiters. If every limit has Shadow, config.Shadow is implied.
func New[R, S any](config Config[R, S], limiters []Any[R, S], has func(at int) bool) *Controller[R, S] {
	controller := &Controller[R, S]{
		config:      config,
		single:      -1,
		onlyEngines: true, charges: config.Charge != nil || config.Keep,
		log: config.Log, counters: config.Counters,
	}
	controller.config.RetryGuess = cmp.Or(config.RetryGuess, time.Second)
	enforced, liveEngines, own := 0, true, 0
	for i, l := range limiters {
		parts := l.Of()
		if !parts.Shadow {
			enforced++
		}
		if has != nil && !has(i) {
			controller.limiters, controller.parts = append(controller.limiters, nil), append(controller.parts, nil)
			continue
		}
		controller.limiters, controller.parts = append(controller.limiters, l), append(controller.parts, parts)
		own++
		controller.single = i
		controller.hides = controller.hides || parts.Hidden
		controller.onlyEngines, controller.charges, controller.shadows = controller.onlyEngines && parts.plain, controller.charges || parts.Charge != nil, controller.shadows || parts.Shadow
		if !parts.Shadow {
			controller.live = true
			liveEngines = liveEngines && parts.plain
		}
	}
	controller.shadow = config.Shadow || enforced == 0
	controller.live = controller.live || controller.shadow
	if controller.shadow {
		// No request is refused, so none has to come back.
		controller.config.Turns = nil
	}
	if controller.shadows = controller.shadows && !controller.shadow; controller.shadows {
		// Limits with Shadow are asked one by one after the others: see askShadows.
		controller.onlyEngines = liveEngines
	}
	if own != 1 || controller.shadows {
		controller.single = -1
	}
	controller.logApart()
	return controller
}

// Shadow reports whether no limit is enforced.
func (d *Controller[R, S]) Shadow() bool { return d.shadow }

// Charges reports whether admitted requests are charged when they end. Otherwise a Settlement only releases units
// in use.
func (d *Controller[R, S]) Charges() bool { return d.charges }

// Tried reports whether the limit at that index has Shadow while other limits are enforced. Such a limit is tried.
func (d *Controller[R, S]) Tried(at int) bool { return d.shadows && d.parts[at].Shadow }

// Shadowed returns, by the names of the tried limits, how many requests each would have refused, and how often it
// could not be decided or charged. Both are nil if no limit is tried.
func (d *Controller[R, S]) Shadowed(counters ...*Counters) (refused, failed map[string]uint64) {
	for i, parts := range d.parts {
		if parts == nil || !d.Tried(i) {
			continue
		}
		if refused == nil {
			refused, failed = map[string]uint64{}, map[string]uint64{}
		}
		for _, c := range counters {
			refused[parts.Name] += c.shadowed[i].Load()
			failed[parts.Name] += c.shadowFailed[i].Load()
		}
	}
	return refused, failed
}

// Begin computes the cost of a request. If Begin returns false, the limits do not decide, and result has the
// reason: the context has ended, the cost is below 0, or d is nil, which admits the request.
func (d *Controller[R, S]) Begin(ctx context.Context, request R, result *Result) bool {
	if ctx.Err() != nil {
		result.Reason = limits.Cancelled
		return false
	}
	if d == nil {
		return false
	}
	result.Cost = 1
	if d.config.Cost != nil {
		result.Cost = d.config.Cost(request)
	}
	if result.common = result.Cost; result.Cost < 0 {
		result.Reason = limits.Misconfigured
		return false
	}
	return true
}

// Decide decides a request for which Begin returned true. It takes of all limits or of none, and may wait
// for the request's turn. Decide sets the quota of each limit. quotas is not part of the result so that it
// stays on the stack. The Settlement is nil unless the request is admitted, and is charged when it ends or
// has units in use.
func (d *Controller[R, S]) Decide(ctx context.Context, request R, result *Result, quotas []Quota) (settlement Settlement) {
	settlement = d.takeAll(ctx, request, result, quotas)
	switch {
	case result.Reason == limits.OverLimit && d.config.Turns != nil:
		d.tellTurn(request, result, quotas)
	case result.Reason == limits.OverLimit && quotas[result.Binding].lasts && result.RetryAfter-result.Decision.RetryAfter <= whole.Own:
		// A hidden limit may refuse for longer.
		result.RetryAfter = result.Decision.RetryAfter
	case d.shadows && result.Reason == limits.Admitted:
		settlement = d.askShadows(ctx, request, result, settlement)
	}
	if quotas[result.Binding].InUse {
		result.boundReset(d.config.RetryGuess)
	}
	return settlement
}

// tellTurn sets the time at which a refused request is told to come back: the latest of its turns under the limits that
// refused it.
func (d *Controller[R, S]) tellTurn(request R, result *Result, quotas []Quota) {
	turn := result.RetryAfter
	for i, l := range d.limiters {
		quota := quotas[i]
		if result.Violated&(1<<i) == 0 || quota.InUse {
			continue
		}
		n, ok := d.parts[i].costs(request, &Result{common: result.common})
		if !ok || !result.keepsTurn(&quota) {
			return
		}
		turn = max(turn, l.turn(request, turn, n, quota, d.config.Turns, result.Provenance.Guess()))
	}
	result.setRetryAfter(turn)
}

// Lost returns the channels that are closed if units in use of a request are lost, for EndWhenLost. There are no
// channels unless an enforced limit can lose units.
func (d *Controller[R, S]) Lost(settlement Settlement) []<-chan struct{} {
	if d.shadow {
		return nil
	}
	return settlement.lost()
}

// Single returns the limit of a controller with a single limit, or nil. Its Take does the same as Decide, faster.
func (d *Controller[R, S]) Single() Any[R, S] {
	if d.single < 0 {
		return nil
	}
	return d.limiters[d.single]
}

// Settle ends a request's take. Each Charge returns the units that the request used, and served is its argument. Settle
// counts the request as unsettled if it is not certain that a charge counts. If a Charge panics, Settle does what
// Release does.
func (d *Controller[R, S]) Settle(ctx context.Context, settlement Settlement, request R, served S) {
	used := allAsTaken
	defer func() { d.end(ctx, settlement, used) }()
	used = d.used(ctx, settlement.holds(), request, served)
}

// Release ends a request's take without a Charge. Units in use come back, and others stay taken.
func (d *Controller[R, S]) Release(ctx context.Context, settlement Settlement) {
	d.end(ctx, settlement, allAsTaken)
}

// Cancel gives back all units of a request.
func (d *Controller[R, S]) Cancel(ctx context.Context, settlement Settlement) {
	d.end(ctx, settlement, [MaxLimits]int64{})
}

func (d *Controller[R, S]) end(ctx context.Context, settlement Settlement, used [MaxLimits]int64) {
	if !settlement.settle(ctx, used) {
		d.counters.unsettled.Add(1)
	}
}

// used returns the units that a request used of the limits with a bit in held.
func (d *Controller[R, S]) used(ctx context.Context, held uint8, request R, served S) (used [MaxLimits]int64) {
	common := int64(asTaken)
	if d.config.Charge != nil {
		common = max(0, d.config.Charge(request, served))
	}
	for i, parts := range d.parts {
		switch used[i] = common; {
		case parts == nil || parts.Charge == nil || held&(1<<i) == 0:
		case parts.Shadow && d.shadows:
			used[i] = d.shadowCharge(ctx, request, i, served)
		default:
			used[i] = max(0, parts.Charge(request, served))
		}
	}
	return used
}

// endShadow recovers a panic of a limit with Shadow, and counts it as a failure. It must be deferred.
func (d *Controller[R, S]) endShadow(ctx context.Context, at int) {
	if cause := recover(); cause != nil {
		d.shadowFailed(ctx, at, cause)
	}
}

// shadowFailed counts a failure of a limit with Shadow, and logs the first.
func (d *Controller[R, S]) shadowFailed(ctx context.Context, index int, cause any) {
	d.counters.shadowFailed[index].Add(1)
	if d.log.to != nil && !d.log.shadowFailed[index].Swap(true) {
		d.log.to.LogAttrs(ctx, slog.LevelError, "rate limit: a limit with Shadow failed, and is not decided",
			slog.String("limit", d.parts[index].Name), slog.String("cause", Cut(fmt.Sprint(cause))))
	}
}

// patience returns the longest wait under a limit, which may be nil. With 0, a call waits only if the limit itself delays
// calls.
func (d *Controller[R, S]) patience(ctx context.Context, limit policy.Policy) time.Duration {
	upTo := d.config.WaitUpTo
	if d.config.AtOnce {
		if limit != nil && limit.Delays() {
			// A nanosecond is no wait.
			return 1
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
	// A turn at the deadline comes too late.
	left := max(1, time.Until(deadline)-1)
	if upTo <= 0 {
		return left
	}
	return min(upTo, left)
}
