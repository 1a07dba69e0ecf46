package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/policy"
)

// Block blocks the key for d, rounded up to a microsecond, unless it is blocked for longer already.
// If d is 0, Block only looks. It makes a single call of Redis.
func (s *Store) Block(ctx context.Context, key string, d time.Duration) (standing Standing, err error) {
	name, err := nameIn(s.blocks, key)
	if err != nil {
		return standing, err
	}
	d = wholeMicros(d)
	answer := read(s.runOne(ctx, s.scripts.lock, []string{name}, strconv.FormatInt(d.Microseconds(), 10)), name, 3)
	us, word, done := answer.number(), answer.block(name), answer.number()
	if answer.err != nil {
		return standing, answer.err
	}
	standing.At = instant(us)
	if d > 0 {
		var did policy.Decision
		word, did = penalty.Lock{Rule: s.rule.Rule, For: d}.Take(word, standing.At, 1, 0)
		if standing.TooLate = !did.Allowed; (done == 1) == standing.TooLate {
			return Standing{}, fmt.Errorf("%w (block of %s for %v at %d: the script says %d)", ErrDisagrees, shown(name), d, standing.At, done)
		}
	}
	standing.Left = s.rule.blockedFor(word, standing.At)
	return standing, nil
}

// Delete forgets the blocks of a key and, unless limit is nil, its use. It reports whether there was
// anything.
func (s *Store) Delete(ctx context.Context, limit *Limit, key string) (bool, error) {
	name, err := nameIn(s.blocks, key)
	if err != nil {
		return false, err
	}
	names := []string{name}
	if limit != nil {
		names = append(names, limit.prefix+name[len(s.blocks):])
	}
	n, err := s.client.Do(ctx, s.client.B().Del().Key(names...).Build()).AsInt64()
	if err != nil {
		return false, classify(err, names[len(names)-1])
	}
	return n > 0, nil
}
