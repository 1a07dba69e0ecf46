package redisserver

import (
	"fmt"

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
	if u, ok := call.Find(limit, key); ok {
		return u, nil
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
