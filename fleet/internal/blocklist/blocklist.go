// Package blocklist remembers which keys Redis said are blocked, for servers that decide
// without asking it. It decides nothing, and knows of no limit.
package blocklist

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// List is a bounded list of blocked keys. New makes it. Its methods may be called by any
// number of goroutines.
type List struct {
	name   func(key string) string
	begun  time.Time
	seed   maphash.Seed
	count  atomic.Int64 // of keys, also those whose block has ended
	most   int          // of each shard
	shards []shard
}

type shard struct {
	mu sync.RWMutex
	of map[string]entry
}

// entry is a block. until and heard are times since the list began.
type entry struct {
	until, heard time.Duration
	at           policy.Instant // when Redis said so, by its clock
}

const (
	mostShards = 64
	// looked is how many entries a new one looks at, to remove those that have ended, or
	// the one that ends first if the shard is full.
	looked = 8
)

// New returns a list of so many keys at most, at least 1. name returns what stands for a
// key, and for no other, and should be short. If more keys are blocked, some are not in the
// list, mostly those whose blocks end soon.
func New(most int, name func(key string) string) *List {
	l := &List{name: name, begun: time.Now(), seed: maphash.MakeSeed()}
	l.shards = make([]shard, min(mostShards, most))
	l.most = most / len(l.shards)
	for i := range l.shards {
		l.shards[i].of = map[string]entry{}
	}
	return l
}

// Empty reports whether no key is in the list. It is cheap.
func (l *List) Empty() bool { return l.count.Load() == 0 }

func (l *List) shard(name string) *shard {
	return &l.shards[maphash.String(l.seed, name)%uint64(len(l.shards))]
}

// Heard records that Redis said at an instant, by its clock, for how long the key is blocked. 0
// means that it is not blocked. Heard changes nothing if Redis said something later.
func (l *List) Heard(key string, left time.Duration, at policy.Instant) {
	if left <= 0 && l.Empty() {
		return
	}
	name, now := l.name(key), time.Since(l.begun)
	s := l.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	old, there := s.of[name]
	switch {
	case there && at < old.at:
	case left > 0:
		l.put(s, name, entry{until: now + left, heard: now, at: at}, now)
	case there:
		l.remove(s, name)
	}
}

// Block records that the key is blocked for d here, whatever Redis says, until that is heard.
// It does not shorten a block.
func (l *List) Block(key string, d time.Duration) {
	name, now := l.name(key), time.Since(l.begun)
	s := l.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.of[name]
	e.until, e.heard = max(e.until, now+d), now
	l.put(s, name, e, now)
}

// put stores an entry, if there is room or it ends later than another. The shard is held.
func (l *List) put(s *shard, name string, e entry, now time.Duration) {
	if _, there := s.of[name]; there {
		s.of[name] = e
		return
	}
	var first string
	least := e.until
	seen := 0
	for other, o := range s.of {
		if o.until <= now {
			l.remove(s, other)
		} else if o.until < least {
			first, least = other, o.until
		}
		if seen++; seen == looked {
			break
		}
	}
	if len(s.of) >= l.most {
		if least == e.until {
			return
		}
		l.remove(s, first)
	}
	s.of[name] = e
	l.count.Add(1)
}

// remove is for callers that hold the shard.
func (l *List) remove(s *shard, name string) {
	delete(s.of, name)
	l.count.Add(-1)
}

// Left returns how long the key is still blocked, as far as is known, and how long ago that
// was heard; 0 if it is not.
func (l *List) Left(key string) (left, ago time.Duration) {
	if l.Empty() {
		return 0, 0
	}
	name := l.name(key)
	s := l.shard(name)
	s.mu.RLock()
	e, there := s.of[name]
	s.mu.RUnlock()
	if !there {
		return 0, 0
	}
	now := time.Since(l.begun)
	if now < e.until {
		return e.until - now, now - e.heard
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[name] == e {
		l.remove(s, name)
	}
	return 0, 0
}

// Forget removes the key.
func (l *List) Forget(key string) {
	name := l.name(key)
	s := l.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.of[name]; there {
		l.remove(s, name)
	}
}
