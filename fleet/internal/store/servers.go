package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/policy"
)

// serversName is the name of the roll, the sorted set of the servers of a limit: each with
// when it will be gone unless it says otherwise, in microseconds of Unix time: servers of
// different epochs count one another.
func (s *Store) serversName() string {
	name := "ral:" + s.options.Name + ":servers"
	if s.options.Tag != "" {
		name += "{" + s.options.Tag + "}"
	}
	return name
}

// limitsName is the name of the sorted set of the limits that servers of this Name keep:
// when each was first heard of and its text, with when it will be gone, in microseconds of
// Unix time. A cluster keeps it where the roll is.
func (s *Store) limitsName() string {
	tag := s.options.Tag
	if tag == "" {
		tag = s.serversName()
	}
	return "ral:" + s.options.Name + ":limits{" + tag + "}"
}

// rollLife is how long the roll stays when no server beats. It bounds the outage after
// which servers are still remembered.
const rollLife = 24 * time.Hour

// Time in which no server could beat does not count against any: all are put off by it, as
// if the last of them had beaten just now.
const heartbeatLua = `
local ttl, keep, life = ARGV[2] + 0, ARGV[3] + 0, ARGV[5] + 0
local newest = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
local away = newest and us > newest + 0 and us + ttl - newest or 0
for _, name in ipairs(KEYS) do
  if away > 0 then
    for _, member in ipairs(redis.call('ZRANGE', name, 0, -1)) do redis.call('ZINCRBY', name, string.format('%.0f', away), member) end
  end
  redis.call('ZREMRANGEBYSCORE', name, '-inf', string.format('%.0f', us - keep))
end
redis.call('ZADD', key, us + ttl, ARGV[1])
local own = string.format('%.0f ', us) .. ARGV[4]
local limits = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
for i = 1, #limits, 2 do
  if string.gsub(limits[i], '^%d+ ', '', 1) == ARGV[4] then own = limits[i] end
end
redis.call('ZADD', KEYS[2], us + ttl, own)
local ms = math.ceil((us + life) / 1000)
for _, name in ipairs(KEYS) do
  local key = name
  redis.call(LIFE)
end
local there = string.format('(%.0f', us)
return {us, redis.call('ZCOUNT', key, there, '+inf'), redis.call('ZCARD', key), redis.call('ZRANGEBYSCORE', KEYS[2], there, '+inf')}
`

// Beat is what a server says of itself.
type Beat struct {
	// ID is the server's.
	ID string
	// TTL is how long from now on it is there, unless it says so again.
	TTL time.Duration
	// Keep is how long beyond that it is remembered. Time in which no server of the limit
	// beats, because Redis is away, does not count.
	Keep time.Duration
	// Limit describes the limit that the server keeps.
	Limit string
}

// Roll is what a server is told for a beat.
type Roll struct {
	// Present servers are there, this one among them; Remembered are those and the ones
	// that were there not long ago and did not Leave.
	Present, Remembered int
	// Limits are those that present servers keep, this one's among them.
	Limits []KeptLimit
	// Now is Redis's time.
	Now policy.Instant
}

// KeptLimit is a limit that servers keep.
type KeptLimit struct {
	Text  string
	Since policy.Instant // when a server first said so, by Redis's clock
}

// Heartbeat tells Redis that a server is there, and returns which others are, by Redis's
// clock. It is ErrNoRoll if something else is kept under the names that are used.
func (s *Store) Heartbeat(ctx context.Context, b Beat) (Roll, error) {
	names := []string{s.serversName(), s.limitsName()}
	us := func(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
	reply, err := s.run(ctx, s.scripts.heartbeat, names, []string{b.ID, us(b.TTL), us(b.Keep), b.Limit, us(rollLife)}).ToArray()
	if errors.Is(named(err), ErrForeignValue) {
		return Roll{}, fmt.Errorf("%w (%s or %s: %w)", ErrNoRoll, shown(names[0]), shown(names[1]), err)
	}
	if err != nil {
		return Roll{}, explain(err, names[0])
	}
	r, err := s.parseRoll(reply)
	if errors.Is(err, ErrNoRoll) {
		return Roll{}, err
	}
	if err != nil {
		return Roll{}, fmt.Errorf("%w (%s: %w)", ErrDisagrees, shown(names[0]), err)
	}
	return r, nil
}

// parseRoll reads a reply, which is in Unix time. It is ErrNoRoll if a limit in it is none
// that a Heartbeat wrote.
func (s *Store) parseRoll(reply []rueidis.RedisMessage) (r Roll, err error) {
	epoch := s.options.Epoch.Unix() * 1e6
	if len(reply) != 4 {
		return Roll{}, fmt.Errorf("a reply of %d parts", len(reply))
	}
	var numbers [3]int64
	for i := range numbers {
		if numbers[i], err = reply[i].AsInt64(); err != nil {
			return Roll{}, err
		}
	}
	r.Now, r.Present, r.Remembered = instant(numbers[0]-epoch), int(numbers[1]), int(numbers[2])
	limits, err := reply[3].AsStrSlice()
	if err != nil {
		return Roll{}, err
	}
	for _, member := range limits {
		since, text, separated := strings.Cut(member, " ")
		us, err := strconv.ParseInt(since, 10, 64)
		if err != nil || !separated {
			return Roll{}, fmt.Errorf("%w (%s has the member %s)", ErrNoRoll, shown(s.limitsName()), shown(member))
		}
		r.Limits = append(r.Limits, KeptLimit{text, instant(us - epoch)})
	}
	return r, nil
}

// Leave tells that the server is gone.
func (s *Store) Leave(ctx context.Context, id string) error {
	name := s.serversName()
	if err := s.client.Do(ctx, s.client.B().Zrem().Key(name).Member(id).Build()).Error(); err != nil {
		return explain(err, name)
	}
	return nil
}
