package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// serversName returns the name of the roll, the sorted set of a limit's servers. A server's score is the
// time at which it will be gone, in microseconds of Unix time, so that servers with different epochs count
// each other.
func (s *Store) serversName() string { return s.options.name("servers") }

// limitsName returns the name of the sorted set of the limits that servers of this Name keep. A member is the
// time at which a server first had the limit, and the limit's text. Its score is the time at which the limit
// will be gone, in microseconds of Unix time. In a cluster the set is in the slot of the roll.
func (s *Store) limitsName() string {
	return "ral:" + s.options.Name + ":limits{" + cmp.Or(s.options.Tag, s.serversName()) + "}"
}

// rollLife is how long the roll stays without a beat: after longer outages servers are forgotten.
const rollLife = 24 * time.Hour

// Beat is a server's message about itself.
type Beat struct {
	ID string
	// TTL is the time for which the server is present without another beat.
	TTL time.Duration
	// Keep is the time for which the server is remembered after that. Outages of Redis for all servers do
	// not count.
	Keep time.Duration
	// Limit describes the server's limit.
	Limit string
}

// Roll is the answer to a beat.
type Roll struct {
	// Present is the number of servers, with this server. Remembered also counts servers that have gone recently
	// without Leave.
	Present, Remembered int
	// Limits are the limits of present servers, also this server's.
	Limits []KeptLimit
	// Now is Redis's time.
	Now policy.Instant
}

// KeptLimit is a limit of present servers.
type KeptLimit struct {
	Text string
	// Since is the time of the first beat with this limit, by Redis's clock.
	Since policy.Instant
}

// Heartbeat tells Redis that a server is there, and returns the roll, by Redis's clock. The error is
// ErrNoRoll if the names have values of something else.
func (s *Store) Heartbeat(ctx context.Context, beat Beat) (Roll, error) {
	names := []string{s.serversName(), s.limitsName()}
	us := func(duration time.Duration) string { return strconv.FormatInt(duration.Microseconds(), 10) }
	res := s.runOne(ctx, s.scripts.heartbeat, names, beat.ID, us(beat.TTL), us(beat.Keep), beat.Limit, us(rollLife))
	if err := res.Error(); errors.Is(named(err), ErrForeignValue) {
		return Roll{}, fmt.Errorf("%w (%s or %s: %w)", ErrNoRoll, shown(names[0]), shown(names[1]), err)
	}
	return s.parseRoll(read(res, names[0], 4))
}

// parseRoll reads a reply in Unix time. The error is ErrNoRoll for a limit that no Heartbeat wrote.
func (s *Store) parseRoll(answer *answer) (roll Roll, err error) {
	epoch := s.options.Epoch.Unix() * 1e6
	roll.Now, roll.Present, roll.Remembered = instant(answer.number()-epoch), int(answer.number()), int(answer.number())
	part := answer.next()
	limits, err := part.AsStrSlice()
	if answer.err != nil {
		return Roll{}, answer.err
	}
	if err != nil {
		return Roll{}, fmt.Errorf("%w (%s: %w)", ErrDisagrees, shown(answer.name), err)
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
		return classify(err, name)
	}
	return nil
}
