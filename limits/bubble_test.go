package limits_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// Promise: In a synctest bubble limits, waiting calls and windows of a calendar are exact.
func TestBubbleIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		funnel := must.Get(engine.New[string](engine.Config{Policy: policy.Must(policy.Funnel(1, 1, time.Hour))}))
		defer func() { assert.NoError(t, funnel.Close()) }()
		days := must.Get(engine.New[string](engine.Config{Policy: policy.Must(policy.CalendarWindow(1, policy.Day, "UTC"))}))
		defer func() { assert.NoError(t, days.Close()) }()
		began := time.Now()
		assert.True(t, funnel.Allow("anna"))
		assert.Equal(t, time.Hour, funnel.Peek("anna", 1).RetryAfter)
		assert.NoError(t, funnel.Wait(t.Context(), "anna", 1))
		assert.Equal(t, time.Hour, time.Since(began))
		assert.True(t, days.Allow("anna"))
		assert.Equal(t, 23*time.Hour, days.Peek("anna", 1).RetryAfter)
	})
}
