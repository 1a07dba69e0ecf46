package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Under each limit. Without the memory of takes each call would cost the key its duration.
//
// Promise: Grants settled with 0 lock out no other call.
func TestCallsGivenBackLockOutNoOthers(t *testing.T) {
	for _, text := range []string{
		"funnel 50, 10/s", "window 50/s", "sliding 50/s", "at most 50/s", "window 50/m aligned",
	} {
		synctest.Test(t, func(t *testing.T) {
			e, err := engine.New[string](engine.Config{Policy: policy.Must(policy.Parse(text))})
			require.NoError(t, err)
			defer e.Close()
			full := e.Peek("key", 0).Remaining
			const callers = 16
			done := make(chan int)
			for i := range callers {
				go func() {
					refused := 0
					time.Sleep(time.Duration(i) * 7 * time.Millisecond)
					for call := range 200 {
						g, err := e.Hold(t.Context(), limits.Call[string]{Key: "key", N: 1})
						assert.NoError(t, err)
						if !g.Allowed {
							refused++
						}
						time.Sleep(time.Duration(50+(i*call)%100) * time.Millisecond)
						assert.NoError(t, g.Settle(t.Context(), 0))
					}
					done <- refused
				}()
			}
			refused := 0
			for range callers {
				refused += <-done
			}
			assert.Zero(t, refused, text)
			assert.Equal(t, full, e.Peek("key", 0).Remaining, text)
		})
	}
}
