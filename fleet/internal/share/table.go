package share

import (
	"hash/maphash"
	"sync"

	"github.com/ral-limiter/ral/policy"
)

// hash is all that the table keeps of a key: 128 bits, seeded for each table. Of a million
// keys two share a word with a probability of about 1 in 2^89, and the seeds, which never
// leave the process, keep others from choosing keys that do.
type hash struct{ high, low uint64 }

type hasher [2]maphash.Seed

func newHasher() hasher { return hasher{maphash.MakeSeed(), maphash.MakeSeed()} }

func (s hasher) of(key string) hash {
	return hash{maphash.String(s[0], key), maphash.String(s[1], key)}
}

// known is what Redis said of a key, by its clock.
type known struct {
	word uint64
	at   policy.Instant
}

// entry is the share of a key: a word of the part, and how many units of it were admitted
// here and not charged. The name is there while some are not. Of a window, doubt is since
// when nothing was known of the key, or 0: see part.withheld.
type entry struct {
	word   uint64
	unpaid int64
	name   string
	doubt  doubt
}

// doubt is an instant from which a share comes back, below 0 if no unit is left of it.
type doubt int64

// shard is a part of the table.
type shard struct {
	mu      sync.Mutex
	most    int   // entries, and also words of Redis's
	part    *part // nil as long as servers were not counted
	entries map[hash]entry
	known   map[hash]known
	lost    policy.Instant // when the last key that owed was forgotten
	loaded  []loaded       // entries of a file, until there is a part
	_       [64]byte       // so that two do not share a cache line
}

const (
	mostShards = 64
	// sampled is how many keys are looked at for one to forget.
	sampled = 8
	// tidied is how many entries of a shard are looked at each beat for whether they mean
	// anything.
	tidied = 256
)

func newShards(maxKeys int) []shard {
	n := mostShards
	for n > 1 && maxKeys/n < mostShards {
		n /= 2
	}
	shards := make([]shard, n)
	for i := range shards {
		shards[i] = shard{most: max(maxKeys/n, 1), entries: map[hash]entry{}, known: map[hash]known{}}
	}
	return shards
}

// learn records what Redis said, unless it said something else later. A clock that went
// back by a second or more counts as later.
func (s *shard) learn(h hash, k known) {
	const second = 1e9
	old, there := s.known[h]
	switch {
	case !there && len(s.known) >= s.most:
		s.forget()
	case there && k.at == old.at:
		k.word = max(k.word, old.word) // calls of one script
	case there && k.at < old.at && old.at-k.at < second:
		return
	}
	s.known[h] = k
}

// forget drops one of the words that were told longest ago.
func (s *shard) forget() {
	var oldest hash
	at, left := policy.Instant(0), sampled
	for h, k := range s.known { // which begins anywhere
		if left == sampled || k.at < at {
			oldest, at = h, k.at
		}
		if left--; left == 0 {
			break
		}
	}
	delete(s.known, oldest)
}

// evict makes room for an entry, and returns how many units are not charged for that. It
// prefers keys that owe nothing to Redis, and of those the one that will have drained
// first. Keys of which nothing is known begin used up as of then.
func (s *shard) evict(now policy.Instant) (lapsed int64) {
	var least hash
	var of entry
	left := sampled
	for h, e := range s.entries { // which begins anywhere
		first := left == sampled
		e.unpaid = min(e.unpaid, s.part.used(e.word, now))
		if first || s.less(e, of) {
			least, of = h, e
		}
		if left--; left == 0 {
			break
		}
	}
	delete(s.entries, least)
	if s.part.policy.FreshAt(of.word) > now {
		s.lost = now
	}
	return of.unpaid
}

func (s *shard) less(a, b entry) bool {
	if (a.unpaid > 0) != (b.unpaid > 0) {
		return a.unpaid == 0
	}
	return s.part.policy.FreshAt(a.word) < s.part.policy.FreshAt(b.word)
}

// divide has the shard keep another share. It returns how many units of a file are not
// charged, for want of room.
func (s *shard) divide(next *part, now policy.Instant) (lapsed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h, e := range s.entries {
		if e.unpaid > 0 { // what has drained is not owed, whatever is added below
			e.unpaid = min(e.unpaid, s.part.used(e.word, now))
		}
		e.word = next.carry(s.part, e.word, now)
		s.entries[h] = e
	}
	s.part = next
	return s.enter(now)
}

// owed appends what the keys owe, and drops those that mean nothing any more: all of them
// if something was taken since, else some.
func (s *shard) owed(now policy.Instant, noted bool, debts []Debt) []Debt {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := tidied
	for h, e := range s.entries {
		if left--; left < 0 && !noted {
			break
		}
		switch {
		case s.part.policy.FreshAt(e.word) <= now:
			delete(s.entries, h)
		case e.unpaid > 0 && noted:
			if n := min(e.unpaid, s.part.used(e.word, now)); n > 0 {
				debts = append(debts, Debt{e.name, n, h})
			}
		}
	}
	return debts
}
