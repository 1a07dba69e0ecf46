package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// serversName is the name of the sorted set of servers that are there: each with when
// it will be gone unless it says otherwise, in microseconds.
func (s *Store) serversName() string {
	name := "ral:" + s.options.Name + ":servers"
	if s.options.Tag != "" {
		name += "{" + s.options.Tag + "}"
	}
	return name
}

const heartbeatLua = `
redis.call('ZADD', key, us + ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', key, '-inf', us)
local ms = math.ceil(redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2] / 1000)
redis.call(LIFE)
return redis.call('ZCARD', key)
`

// Heartbeat tells that the server of that id is there for ttl more, by Redis's clock,
// and returns how many are, itself among them. It is ErrNoRoll if something else is kept
// under that name.
func (s *Store) Heartbeat(ctx context.Context, id string, ttl time.Duration) (servers int, err error) {
	name := s.serversName()
	n, err := s.run(ctx, s.scripts.heartbeat, []string{name}, []string{id, strconv.FormatInt(ttl.Microseconds(), 10)}).AsInt64()
	if errors.Is(named(err), ErrNotAWord) {
		return 0, fmt.Errorf("%w (%s: %w)", ErrNoRoll, shown(name), err)
	}
	if err != nil {
		return 0, explain(err, name)
	}
	return int(n), nil
}

// Leave tells that the server is gone.
func (s *Store) Leave(ctx context.Context, id string) error {
	name := s.serversName()
	if err := s.client.Do(ctx, s.client.B().Zrem().Key(name).Member(id).Build()).Error(); err != nil {
		return explain(err, name)
	}
	return nil
}
