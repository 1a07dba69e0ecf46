package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// overtaken is a limit under which somebody else is faster, once: meanwhile runs after
// the limit has decided on a word, and before its caller swaps it.
type overtaken struct {
	policy.Policy
	meanwhile func()
}

func (o *overtaken) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	next, d := o.Policy.Take(word, now, n, patience)
	if n > 0 {
		o.strike()
	}
	return next, d
}

func (o *overtaken) Choke(word uint64, now policy.Instant) (uint64, bool) {
	next, allowed := o.Policy.(policy.Choker).Choke(word, now)
	o.strike()
	return next, allowed
}

func (o *overtaken) strike() {
	if f := o.meanwhile; f != nil {
		o.meanwhile = nil
		f()
	}
}

// Whoever is overtaken between reading the word and swapping it decides again: two
// callers can not spend the same unit. It does not depend on how goroutines run.
func TestWhoIsOvertakenDecidesAgain(t *testing.T) {
	limit := &overtaken{Policy: funnel(3, 1, time.Hour)}
	e := open[string](t, Config{Policy: limit})
	for name, call := range map[string]func(key string) bool{
		"Choke":   e.Choke,
		"Take":    func(key string) bool { return e.Take(key, 1).Allowed },
		"Reserve": func(key string) bool { return e.Reserve(key, 1, 0).Allowed },
	} {
		for _, known := range []bool{true, false} {
			key := name
			if known {
				require.True(t, e.Choke(key))
				settled(t, e)
			} else {
				key += " of a new key"
			}
			left := e.Peek(key).Remaining
			limit.meanwhile = func() { require.True(t, e.Take(key, left).Allowed) }
			assert.False(t, call(key), key)
			assert.Nil(t, limit.meanwhile, key)
			assert.Zero(t, e.Peek(key).Remaining, key)
			assert.False(t, e.Choke(key), key)
		}
	}
}
