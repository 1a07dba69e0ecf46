package cell

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// Promise: Calls on known keys send the writer nothing.
func TestKnownKeySendsNothing(t *testing.T) {
	d := newDesk(t, funnel(10, 1, time.Hour), nil)
	require.True(t, d.Choke("key"))
	d.settle()
	for range 100 {
		d.Choke("key")
		d.Take("key", 2)
		d.Peek("key")
		d.Refund("key", 1)
		d.TakeWith(funnel(20, 1, time.Hour), "key", 1)
		r := d.Reserve("key", 1, time.Hour)
		r.Cancel()
	}
	d.Reset("key")
	assert.Zero(t, d.queue.Len())
}

// Promise: Refused calls open no key.
// Promise: `Peek` and `Take` of 0 open no key and are not counted.
func TestRefusedCallsAndLooksOpenNoKey(t *testing.T) {
	d := newDesk(t, funnel(10, 1, time.Hour), nil)
	require.True(t, d.Choke("known"))
	d.settle()
	for _, key := range []string{"known", "new"} {
		d.Take(key, 11)
		d.Take(key, -1)
		d.Take(key, 0)
		for n := range int64(3) {
			d.Cell.Peek(key, n-1, &policy.Decision{})
		}
	}
	d.Refund("new", 5)
	d.Reset("new")
	s := d.control.Stats()
	assert.Equal(t, []uint64{1, 4}, []uint64{s.Admitted, s.Refused})
	assert.Equal(t, 1, d.Len())
	assert.Zero(t, d.queue.Len())
}

// Promise: A refused call changes nothing: at twice its rate a client gets half.
func TestClientAtTwiceTheRateGetsHalfOfItsCalls(t *testing.T) {
	d := newDesk(t, funnel(5, 10, time.Second), nil)
	passed := 0
	// The client makes 20 calls a second for 100 seconds.
	for range 2000 {
		if d.Choke("eager") {
			passed++
		}
		d.advance(50 * time.Millisecond)
	}
	// The last unit would come at second 100.
	assert.Equal(t, 5+1000-1, passed)
}

// The limit that holds already changes nothing: reservations are settled exactly.
func TestSetPolicyOfTheSameLimitChangesNothing(t *testing.T) {
	for _, make := range []func() policy.Policy{
		func() policy.Policy { return funnel(10, 1, time.Hour) },
		func() policy.Policy { return policy.Must(policy.Queue(9, 1, time.Hour)) },
		func() policy.Policy { return policy.Must(policy.FixedWindow(10, time.Hour)) },
		func() policy.Policy { return policy.Must(policy.SlidingWindow(10, time.Hour)) },
		func() policy.Policy { return policy.Must(policy.AlignedWindow(10, 24*time.Hour)) },
		func() policy.Policy { return policy.Must(policy.CalendarWindow(10, policy.Month, "Europe/Berlin")) },
		func() policy.Policy { return policy.Must(policy.AtMost(10, time.Hour)) },
	} {
		d := newDesk(t, make(), nil)
		want := d.Peek("key").Remaining - 1
		r := d.Reserve("key", 5, 24*time.Hour)
		require.True(t, r.Allowed)
		d.settle()
		d.gone = true
		require.NoError(t, d.SetPolicy(make()), "SetPolicy must not ask the writer")
		r.Keep(1)
		assert.Equal(t, want, d.Peek("key").Remaining, "%v", make())
	}
}
