package share

import (
	"cmp"
	"slices"

	"github.com/ral-limiter/ral/policy"
)

// Claim is N units of a key of a share, for [TakeAll].
type Claim struct {
	Local *Local
	Key   string
	N     int64
}

type place struct {
	local *Local
	shard int
}

type undo struct {
	shard *shard
	hash  hash
	entry entry
	there bool
}

// TakeAll takes the units of every claim or none, with no other call in between. It returns a
// reservation for each claim, and whether all were allowed. A repeated claim is charged twice. A
// claim that would wait is refused. If a claim is refused, the others took nothing and return their
// keys' state.
func TakeAll(claims ...Claim) (all []Reservation, allowed bool) {
	hashes, places := make([]hash, len(claims)), make([]place, len(claims))
	for i, c := range claims {
		hashes[i] = c.Local.hashOf(c.Key)
		places[i] = place{c.Local, c.Local.index(hashes[i])}
	}
	locks := slices.Clone(places)
	slices.SortFunc(locks, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.local.id, b.local.id), cmp.Compare(a.shard, b.shard))
	})
	locks = slices.Compact(locks)
	for _, p := range locks {
		p.local.shards[p.shard].mu.Lock()
		defer p.local.shards[p.shard].mu.Unlock()
	}
	all, allowed = make([]Reservation, len(claims)), true
	var undos []undo
	for i, claim := range claims {
		shard := &claim.Local.shards[places[i].shard]
		entry, there := shard.entries[hashes[i]]
		reservation := claim.Local.take(shard, hashes[i], claim.Key, claim.N, 0)
		if reservation.Allowed && claim.N > 0 {
			undos = append(undos, undo{shard, hashes[i], entry, there})
		}
		if reservation.Allowed && reservation.Wait > 0 {
			reservation.Decision = policy.Decision{Limit: reservation.Limit, RetryAfter: reservation.Wait, ResetAfter: reservation.ResetAfter}
		}
		all[i] = reservation
		allowed = allowed && reservation.Allowed
	}
	if allowed {
		return all, allowed
	}
	for _, u := range slices.Backward(undos) {
		if u.there {
			u.shard.entries[u.hash] = u.entry
		} else {
			delete(u.shard.entries, u.hash)
		}
	}
	for i, c := range claims {
		if all[i].Allowed {
			all[i] = c.Local.take(&c.Local.shards[places[i].shard], hashes[i], c.Key, 0, 0)
		}
	}
	return all, false
}
