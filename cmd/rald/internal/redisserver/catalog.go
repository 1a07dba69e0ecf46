package redisserver

import (
	"fmt"

	"github.com/puzpuzpuz/xsync/v3"
	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/policy"
)

const mostRemembered = 4096 // limits that a catalog remembers; more are made for each call

type catalog struct {
	families *families.Families
	texts    *xsync.MapOf[string, policy.Policy]
	buckets  *xsync.MapOf[[3]int64, policy.Policy]
}

func newCatalog(s *families.Families) *catalog {
	return &catalog{s, xsync.NewMapOf[string, policy.Policy](), xsync.NewMapOf[[3]int64, policy.Policy]()}
}

func (c *catalog) bucket(args [3]int64) (policy.Policy, error) {
	if limit, ok := c.buckets.Load(args); ok {
		return limit, nil
	}
	limit, err := newBucket(args[0], args[1], args[2])
	if err == nil && c.buckets.Size() < mostRemembered {
		c.buckets.Store(args, limit)
	}
	return limit, err
}

func (c *catalog) find(call *configured.Call, limit, key []byte) (u configured.Use, err error) {
	key = bounded(key)
	if u, ok := call.Find(limit, key); ok {
		return u, nil
	}
	if u.Limit, err = c.parse(limit); err != nil {
		return u, err
	}
	u.Key = stored(key)
	u.Family, err = c.families.Of(u.Limit)
	return u, err
}

func (c *catalog) parse(text []byte) (policy.Policy, error) {
	if limit, ok := c.texts.Load(string(text)); ok {
		return limit, nil
	}
	limit, err := policy.Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("limit is %.64q: the name of a configured limit is accepted, or the text of one: %w", text, err)
	}
	if c.texts.Size() < mostRemembered {
		c.texts.Store(string(text), limit)
	}
	return limit, nil
}
