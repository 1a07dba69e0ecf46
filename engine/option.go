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
	return func(o *options[K]) { o.policyFor, o.policyForSet = choose, true }
}
