package engine

import (
	"github.com/ral-limiter/ral/internal/core/keycodec"
	"github.com/ral-limiter/ral/policy"
)

// Option adds settings that depend on the type of the keys to a Config.
type Option[K comparable] func(*options[K])

type options[K comparable] struct {
	policyFor    func(K) policy.Policy
	policyForSet bool
	// codec is nil for the codec by the type.
	codec     keycodec.Codec[K]
	onWarn    func(Warning[K])
	onWarnSet bool
}

// PolicyFor gives different limits to different keys: every call asks choose for the limit of its
// key. nil is Config.Policy. choose runs on the goroutine of each call, so it should be fast, safe
// for concurrent use, and return policies made beforehand. Another goroutine calls it for the keys
// in the table, to count Stats.KeysByUse. With PolicyFor, SetPolicy is refused: let choose return
// another policy instead.
//
// Other limits must be of Config.Policy's family, and are treated as by Engine.TakeWith, so a key's
// limit may change at any time. A change shares time, not units, until the caller calls
// Engine.ChangeLimit. Without ChangeLimit a key that has used up 10 an hour is refused for as long
// under 1,000 an hour. With ChangeLimit 990 remain.
//
// A family are any Funnels, any Queues, or any Bursties. Fixed windows, sliding windows, AtMosts
// and AlignedWindows are families by period, CalendarWindows by unit and zone. A WarmingUp is only
// with its equals. For 100 an hour and 10 a second use Funnels or two engines. Any other policy
// refuses every call, also a look, with policy.Never and a Decision.Limit of 0. Stats.Misfits
// counts those calls; Config.OnMisfit receives the first.
func PolicyFor[K comparable](choose func(key K) policy.Policy) Option[K] {
	return func(options *options[K]) { options.policyFor, options.policyForSet = choose, true }
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
	return func(options *options[K]) { options.onWarn, options.onWarnSet = hook, true }
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
