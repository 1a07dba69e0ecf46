package replay

import "github.com/ral-limiter/ral/policy"

// grant is units that a record may give back later.
type grant struct {
	key      uint32
	units    int64
	taken    policy.Instant
	returned int64 // account.returned then
	// before and after are the words.
	before, after []uint64
}

// end gives back all units except those used, or charges those in excess, and releases units in use. Other give-backs
// to the key since the take returned so many units.
func (g *grant) end(limits []policy.Policy, words []uint64, now policy.Instant, used, others int64) {
	for i, limit := range limits {
		if p, ok := limit.(policy.Occupier); ok {
			words[i], _ = p.Release(words[i], g.after[i], now, g.units)
		}
		p, ok := limit.(policy.Refunder)
		switch {
		case !ok || used == g.units:
		case used > g.units:
			words[i] = p.Refund(words[i], now, g.units-used)
		case words[i] == g.after[i] && others == 0:
			words[i], _ = limit.Take(g.before[i], g.taken, used, 0)
			if p, ok := limit.(policy.Restorer); ok {
				words[i] = p.Restore(g.after[i], words[i], now)
			}
		default:
			words[i] = p.Cancel(words[i], g.after[i], g.taken, now, g.units-used, others)
		}
	}
}
