package cell

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// Refused at once with the time to come back; if overtaken in line, when the patience ends.
// Promise: `Acquire` waits no longer than its patience.
func TestAcquireIsPatientForSoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTimedDesk(t, funnel(2, 1, time.Second), nil)
		began := time.Now()
		acquire := func(patience time.Duration) (reservation, time.Duration, error) {
			r, err := d.Acquire(t.Context(), "key", 1, patience)
			return r, time.Since(began), err
		}
		require.True(t, d.Take("key", 2).Allowed)
		for _, patience := range []time.Duration{-time.Hour, 0, time.Second - 1} {
			r, end, err := acquire(patience)
			assert.ErrorIs(t, err, ErrDeadline)
			assert.NotErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, policy.Decision{Limit: 2, RetryAfter: time.Second, ResetAfter: 2 * time.Second}, r.Decision)
			assert.Zero(t, end)
			r.Cancel()
		}
		_, end, err := acquire(time.Second)
		require.NoError(t, err)
		assert.Equal(t, time.Second, end)

		// In a line of two, in turn; the third is refused at once.
		var line sync.WaitGroup
		inLine := func(check func(i int, r reservation, at time.Duration, err error)) {
			for i := range 2 {
				line.Go(func() {
					r, at, err := acquire(2 * time.Second)
					check(i, r, at, err)
				})
				synctest.Wait()
			}
		}
		inLine(func(i int, _ reservation, at time.Duration, err error) {
			assert.NoError(t, err)
			assert.Equal(t, time.Duration(2+i)*time.Second, at)
		})
		r, end, err := acquire(3*time.Second - 1)
		assert.ErrorIs(t, err, ErrDeadline)
		assert.False(t, r.Allowed)
		assert.Positive(t, r.RetryAfter)
		assert.Equal(t, time.Second, end)
		line.Wait()

		// Charged during the wait, the turn comes too late: the first has taken, the second not.
		began = time.Now()
		inLine(func(i int, r reservation, end time.Duration, err error) {
			if i == 1 {
				assert.ErrorIs(t, err, ErrDeadline)
			} else {
				assert.NoError(t, err)
			}
			assert.Equal(t, []time.Duration{time.Duration(1+i) * time.Second, end}, []time.Duration{end, r.Waited})
		})
		d.Refund("key", -5)
		line.Wait()
		assert.Equal(t, 6*time.Second, d.Peek("key").ResetAfter, "the call that gave up has taken nothing")
	})
}

// Promise: A call arriving as a window opens overtakes no line.
func TestAcquireDoesNotOvertakeTheLine(t *testing.T) {
	for _, p := range []policy.Policy{
		policy.Must(policy.FixedWindow(3, time.Second)), policy.Must(policy.AtMost(3, time.Second)), funnel(3, 3, time.Second),
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newTimedDesk(t, p, nil)
			require.True(t, d.Take("key", 3).Allowed)
			order := make(chan int, 6)
			for i := range 6 {
				go func() {
					// The call comes at the first turn, as late as can be.
					if i >= 3 {
						time.Sleep(d.Take("key", 1).RetryAfter)
						for range 50 {
							runtime.Gosched()
						}
					}
					_, err := d.Acquire(t.Context(), "key", 1, time.Minute)
					assert.NoError(t, err)
					// Calls of one turn wake in any order.
					order <- i / 3
				}()
				if i < 3 {
					synctest.Wait()
				}
			}
			for i := range 6 {
				assert.Equal(t, i/3, <-order, "%v", p)
			}
		})
	}
}

// Promise: A decision reads the clock once.
func TestClockIsReadOnceADecision(t *testing.T) {
	other := funnel(9, 1, time.Hour)
	for name, call := range map[string]func(d *desk){
		"Choke, admitted":   func(d *desk) { d.Choke("key") },
		"Choke, refused":    func(d *desk) { d.Choke("full") },
		"Choke, new":        func(d *desk) { d.Choke("new") },
		"Take":              func(d *desk) { d.Take("key", 2) },
		"Peek":              func(d *desk) { d.Peek("key") },
		"Peek of a new key": func(d *desk) { d.Peek("new") },
		"Reserve":           func(d *desk) { d.Reserve("key", 1, time.Minute) },
		"Refund":            func(d *desk) { d.Refund("key", 1) },
		"TakeWith":          func(d *desk) { d.TakeWith(other, "key", 1) },
	} {
		d := newDesk(t, funnel(2, 1, time.Hour), nil)
		require.True(t, d.Choke("key"))
		require.True(t, d.Take("full", 2).Allowed)
		d.settle()
		reads := 0
		var count func()
		count = func() {
			reads++
			d.reads = count
		}
		d.reads = count
		call(d)
		d.reads = nil
		assert.Equal(t, 1, reads, name)
	}
}
