package store

import (
	"context"
	_ "embed" // the scripts
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/policy"
)

var (
	//go:embed lua/block.lua
	blockLua string
	//go:embed lua/punish.lua
	punishLua string
	//go:embed lua/lock.lua
	lockLua string
)

// Block is the effect of a block on a call of its key.
type Block struct {
	// Refused reports a refusal because the key was blocked.
	Refused bool
	// Made reports a refusal by the limit that blocked the key.
	Made bool
	Left time.Duration // how long the key is blocked from now, or 0
}

// Standing is the state of a key's block.
type Standing struct {
	Left time.Duration // how long the key is blocked, or 0
	At   policy.Instant
}

// Block blocks the key for d, rounded up to a microsecond, unless it is blocked for longer. ok is
// false if time ends before; nothing has changed then. A d of 0 looks. A single call of Redis.
func (s *Store) Block(ctx context.Context, key string, d time.Duration) (b Standing, ok bool, err error) {
	name, err := s.name(s.blocks, key)
	if err != nil {
		return b, false, err
	}
	d = wholeMicros(d)
	reply, err := s.run(ctx, s.scripts.lock, []string{name}, []string{strconv.FormatInt(d.Microseconds(), 10)}).ToArray()
	if err != nil {
		return b, false, explain(err, name)
	}
	if len(reply) != 3 {
		return b, false, fmt.Errorf("%w (a reply of %d parts)", ErrDisagrees, len(reply))
	}
	us, err := reply[0].AsInt64()
	if err != nil {
		return b, false, explain(err, name)
	}
	word, err := parseBlock(reply[1], name)
	if err != nil {
		return b, false, err
	}
	b.At = instant(us)
	ok = true
	if d > 0 {
		var did policy.Decision
		word, did = penalty.Lock{Rule: s.rule.Rule, For: d}.Take(word, b.At, 1, 0)
		ok = did.Allowed
		if done, err := reply[2].AsInt64(); err != nil || (done == 1) != ok {
			return b, false, fmt.Errorf("%w (block of %s for %v at %d: the script says %d)", ErrDisagrees, shown(name), d, b.At, done)
		}
	}
	b.Left = s.rule.blockedFor(word, b.At)
	return b, ok, nil
}

// rule is a penalty by Redis's clock.
type rule struct{ *penalty.Rule }

// newRule rounds the rule's times up to the microseconds of Redis's clock.
func newRule(r penalty.Rule) rule {
	for _, d := range []*time.Duration{&r.Within, &r.For, &r.Max, &r.Forget} {
		*d = wholeMicros(*d)
	}
	return rule{&r}
}

func wholeMicros(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1) / time.Microsecond * time.Microsecond
}

// figures are the rule's parameters of scripts.
func (r rule) figures() []float64 {
	return []float64{
		float64(r.Refusals), float64(r.Within / time.Microsecond), float64(r.For / time.Microsecond),
		float64(r.Max / time.Microsecond), float64(r.Forget / time.Microsecond),
	}
}

// local sets the figures in a line of a script.
func (r rule) local() string {
	var text []string
	for _, f := range r.figures() {
		text = append(text, strconv.FormatFloat(f, 'f', 0, 64))
	}
	return "local mostRefused, windowUs, firstUs, longestUs, forgetUs = " + strings.Join(text, ", ") + "\n"
}

// blockedFor returns how long a key is blocked by the word of its block.
func (r rule) blockedFor(word uint64, at policy.Instant) time.Duration {
	if word == 0 {
		return 0
	}
	_, d := r.Take(word, at, 0, 0)
	return d.ResetAfter
}

// heed applies a key's block to the limit's decision t, and returns the next word of the block.
// standing returns the key's state. With counts false a refusal does not count.
func (r rule) heed(t *Taken, block uint64, n int64, counts bool, standing func() policy.Decision) uint64 {
	if left := r.blockedFor(block, t.At); left > 0 {
		retry := t.RetryAfter
		if t.Allowed && n != 0 {
			t.Decision = standing() // it took nothing
		}
		t.Allowed, t.Remaining, t.Wait, t.After = false, 0, 0, t.Before
		t.RetryAfter, t.ResetAfter = max(retry, left), max(t.ResetAfter, left)
		t.Block = Block{Refused: true, Left: left}
		return block
	}
	if r.Refusals == 0 || !counts || t.Allowed || n == 0 || t.RetryAfter == policy.Never {
		return block
	}
	next, d := r.Take(block, t.At, 1, 0)
	if d.ResetAfter > 0 {
		t.Block = Block{Made: true, Left: d.ResetAfter}
		t.RetryAfter, t.ResetAfter = max(t.RetryAfter, d.ResetAfter), max(t.ResetAfter, d.ResetAfter)
	}
	return next
}

func (l *Limit) blockName(name string) string { return l.blocks + name[len(l.prefix):] }

// parseBlock converts Redis's value of a key's block (see lua/block.lua) to a word of package
// penalty, or 0.
func parseBlock(reply rueidis.RedisMessage, name string) (uint64, error) {
	if reply.IsNil() {
		return 0, nil
	}
	text, err := reply.ToString()
	if err != nil {
		return 0, explain(err, name)
	}
	var figures [3]uint64
	parts := strings.Split(text, ":")
	ok := len(parts) == 2 || len(parts) == 3
	for i, part := range parts[:min(len(parts), 3)] {
		figures[i], err = strconv.ParseUint(part, 10, 63)
		ok = ok && err == nil
	}
	times, at, count := int64(figures[0]), int64(figures[1]), int64(figures[2])
	switch {
	case !ok || times > penalty.MostDoublings || at > lastBlock || count >= penalty.MostRefusals:
		return 0, notAWord(name, text)
	case count == 0:
		return penalty.BlockWord(times, instant(at)), nil
	}
	return penalty.CountWord(times, count, at), nil
}

// lastBlock is the end of time for blocks, in microseconds, as in lua/block.lua.
const lastBlock = 288230376151678
