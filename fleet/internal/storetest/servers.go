package storetest

import (
	"context"
	"slices"
	"strings"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

// roll is the servers of a limit, and their limits, by when each will be gone, in microseconds of
// Unix time.
type roll struct {
	servers map[string]int64
	limits  map[string]keptUntil
}

type keptUntil struct{ since, until int64 }

// Heartbeat implements store.Store.
func (s *Store) Heartbeat(ctx context.Context, beat store.Beat) (roll store.Roll, err error) {
	failed := s.redis.call(ctx, func() { roll = s.beat(beat) })
	if failed != nil {
		return store.Roll{}, failed
	}
	return roll, nil
}

func (s *Store) beat(beat store.Beat) store.Roll {
	all := s.redis.rolls[s.blocks]
	if all == nil {
		all = &roll{servers: map[string]int64{}, limits: map[string]keptUntil{}}
		s.redis.rolls[s.blocks] = all
	}
	epoch := s.options.Epoch.UnixMicro()
	now, ttl := int64(s.now()/1000)+epoch, beat.TTL.Microseconds()
	// The time in which no server could beat does not count.
	away, newest := int64(0), int64(0)
	for _, until := range all.servers {
		newest = max(newest, until)
	}
	if newest > 0 && now > newest {
		away = now + ttl - newest
	}
	for id := range all.servers {
		if all.servers[id] += away; all.servers[id] <= now-beat.Keep.Microseconds() {
			delete(all.servers, id)
		}
	}
	for text, kept := range all.limits {
		if kept.until += away; kept.until <= now-beat.Keep.Microseconds() {
			delete(all.limits, text)
			continue
		}
		all.limits[text] = kept
	}
	all.servers[beat.ID] = now + ttl
	own := keptUntil{now, now + ttl}
	if kept, there := all.limits[beat.Limit]; there {
		own.since = kept.since
	}
	all.limits[beat.Limit] = own

	roll := store.Roll{Remembered: len(all.servers), Now: s.now()}
	for _, until := range all.servers {
		if until > now {
			roll.Present++
		}
	}
	for text, kept := range all.limits {
		if kept.until > now {
			roll.Limits = append(roll.Limits, store.KeptLimit{Text: text, Since: policy.Instant(kept.since-epoch) * 1000})
		}
	}
	slices.SortFunc(roll.Limits, func(a, b store.KeptLimit) int { return strings.Compare(a.Text, b.Text) })
	return roll
}

// Leave implements store.Store.
func (s *Store) Leave(ctx context.Context, id string) error {
	return s.redis.call(ctx, func() {
		if all := s.redis.rolls[s.blocks]; all != nil {
			delete(all.servers, id)
		}
	})
}
