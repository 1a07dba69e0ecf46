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
	// Cost and Charge are for limits without their own. They may be nil.
	Cost   func(r R) int64
	Charge func(r R, served S) int64
	// WaitUpTo is the longest time that a request waits for its turn.
	WaitUpTo time.Duration
	// ByDeadline refuses a request at once if its turn comes after its context's deadline.
	ByDeadline bool
	// AtOnce lets no request wait, also not under a policy.Queue. WaitUpTo is 0 then.
	AtOnce bool
	// Keep makes each request settleable, also without a Charge.
	Keep bool
	// RetryGuess bounds the time after which a request is told to come back that a limit of units in use
	// refuses. 0 is a second.
	RetryGuess time.Duration
	// Shadow enforces no limit.
	Shadow bool
	// Turns, if not nil, tells refused requests their times. Controllers of the same limits share it.
	Turns *Turns
	// Log and Counters are required. Controllers over the same limits may share them.
	Log      *Log
	Counters *Counters
}

// Controller holds requests to limits. Call New to make it. It is safe for concurrent use.
type Controller[R, S any] struct {
	config Config[R, S]
	// A limit of another controller has no limiter here.
	limiters []Any[R, S]
	// parts are the parts of the limiters.
	parts []*Parts[R, S]
	// single is the index of the only limit, or -1.
	single int
	// engines reports whether all limits are Parts.plain.
	engines bool
	// charges reports whether requests are charged afterwards.
	charges bool
	// live reports whether a limit is enforced.
	live bool
	// shadow reports whether no limit is enforced.
	shadow bool
	// shadows reports whether some limits are enforced and some are not.
	shadows bool
	// hides reports whether clients are not told of some limits.
	hides    bool
	log      *Log
	counters *Counters
}

// New returns a controller for the limiters for which has returns true (nil: all). Indices are into
// limiters, at most 8. If every limit has Shadow, config.Shadow is implied.
func New[R, S any](config Config[R, S], limiters []Any[R, S], has func(at int) bool) *Controller[R, S] {
	controller := &Controller[R, S]{
		config:  config,
		single:  -1,
		engines: true, charges: config.Charge != nil || config.Keep,
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
		controller.engines, controller.charges, controller.shadows = controller.engines && parts.plain, controller.charges || parts.Charge != nil, controller.shadows || parts.Shadow
		if !parts.Shadow {
			controller.live = true
			liveEngines = liveEngines && parts.plain
		}
	}
	controller.shadow = config.Shadow || enforced == 0
	controller.live = controller.live || controller.shadow
	if controller.shadow {
		// No request comes back.
		controller.config.Turns = nil
	}
	if controller.shadows = controller.shadows && !controller.shadow; controller.shadows {
		// Limits on trial are asked apart.
		controller.engines = liveEngines
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

// Tried reports whether the limit at that index is tried beside others.
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

// Begin finds a request's cost. If it reports false, the limits do not decide: result has the reason. A
// request whose context has ended takes nothing. A nil Controller admits the others.
func (d *Controller[R, S]) Begin(ctx context.Context, r R, result *Result) bool {
	if ctx.Err() != nil {
		result.Reason = limits.Cancelled
		return false
	}
	if d == nil {
		return false
	}
	result.Cost = 1
	if d.config.Cost != nil {
		result.Cost = d.config.Cost(r)
	}
	if result.common = result.Cost; result.Cost < 0 {
		result.Reason = limits.Misconfigured
		return false
	}
	return true
}

// Decide decides a request whose Begin reports true. It takes from all limits or none, and may wait
// for the request's turn. quotas, by limit, are apart from the result so that they stay on the
// stack. The Settlement is nil unless the request is admitted, and charged afterwards or held to units in use.
func (d *Controller[R, S]) Decide(ctx context.Context, r R, result *Result, quotas []Quota) (settlement Settlement) {
	settlement = d.takeAll(ctx, r, result, quotas)
	switch {
	case result.Reason == limits.OverLimit && d.config.Turns != nil:
		d.tellTurn(r, result, quotas)
	case result.Reason == limits.OverLimit && quotas[result.Binding].lasts && result.RetryAfter-result.Decision.RetryAfter <= whole.Own:
		// A hidden limit may refuse for longer.
		result.RetryAfter = result.Decision.RetryAfter
	case d.shadows && result.Reason == limits.Admitted:
		settlement = d.askShadows(ctx, r, result, settlement)
	}
	if quotas[result.Binding].InUse {
		result.boundReset(d.config.RetryGuess)
	}
	return settlement
}

// tellTurn tells a refused request a turn of all limits that refused it.
func (d *Controller[R, S]) tellTurn(r R, result *Result, quotas []Quota) {
	turn := result.RetryAfter
	for i, l := range d.limiters {
		quota := quotas[i]
		if result.Violated&(1<<i) == 0 || quota.InUse {
			continue
		}
		n, ok := d.parts[i].costs(r, &Result{common: result.common})
		if !ok || !result.keepsTurn(&quota) {
			return
		}
		turn = max(turn, l.turn(r, turn, n, quota, d.config.Turns, result.Provenance.Guess()))
	}
	result.told(turn)
}

// Lost returns the channels that are closed if units in use of a request are lost, as for EndWhenLost. There is none
// unless an enforced limit can lose units.
func (d *Controller[R, S]) Lost(settlement Settlement) []<-chan struct{} {
	if d.shadow {
		return nil
	}
	return settlement.lost()
}

// Single returns the only limit, or nil. Its Take is Decide at less cost.
func (d *Controller[R, S]) Single() Any[R, S] {
	if d.single < 0 {
		return nil
	}
	return d.limiters[d.single]
}

// Settle ends a request's take, by its use, and counts uncertain charges. If a Charge panics it is Release.
func (d *Controller[R, S]) Settle(ctx context.Context, settlement Settlement, r R, served S) {
	used := allAsTaken
	defer func() { d.end(ctx, settlement, used) }()
	used = d.used(ctx, settlement.holds(), r, served)
}

// Release ends a request's take without a Charge. Units in use come back, and others stay taken.
func (d *Controller[R, S]) Release(ctx context.Context, s Settlement) { d.end(ctx, s, allAsTaken) }

// Cancel gives back all units of a request.
func (d *Controller[R, S]) Cancel(ctx context.Context, s Settlement) {
	d.end(ctx, s, [MaxLimits]int64{})
}

func (d *Controller[R, S]) end(ctx context.Context, s Settlement, used [MaxLimits]int64) {
	if !s.settle(ctx, used) {
		d.counters.unsettled.Add(1)
	}
}

// used returns the units that a request used of the limits with a bit in held.
func (d *Controller[R, S]) used(ctx context.Context, held uint8, r R, served S) (used [MaxLimits]int64) {
	common := int64(asTaken)
	if d.config.Charge != nil {
		common = max(0, d.config.Charge(r, served))
	}
	for i, parts := range d.parts {
		switch used[i] = common; {
		case parts == nil || parts.Charge == nil || held&(1<<i) == 0:
		case parts.Shadow && d.shadows:
			used[i] = d.shadowCharge(ctx, r, i, served)
		default:
			used[i] = max(0, parts.Charge(r, served))
		}
	}
	return used
}

// endShadow is deferred around a limit with Shadow: its panic ends there.
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

// patience returns the longest wait under a limit, which may be nil. 0 waits only if that delays.
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
