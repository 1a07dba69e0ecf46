package share

import (
	"hash/maphash"
	"sync"

	"github.com/ral-limiter/ral/fleet/internal/share/part"
	"github.com/ral-limiter/ral/policy"
)

// hash replaces a key: 128 bits, seeded for each table. Two of a million keys collide with a
// probability of about 1 in 2^89. The secret seeds keep others from choosing keys that collide.
type hash struct{ high, low uint64 }

type hasher [2]maphash.Seed

func (s hasher) sum(key string) hash {
	return hash{maphash.String(s[0], key), maphash.String(s[1], key)}
}

type known struct {
	word    uint64
	instant policy.Instant
}

// entry is a key's part, and the key's name while there are units to charge.
type entry struct {
	part.State
	name string
}

type shard struct {
	mu sync.Mutex
	// maxEntries bounds the entries, and also Redis's words.
	maxEntries int
	// part is nil until servers are counted.
	part    *part.Part
	entries map[hash]entry
	known   map[hash]known
	// lost is when the last key with debts was forgotten.
	lost policy.Instant
	// loaded are the entries of a file, until there is a part.
	loaded []loaded
	// No two shards share a cache line.
	_ [64]byte
}

const (
	maxShards = 64
	// sampled is the number of keys compared to forget a key.
	sampled = 8
	// tidied is the number of entries of a shard checked each beat for expiry.
	tidied = 256
)

func newShards(maxKeys int) []shard {
	n := maxShards
	for n > 1 && maxKeys/n < maxShards {
		n /= 2
	}
	shards := make([]shard, n)
	for i := range shards {
		shards[i] = shard{maxEntries: max(maxKeys/n, 1), entries: map[hash]entry{}, known: map[hash]known{}}
	}
	return shards
}

// learn records Redis's word, unless it has a later word. A clock back by a second or more is
// later.
func (s *shard) learn(hash hash, known known) {
	const second = 1e9
	old, there := s.known[hash]
	switch {
	case !there && len(s.known) >= s.maxEntries:
		s.forget()
	case there && known.instant == old.instant:
		// Calls of one script have the same instant.
		known.word = max(known.word, old.word)
	case there && known.instant < old.instant && old.instant-known.instant < second:
		return
	}
	s.known[hash] = known
}

// forget drops one of the oldest words.
func (s *shard) forget() {
	oldest, _ := firstOf(s.known, func(a, b known) bool { return a.instant < b.instant })
	delete(s.known, oldest)
}

// firstOf returns the key of which the value is first in an order, out of some random keys.
func firstOf[V any](all map[hash]V, less func(a, b V) bool) (first hash, value V) {
	left := sampled
	// The order is random.
	for hash, v := range all {
		if left == sampled || less(v, value) {
			first, value = hash, v
		}
		if left--; left == 0 {
			break
		}
	}
	return first, value
}

// evict makes room for an entry, and returns the units that will not be charged. It prefers keys
// without debts, then the key that drains first. Unknown keys begin used up as of then, if the
// evicted key still counted.
func (s *shard) evict(now policy.Instant) (lapsed int64) {
	hash, victim := firstOf(s.entries, func(a, b entry) bool {
		a.Unpaid, b.Unpaid = s.part.Owed(a.State, now), s.part.Owed(b.State, now)
		return s.less(a, b)
	})
	delete(s.entries, hash)
	if !s.part.Fresh(victim.State, now) {
		s.lost = now
	}
	return s.part.Owed(victim.State, now)
}

func (s *shard) less(a, b entry) bool {
	if (a.Unpaid > 0) != (b.Unpaid > 0) {
		return a.Unpaid == 0
	}
	return s.part.Policy.FreshAt(a.Word) < s.part.Policy.FreshAt(b.Word)
}

// divide changes the shard's share. It returns the units of a file without room.
func (s *shard) divide(next *part.Part, now policy.Instant) (lapsed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash, entry := range s.entries {
		entry.State = next.Carry(s.part, entry.State, now)
		s.entries[hash] = entry
	}
	s.part = next
	return s.enter(now)
}

// owed appends the debts and drops expired entries: all if something was taken since, else some.
func (s *shard) owed(now policy.Instant, noted bool, debts []Debt) []Debt {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := tidied
	for hash, entry := range s.entries {
		if left--; left < 0 && !noted {
			break
		}
		switch {
		case s.part.Fresh(entry.State, now):
			delete(s.entries, hash)
		case noted:
			if n := s.part.Owed(entry.State, now); n > 0 {
				debts = append(debts, Debt{entry.name, n, hash})
			}
		}
	}
	return debts
}
