package single_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

func TestCallsGivenBackLockOutNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := single.MustNew(policy.Funnel(50, 10, time.Second))
		done := make(chan struct{})
		for i := range 16 {
			go func() {
				defer func() { done <- struct{}{} }()
				time.Sleep(time.Duration(i) * 7 * time.Millisecond)
				for call := range 200 {
					g, err := l.Hold(t.Context(), limits.Call[struct{}]{N: 1})
					assert.NoError(t, err)
					assert.True(t, g.Allowed)
					time.Sleep(time.Duration(50+(i*call)%100) * time.Millisecond)
					assert.NoError(t, g.Settle(t.Context(), 0))
				}
			}()
		}
		for range 16 {
			<-done
		}
		assert.Equal(t, int64(50), l.Peek(0).Remaining)
	})
}
