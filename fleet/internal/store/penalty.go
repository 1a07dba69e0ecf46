package store

import (
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/policy"
)

// Standing is the state of a key's block.
type Standing struct {
	// Left is how long the key is blocked, or 0.
	Left time.Duration
	At   policy.Instant
	// TooLate reports whether a block was refused because it would end after lastBlock.
	TooLate bool
}

// rule is the rule of a penalty, in whole microseconds, the unit of Redis's clock.
type rule struct{ *penalty.Rule }

// newRule rounds the rule's times up to the microseconds of Redis's clock.
func newRule(r penalty.Rule) rule {
	for _, duration := range []*time.Duration{&r.Within, &r.For, &r.Max, &r.Forget} {
		*duration = wholeMicros(*duration)
	}
	return rule{&r}
}

func wholeMicros(duration time.Duration) time.Duration {
	return (duration + time.Microsecond - 1) / time.Microsecond * time.Microsecond
}

// figures returns the parameters of the rule in scripts.
func (r rule) figures() []float64 {
	return []float64{
		float64(r.Refusals), float64(r.Within / time.Microsecond), float64(r.For / time.Microsecond),
		float64(r.Max / time.Microsecond), float64(r.Forget / time.Microsecond),
	}
}

// local returns the line of a script that defines the figures as local variables.
func (r rule) local() string {
	var text []string
	for _, value := range r.figures() {
		text = append(text, strconv.FormatFloat(value, 'f', 0, 64))
	}
	return "local mostRefused, windowUs, firstUs, longestUs, forgetUs = " + strings.Join(text, ", ") + "\n"
}

// blockedFor returns how long a key is blocked by the word of its block.
func (r rule) blockedFor(word uint64, now policy.Instant) time.Duration {
	if word == 0 {
		return 0
	}
	_, decision := r.Take(word, now, 0, 0)
	return decision.ResetAfter
}

// parseBlock converts Redis's value of a key's block (see lua/block.lua) to a word of package
// penalty, or 0.
func parseBlock(reply rueidis.RedisMessage, name string) (uint64, error) {
	if reply.IsNil() {
		return 0, nil
	}
	text, err := reply.ToString()
	if err != nil {
		return 0, classify(err, name)
	}
	var figures [3]uint64
	parts := strings.Split(text, ":")
	ok := len(parts) == 2 || len(parts) == 3
	for i, part := range parts[:min(len(parts), 3)] {
		figures[i], err = strconv.ParseUint(part, 10, 63)
		ok = ok && err == nil
	}
	times, us, count := int64(figures[0]), int64(figures[1]), int64(figures[2])
	switch {
	case !ok || times > penalty.MostDoublings || us > lastBlock || count >= penalty.MostRefusals:
		return 0, notAWord(name, text)
	case count == 0:
		return penalty.BlockWord(times, instant(us)), nil
	}
	return penalty.CountWord(times, count, us), nil
}

// lastBlock is the latest end of a block, in microseconds since the epoch, as in lua/block.lua.
const lastBlock = 288230376151678
