package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/policy"
)

// Block blocks the key for d, rounded up to a microsecond, unless it is blocked for longer. A d of 0
// looks. A single call of Redis.
func (s *Store) Block(ctx context.Context, key string, d time.Duration) (b Standing, err error) {
	name, err := nameIn(s.blocks, key)
	if err != nil {
		return b, err
	}
	d = wholeMicros(d)
	r := read(s.runOne(ctx, s.scripts.lock, []string{name}, strconv.FormatInt(d.Microseconds(), 10)), name, 3)
	us, word, done := r.number(), r.block(name), r.number()
	if r.err != nil {
		return b, r.err
	}
	b.At = instant(us)
	if d > 0 {
		var did policy.Decision
		word, did = penalty.Lock{Rule: s.rule.Rule, For: d}.Take(word, b.At, 1, 0)
		if b.TooLate = !did.Allowed; (done == 1) == b.TooLate {
			return Standing{}, fmt.Errorf("%w (block of %s for %v at %d: the script says %d)", ErrDisagrees, shown(name), d, b.At, done)
		}
	}
	b.Left = s.rule.blockedFor(word, b.At)
	return b, nil
}

// Delete forgets the blocks of a key and, unless l is nil, its use. It reports whether there was
// anything.
func (s *Store) Delete(ctx context.Context, l *Limit, key string) (bool, error) {
	name, err := nameIn(s.blocks, key)
	if err != nil {
		return false, err
	}
	names := []string{name}
	if l != nil {
		names = append(names, l.prefix+name[len(s.blocks):])
	}
	n, err := s.client.Do(ctx, s.client.B().Del().Key(names...).Build()).AsInt64()
	if err != nil {
		return false, explain(err, names[len(names)-1])
	}
	return n > 0, nil
}
