package redisdoor

import (
	"fmt"

	"github.com/puzpuzpuz/xsync/v3"
	"github.com/ral-limiter/ral/cmd/rald/internal/spaces"
	"github.com/ral-limiter/ral/policy"
)

// Named is a limit that is configured by name.
type Named struct {
	Limit policy.Policy
	// Prefix comes before the keys of this limit, in an engine that it shares with others. It
	// is Prefix(name).
	Prefix string
}

// mostRemembered is the most limits that a catalog remembers for the texts and numbers that
// clients sent. Beyond it they are made anew for each call.
const mostRemembered = 4096

// catalog finds limits by what clients call them.
type catalog struct {
	spaces  *spaces.Spaces
	named   func(name string) (Named, bool)
	texts   *xsync.MapOf[string, policy.Policy]
	buckets *xsync.MapOf[[3]int64, policy.Policy]
}

func newCatalog(s *spaces.Spaces, named func(string) (Named, bool)) *catalog {
	if named == nil {
		named = func(string) (Named, bool) { return Named{}, false }
	}
	return &catalog{s, named, xsync.NewMapOf[string, policy.Policy](), xsync.NewMapOf[[3]int64, policy.Policy]()}
}

// bucket returns the limit of CL.THROTTLE's max_burst, count and period.
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

// use is a key under a limit, in the engine that keeps it.
type use struct {
	space *spaces.Space
	limit policy.Policy
	key   string
}

// find returns the key under the limit of that name or text.
func (c *catalog) find(key, limit []byte) (u use, err error) {
	if named, ok := c.named(string(limit)); ok {
		u = use{limit: named.Limit, key: named.Prefix + string(key)}
	} else {
		if u.limit, err = c.parse(limit); err != nil {
			return u, err
		}
		u.key = stored(key)
	}
	u.space, err = c.spaces.Of(u.limit)
	return u, err
}

// parse returns the limit that a text describes.
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
