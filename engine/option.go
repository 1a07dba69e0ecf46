package engine

import (
	"github.com/ral-limiter/ral/internal/core/keycodec"
	"github.com/ral-limiter/ral/policy"
)

// Option adds to a Config what depends on the type of the keys.
type Option[K comparable] func(*options[K])

type options[K comparable] struct {
	policyFor    func(K) policy.Policy
	policyForSet bool
	codec        keycodec.Codec[K] // nil is the one for the type
}

// PolicyFor gives different limits to different keys: every call asks choose which limit
// holds for its key. nil is Config.Policy. Others must be of its family, and are treated
// as by Engine.TakeWith, so a key's limit may change at any time. A change shares time,
// not units, until the caller that knows of it calls Engine.ChangeLimit: without that, a
// key that has used up 10 an hour is refused for as long under 1,000 an hour. With it the
// 10 units count, and 990 remain.
//
// Of one family are any two Funnels, Queues or Bursties; fixed windows, sliding windows
// and AtMosts of the same period; AlignedWindows of the same period, and CalendarWindows of
// the same unit and zone; and a WarmingUp only with its equals. So 100 an hour for
// some keys and 10 a second for others takes Funnels, or two engines. Any other policy
// refuses every call with policy.Never and a Decision.Limit of 0, also a look.
// Stats.Misfits counts those calls, and Config.OnMisfit is told of the first.
//
// choose runs on the goroutine of each call, so it should be fast, and must be safe for
// concurrent use. It should return policies that were made beforehand. An engine without
// it pays nothing for it. With it, SetPolicy is refused: let choose return another policy
// instead.
func PolicyFor[K comparable](choose func(key K) policy.Policy) Option[K] {
	return func(o *options[K]) { o.policyFor, o.policyForSet = choose, true }
}
