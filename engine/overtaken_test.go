package engine

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// watched is a limit that tells when FreshAt is asked, once.
type watched struct {
	policy.Policy
	asked atomic.Pointer[func()]
}

func (w *watched) FreshAt(word uint64) policy.Instant {
	if f := w.asked.Swap(nil); f != nil {
		(*f)()
	}
	return w.Policy.FreshAt(word)
}

func (w *watched) Refund(word uint64, now policy.Instant, n int64) uint64 {
	return w.Policy.(policy.Refunder).Refund(word, now, n)
}

func (w *watched) Cancel(word, taken uint64, at, now policy.Instant, n, undone int64) uint64 {
	return w.Policy.(policy.Refunder).Cancel(word, taken, at, now, n, undone)
}

// Whoever took before a Reset, and cancels while it is under way or after it, gives
// nothing back: others have taken since what was given back to all.
func TestCancelBesideReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := &watched{Policy: funnel(5, 1, time.Hour)}
		var atClock atomic.Pointer[func()]
		e := open[string](t, Config{Policy: limit, Clock: func() policy.Instant {
			if f := atClock.Swap(nil); f != nil {
				(*f)()
			}
			return 1
		}})

		// The word has been swapped, and the Reset is not over.
		before := e.Reserve("a", 2, 0)
		require.True(t, before.Allowed)
		synctest.Wait()
		meanwhile := func() {
			require.True(t, e.Take("a", 2).Allowed)
			before.Cancel()
		}
		asked := func() { atClock.Store(&meanwhile) }
		limit.asked.Store(&asked)
		require.True(t, e.Reset("a"))
		assert.Nil(t, atClock.Load())
		assert.EqualValues(t, 3, e.Peek("a").Remaining, "those of who came after")

		// The word has not been swapped, and is as it was when it is.
		require.True(t, e.Choke("b"))
		synctest.Wait()
		asked = func() {
			before = e.Reserve("b", 2, 0)
			e.Refund("b", 2)
		}
		limit.asked.Store(&asked)
		require.True(t, e.Reset("b"))
		require.True(t, e.Take("b", 3).Allowed)
		before.Cancel()
		assert.EqualValues(t, 2, e.Peek("b").Remaining, "those of who came after")
	})
}
