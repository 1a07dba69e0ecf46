// Package blocklist remembers which keys Redis said are blocked, for servers that do not ask Redis.
package blocklist

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// List is a bounded list of blocked keys. New makes a List. Any number of goroutines may use a
// List.
type List struct {
	name  func(key string) string
	begun time.Time
	seed  maphash.Seed
	// count is the number of keys, also of keys with ended blocks.
	count atomic.Int64
	// maxPerShard bounds the keys of each shard.
	maxPerShard int
	shards      []shard
}

type shard struct {
	mu      sync.RWMutex
	entries map[string]entry
}

// entry is a block. until and heard are times since the list began.
type entry struct {
	until, heard time.Duration
	// instant is when Redis said so, by its clock.
	instant policy.Instant
}

const (
	maxShards = 64
	// looked is the number of entries that an insertion checks: it removes ended blocks or, if the
	// shard is full, the first to end.
	looked = 8
)

// New returns a list of at most maxKeys keys, at least 1. name returns a short text for a key,
// unique to the key. If more keys are blocked, some are missing, mostly those with the soonest
// ends.
func New(maxKeys int, name func(key string) string) *List {
	list := &List{name: name, begun: time.Now(), seed: maphash.MakeSeed()}
	list.shards = make([]shard, min(maxShards, maxKeys))
	list.maxPerShard = maxKeys / len(list.shards)
	for i := range list.shards {
		list.shards[i].entries = map[string]entry{}
	}
	return list
}

// Empty reports whether no key is in the list. Empty is cheap.
func (l *List) Empty() bool { return l.count.Load() == 0 }

// lock returns a key's name, and its shard locked.
func (l *List) lock(key string) (name string, locked *shard) {
	name = l.name(key)
	locked = l.shard(name)
	locked.mu.Lock()
	return name, locked
}

func (l *List) shard(name string) *shard {
	return &l.shards[maphash.String(l.seed, name)%uint64(len(l.shards))]
}

// Heard records Redis's word, at an instant of its clock, for how long the key is blocked; 0 is not
// at all. A later word of Redis stays.
func (l *List) Heard(key string, left time.Duration, instant policy.Instant) {
	if left <= 0 && l.Empty() {
		return
	}
	name, shard := l.lock(key)
	defer shard.mu.Unlock()
	now := time.Since(l.begun)
	old, there := shard.entries[name]
	switch {
	case there && instant < old.instant:
	case left > 0:
		l.put(shard, name, entry{until: now + left, heard: now, instant: instant}, now)
	case there:
		l.remove(shard, name)
	}
}

// Block records a block for d here, until Redis is heard. Block does not shorten an earlier block.
func (l *List) Block(key string, d time.Duration) {
	name, shard := l.lock(key)
	defer shard.mu.Unlock()
	now := time.Since(l.begun)
	entry := shard.entries[name]
	entry.until, entry.heard = max(entry.until, now+d), now
	l.put(shard, name, entry, now)
}

// put stores an entry, if there is room or the entry ends later than another. The caller locks the
// shard.
func (l *List) put(shard *shard, name string, entry entry, now time.Duration) {
	if _, there := shard.entries[name]; there {
		shard.entries[name] = entry
		return
	}
	var first string
	earliest := entry.until
	seen := 0
	for other, entry := range shard.entries {
		if entry.until <= now {
			l.remove(shard, other)
		} else if entry.until < earliest {
			first, earliest = other, entry.until
		}
		if seen++; seen == looked {
			break
		}
	}
	if len(shard.entries) >= l.maxPerShard {
		if earliest == entry.until {
			return
		}
		l.remove(shard, first)
	}
	shard.entries[name] = entry
	l.count.Add(1)
}

// remove removes a key. The caller locks the shard.
func (l *List) remove(shard *shard, name string) {
	delete(shard.entries, name)
	l.count.Add(-1)
}

// Left returns how long the key is known to be blocked, as heard less than within ago, or 0.
func (l *List) Left(key string, within time.Duration) time.Duration {
	if within <= 0 || l.Empty() {
		return 0
	}
	name := l.name(key)
	shard := l.shard(name)
	shard.mu.RLock()
	entry, there := shard.entries[name]
	shard.mu.RUnlock()
	now := time.Since(l.begun)
	switch {
	case !there:
	case now < entry.until && now-entry.heard < within:
		return entry.until - now
	case now >= entry.until:
		shard.mu.Lock()
		defer shard.mu.Unlock()
		if shard.entries[name] == entry {
			l.remove(shard, name)
		}
	}
	return 0
}

// Forget removes the key.
func (l *List) Forget(key string) {
	name, shard := l.lock(key)
	defer shard.mu.Unlock()
	if _, there := shard.entries[name]; there {
		l.remove(shard, name)
	}
}
