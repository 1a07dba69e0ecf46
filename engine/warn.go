package engine

import (
	"time"

	"github.com/ral-limiter/ral/internal/core/warn"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

// Warning says that a key has passed a share of its limit.
type Warning[K comparable] struct {
	Key K
	// Share is the passed share, of Config.WarnAt.
	Share float64
	// Decision is the key's state after the call that passed the share. Remaining is what is left
	// of Limit.
	Decision policy.Decision
	Time     time.Time
	// Missed is the number of warnings that OnWarn did not receive before this one.
	Missed int
}

// OnWarn calls hook when a key passes a share of its limit: see Config.WarnAt, which must be set.
//
// An admitted call passes a share if it leaves that part of the limit used, or more, and less was
// used before it. Every verb that takes units is such a call, and so is a charge by Refund. A call
// that passes two shares warns of both. A refused, an unrecorded and a cancelled call that waits
// warn of none.
//
// A key is warned of once for each share, until the units that count after the passing call are gone
// (Decision.ResetAfter). For a FixedWindow that is once a window. For a Funnel it is once in the time
// in which the used part drains. If the key passes the share again before then, as after a Refund,
// a Cancel or a Reset, the engine does not warn of it again. After SetPolicy each key may be warned
// of anew.
//
// The call's limit warns: TakeWith's, PolicyFor's or Config.Policy. Each engine of a Tiered, and of
// claims in TakeAll, warns by its own. Under a Bursty the share is of the calls that a long unused
// key admits at once. Under a WarmingUp that is a single call, which passes every share.
//
// The engine remembers 4,096 warnings in 32 KiB. If more keys are warned of in one period, a key that
// passes its share again may be warned of again. A warning is lost with a chance of at most 1 in
// 16,384, because the hash of another key is too alike. It is also missed if no call passes the share:
// the units were promised to waiting calls, came from a saved state, count because the limit
// was lowered, or were taken by a call that read the clock earlier than others that took before it.
//
// hook runs on its own goroutine, one warning after the other, a little later. At most 1,024 warnings
// wait for it, and more are lost: see Warning.Missed. A panic in the hook ends that call only, and is
// the event supervisor.HookFault. Close waits up to a second for the hook, so the hook must not call
// Close itself.
func OnWarn[K comparable](hook func(Warning[K])) Option[K] {
	return func(o *options[K]) { o.onWarn, o.onWarnSet = hook, true }
}

// LatestWarnings returns the last warnings, the newest first: at most n, and at most 64.
func (e *Engine[K]) LatestWarnings(n int) []Warning[K] { return e.warned.latest(n) }

// warnings counts and delivers the warnings of an engine. The nil warnings has none.
type warnings[K comparable] struct {
	events *keyEvents[K]
	box    *supervisor.Mailbox[Warning[K]]
	list   warn.Latest[Warning[K]]
}

func (o options[K]) warnFault(config Config) error {
	switch {
	case !o.onWarnSet:
		return nil
	case o.onWarn == nil:
		return &policy.FieldError{Of: "engine.OnWarn", Field: "hook", Value: "nil", Want: "a function"}
	case len(config.WarnAt) == 0:
		return &policy.FieldError{Of: "engine.Config", Field: "WarnAt", Value: "empty", Want: "shares such as 0.8 and 0.95, for OnWarn"}
	}
	return nil
}

func newWarnings[K comparable](config Config, hook func(Warning[K]), events *keyEvents[K]) *warnings[K] {
	if len(config.WarnAt) == 0 {
		return nil
	}
	w := &warnings[K]{events: events}
	if hook != nil {
		w.box = supervisor.NewMailbox(func(warning Warning[K], missed int) {
			warning.Missed = missed
			hook(warning)
		}, func(_ Warning[K], reason error) {
			events.post(supervisor.HookFault, reason)
		})
	}
	return w
}

// add is called on the goroutine of the call that passed the share, and calls no code of the user's.
func (w *warnings[K]) add(key K, share float64, decision policy.Decision) {
	warning := Warning[K]{Key: key, Share: share, Decision: decision, Time: time.Now()}
	w.list.Add(warning)
	w.box.Post(warning)
	w.events.post(supervisor.Notice, warn.Notice(w.events.hash(key), share, decision))
}

func (w *warnings[K]) count() uint64 {
	if w == nil {
		return 0
	}
	return w.list.Count()
}

func (w *warnings[K]) latest(n int) []Warning[K] {
	if w == nil {
		return nil
	}
	return w.list.Newest(n)
}

func (w *warnings[K]) flush() {
	if w != nil {
		w.box.Flush()
	}
}
