package redisserver

import (
	"errors"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/policy"
)

type catalog struct {
	families *families.Families
	texts    families.Known[string, policy.Policy]
	buckets  families.Known[[3]int64, policy.Policy]
}

func (c *catalog) bucket(args [3]int64) (policy.Policy, error) {
	return c.buckets.Get(args, func() (policy.Policy, error) { return newBucket(args[0], args[1], args[2]) })
}

func (c *catalog) find(call *configured.Call, limit, key []byte) (use configured.Use, err error) {
	key = bounded(key)
	if use, ok := call.Find(limit, key); ok {
		return use, nil
	}
	if use.Limit, err = c.parse(limit); err != nil {
		return use, err
	}
	use.Key = stored(key)
	use.Family, err = c.families.Of(use.Limit)
	return use, err
}

func (c *catalog) parse(text []byte) (policy.Policy, error) {
	return c.texts.Get(string(text), func() (policy.Policy, error) {
		limit, err := policy.Parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("limit is %.64q: the name of a configured limit is accepted, or the text of one: %w", text, err)
		}
		return limit, nil
	})
}

// redis-cell overflows if they are too large
func newBucket(burst, count, period int64) (policy.Policy, error) {
	switch {
	case burst < 0 || burst == 1<<63-1:
		return nil, fmt.Errorf("max_burst is %d: 0 to %d is accepted", burst, int64(1<<63-2))
	case count < 1:
		return nil, fmt.Errorf("count is %d: 1 or more is accepted", count)
	case period < 1 || period > maxSeconds:
		return nil, fmt.Errorf("period is %d: 1 to %d seconds are accepted", period, maxSeconds)
	}
	limit, err := policy.Funnel(burst+1, count, time.Duration(period)*time.Second)
	var field *policy.FieldError
	if errors.As(err, &field) {
		return nil, fmt.Errorf("max_burst %d, count %d and period %d make no limit: %s of %v, %s is accepted",
			burst, count, period, field.Field, field.Value, field.Want)
	}
	return limit, err
}

const maxSeconds = int64(1<<63-1) / int64(time.Second)
