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

// serversName names the roll: the sorted set of a limit's servers, scored by when each will be
// gone. Times are microseconds of Unix time, so servers of different epochs count each other.
func (s *Store) serversName() string {
	name := "ral:" + s.options.Name + ":servers"
	if s.options.Tag != "" {
		name += "{" + s.options.Tag + "}"
	}
	return name
}

// limitsName names the sorted set of limits that servers of this Name keep: first time and text,
// scored by when it will be gone, in microseconds of Unix time. A cluster keeps it with the roll.
func (s *Store) limitsName() string {
	tag := s.options.Tag
	if tag == "" {
		tag = s.serversName()
	}
	return "ral:" + s.options.Name + ":limits{" + tag + "}"
}

// rollLife is how long the roll stays without a beat: after longer outages servers are forgotten.
const rollLife = 24 * time.Hour

// Beat is a server's message about itself.
type Beat struct {
	ID string
	// TTL is how long it is present without another beat.
	TTL time.Duration
	// Keep is how long it is remembered after that. Outages of Redis for all servers do not count.
	Keep time.Duration
	// Limit describes the server's limit.
	Limit string
}

// Roll is the answer to a beat.
type Roll struct {
	// Present counts servers, also this server; Remembered also those gone recently without Leave.
	Present, Remembered int
	// Limits are the limits of present servers, also this server's.
	Limits []KeptLimit
	// Now is Redis's time.
	Now policy.Instant
}

// KeptLimit is a limit of present servers.
type KeptLimit struct {
	Text string
	// Since is when a server first said so, by Redis's clock.
	Since policy.Instant
}

// Heartbeat tells Redis that a server is there, and returns the others, by Redis's clock. The error
// is ErrNoRoll if the names hold something else.
func (s *Store) Heartbeat(ctx context.Context, beat Beat) (Roll, error) {
	names := []string{s.serversName(), s.limitsName()}
	us := func(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
	reply, err := s.runOne(ctx, s.scripts.heartbeat, names, beat.ID, us(beat.TTL), us(beat.Keep), beat.Limit, us(rollLife)).ToArray()
	if errors.Is(named(err), ErrForeignValue) {
		return Roll{}, fmt.Errorf("%w (%s or %s: %w)", ErrNoRoll, shown(names[0]), shown(names[1]), err)
	}
	if err != nil {
		return Roll{}, explain(err, names[0])
	}
	roll, err := s.parseRoll(reply)
	if errors.Is(err, ErrNoRoll) {
		return Roll{}, err
	}
	if err != nil {
		return Roll{}, fmt.Errorf("%w (%s: %w)", ErrDisagrees, shown(names[0]), err)
	}
	return roll, nil
}

// parseRoll reads a reply in Unix time. The error is ErrNoRoll for a limit that no Heartbeat wrote.
func (s *Store) parseRoll(reply []rueidis.RedisMessage) (roll Roll, err error) {
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
	roll.Now, roll.Present, roll.Remembered = instant(numbers[0]-epoch), int(numbers[1]), int(numbers[2])
	limits, err := reply[3].AsStrSlice()
	if err != nil {
		return Roll{}, err
	}
	for _, member := range limits {
		since, text, separated := strings.Cut(member, " ")
		us, err := strconv.ParseInt(since, 10, 64)
		if err != nil || !separated {
			return Roll{}, fmt.Errorf("%w (%s has the member %s)", ErrNoRoll, shown(s.limitsName()), quoted(member))
		}
		roll.Limits = append(roll.Limits, KeptLimit{text, instant(us - epoch)})
	}
	return roll, nil
}

// Leave tells Redis that the server is gone.
func (s *Store) Leave(ctx context.Context, id string) error {
	name := s.serversName()
	if err := s.client.Do(ctx, s.client.B().Zrem().Key(name).Member(id).Build()).Error(); err != nil {
		return explain(err, name)
	}
	return nil
}
