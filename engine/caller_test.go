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

// Promise: Calls on known keys send the writer nothing.
func TestKnownKeySendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		received := 0
		e := open[string](t, Config{
			Policy: funnel(10, 1, time.Hour), Idle: 1000 * time.Hour,
			fault: func(point string) {
				if point == "writer: received" {
					received++
				}
			},
		})
		require.True(t, e.Choke("key"))
		synctest.Wait()
		before := received
		for range 100 {
			e.Choke("key")
			e.Take("key", 2)
			e.Peek("key", 0)
			e.Refund("key", 1)
			e.TakeWith(funnel(20, 1, time.Hour), "key", 1)
			r := e.Reserve("key", 1, time.Hour)
			r.Cancel()
		}
		e.Reset("key")
		synctest.Wait()
		assert.Equal(t, before, received)
	})
}

// Promise: Refused calls open no key.
func TestRefusedCallOpensNoKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(10, 1, time.Hour)})
		e.Take("key", 11)
		e.Take("key", -1)
		e.Take("key", 0)
		e.Peek("key", 0)
		e.Refund("key", 5)
		e.Reset("key")
		synctest.Wait()
		assert.Zero(t, e.Len())
		assert.Zero(t, e.Stats().Evicted)
	})
}

// Promise: A decision reads the clock once.
func TestClockIsReadOnceADecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		e := open[string](t, Config{
			Policy: funnel(2, 1, time.Hour), Idle: 1000 * time.Hour,
			Clock: func() policy.Instant { return policy.Instant(reads.Add(1)) },
		})
		other := funnel(9, 1, time.Hour)
		for name, call := range map[string]func(){
			"Choke, refused or not": func() { e.Choke("key") },
			"Take":                  func() { e.Take("key", 2) },
			"Peek":                  func() { e.Peek("key", 0) },
			"Peek of a new key":     func() { e.Peek("new", 0) },
			"Reserve":               func() { e.Reserve("key", 1, time.Minute) },
			"Refund":                func() { e.Refund("key", 1) },
			"TakeWith":              func() { e.TakeWith(other, "key", 1) },
		} {
			e.Choke("key")
			synctest.Wait()
			before := reads.Load()
			call()
			assert.EqualValues(t, 1, reads.Load()-before, name)
		}
		before := reads.Load()
		e.Choke("new")
		assert.EqualValues(t, 1, reads.Load()-before, "a new key")
		synctest.Wait()
	})
}

func TestPolicyForPanicsInItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openFor(t, Config{Policy: funnel(1, 1, time.Hour)}, func(key string) policy.Policy {
			if key == "bad" {
				panic("no such plan")
			}
			return nil
		})
		for range 100 {
			assert.PanicsWithValue(t, "no such plan", func() { e.Choke("bad") })
			assert.PanicsWithValue(t, "no such plan", func() { _ = e.Wait(t.Context(), "bad", 1) })
		}
		assert.True(t, e.Choke("good"))
		assert.False(t, e.Choke("good"))
		synctest.Wait()
		require.NoError(t, e.Health())
		assert.Zero(t, e.Stats().Restarts)
		assert.Equal(t, 1, e.Len())
	})
}
