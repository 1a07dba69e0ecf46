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
	for i, claim := range claims {
		hashes[i] = claim.Local.hashOf(claim.Key)
		places[i] = place{claim.Local, claim.Local.index(hashes[i])}
	}
	locks := slices.Clone(places)
	slices.SortFunc(locks, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.local.id, b.local.id), cmp.Compare(a.shard, b.shard))
	})
	locks = slices.Compact(locks)
	for _, place := range locks {
		place.local.shards[place.shard].mu.Lock()
		defer place.local.shards[place.shard].mu.Unlock()
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
	for _, undo := range slices.Backward(undos) {
		if undo.there {
			undo.shard.entries[undo.hash] = undo.entry
		} else {
			delete(undo.shard.entries, undo.hash)
		}
	}
	for i, claim := range claims {
		if all[i].Allowed {
			all[i] = claim.Local.take(&claim.Local.shards[places[i].shard], hashes[i], claim.Key, 0, 0)
		}
	}
	return all, false
}
