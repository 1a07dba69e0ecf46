package replay

import (
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/policy"
)

// grant is units that a record may give back later.
type grant struct {
	key   uint32
	units int64
	taken policy.Instant
	// returned and resets are the account's then, and changes the scenario's.
	returned, resets int64
	changes          int
	// before and after are the words.
	before, after []uint64
}

// end gives back all units except those used, or charges those in excess, and releases units in use. Other give-backs
// to the key since the take returned so many units. Nothing comes back if the key was reset or the limit changed, except
// that units in use outlast a change.
func (g *grant) end(limits []policy.Policy, words []uint64, now policy.Instant, used, others int64, wasReset, hasChanged bool) {
	for i, limit := range limits {
		if occupier, ok := limit.(policy.Occupier); ok && !wasReset {
			words[i], _ = occupier.Release(words[i], g.after[i], now, g.units)
		}
		refunder, ok := limit.(policy.Refunder)
		switch {
		case !ok:
		case used > g.units:
			words[i] = refunder.Refund(words[i], now, -min(used-g.units, decide.MostCharge(limit)))
		case used == g.units || wasReset || hasChanged:
		case words[i] == g.after[i] && others == 0:
			words[i], _ = limit.Take(g.before[i], g.taken, used, 0)
			if restorer, ok := limit.(policy.Restorer); ok {
				words[i] = restorer.Restore(g.after[i], words[i], now)
			}
		default:
			words[i] = refunder.Cancel(words[i], g.after[i], g.taken, now, g.units-used, others)
		}
	}
}
