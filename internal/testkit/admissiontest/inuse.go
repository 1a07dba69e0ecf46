package admissiontest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func inFlight(n int64) policy.Policy { return policy.Must(policy.InFlight(n, time.Minute)) }

func chargeOf(request *Request) int64 { return request.Charge }

// within serves a request of the key "all", and calls during while it is served.
func (d *door) within(during func()) limits.Verdict {
	d.t.Helper()
	return d.serve(context.Background(), Request{Key: "all", Cost: 1, Charge: 1, Serve: during})
}

func unitsInUse(t *testing.T, open Open) {
	for _, way := range ways {
		for name, options := range map[string]Options{
			"alone": {}, "charged": {Charge: chargeOf}, "shadow": {Shadow: true}, "waits": {WaitUpTo: time.Nanosecond},
		} {
			synctest.Test(t, func(t *testing.T) {
				limiter := NewEngine[string](t, inFlight(2))
				door := newDoor(t, open, options, inWay(t, way, Limit{Limiter: limiter})...)
				for range 3 {
					first := door.within(func() {
						assert.EqualValues(t, 1, left(limiter, "all"), "%s, %s", way, name)
						door.within(func() {
							assert.EqualValues(t, 0, left(limiter, "all"), "%s, %s", way, name)
							third := door.within(nil)
							assert.Equal(t, limits.OverLimit, third.Reason, "%s, %s", way, name)
							assert.Equal(t, "limit", third.Limit)
						})
						assert.EqualValues(t, 1, left(limiter, "all"), "%s, %s", way, name)
					})
					assert.Equal(t, limits.Admitted, first.Reason)
					assert.EqualValues(t, 2, left(limiter, "all"), "%s, %s", way, name)
				}
				assert.Zero(t, limiter.Stats().Overstayed)
			})
		}
		synctest.Test(t, func(t *testing.T) {
			limiter := NewEngine[string](t, inFlight(2))
			panics := func(*Request) int64 { panic("as asked") }
			door := newDoor(t, open, Options{}, inWay(t, way, Limit{Limiter: limiter, Charge: panics})...)
			assert.PanicsWithValue(t, "as asked", func() { door.within(nil) })
			assert.EqualValues(t, 2, left(limiter, "all"), "%s: a panic of Charge", way)
		})
	}
	// The limit is tried beside others.
	synctest.Test(t, func(t *testing.T) {
		for _, charged := range []func(request *Request) int64{nil, chargeOf} {
			limiter := NewEngine[string](t, inFlight(1))
			door := newDoor(t, open, Options{Charge: charged}, Limit{Name: "live", Limiter: Hourly[string](t, 100)}, Limit{Limiter: limiter, Shadow: true})
			for range 2 {
				first := door.within(func() {
					assert.Zero(t, left(limiter, "all"))
					second := door.within(nil)
					assert.Equal(t, []string{"limit"}, second.Shadowed)
				})
				assert.Empty(t, first.Shadowed)
				assert.EqualValues(t, 1, left(limiter, "all"))
			}
		}
	})
}

// Limiters hide their limit from an adapter in different ways.
func unitsInUseOfEveryLimiter(t *testing.T, open Open) {
	synctest.Test(t, func(t *testing.T) {
		limiter, rate := NewEngine[string](t, inFlight(1)), Hourly[string](t, 100)
		tiered, err := engine.NewTiered[string](engine.Config{Policy: inFlight(50)}, inFlight(1))
		require.NoError(t, err)
		defer func() { assert.NoError(t, tiered.Close()) }()
		live, err := limits.NewTrial(limits.TrialConfig[string]{Live: limiter, Candidate: NewEngine[string](t, inFlight(1))})
		require.NoError(t, err)
		candidate := NewEngine[string](t, inFlight(1))
		tried, err := limits.NewTrial(limits.TrialConfig[string]{Live: rate, Candidate: candidate})
		require.NoError(t, err)
		plan := func(request *Request) policy.Policy { return request.Plan }
		for name, limit := range map[string]Limit{
			"live":     {Limiter: live},
			"hidden":   {Limiter: Remote[string](limiter)},
			"any key":  {Limiter: limits.ForAnyKey[string](NewEngine[struct{}](t, inFlight(1)))},
			"tiered":   {Limiter: tiered},
			"Brief":    {Limiter: limiter, PolicyFor: plan},
			"two keys": {Limiter: limiter, Key: func(*Request) string { return "other" }},
		} {
			for _, all := range [][]Limit{{limit}, {{Name: "rate", Limiter: rate}, limit}} {
				door := newDoor(t, open, Options{}, all...)
				for range 2 {
					first := door.within(func() {
						second := door.within(nil)
						assert.Equal(t, limits.OverLimit, second.Reason, name)
						assert.LessOrEqual(t, second.RetryAfter, time.Second, name)
						assert.GreaterOrEqual(t, second.RetryAfter, time.Second/2, name)
					})
					assert.Equal(t, limits.Admitted, first.Reason, name)
				}
			}
		}
		door := newDoor(t, open, Options{}, Limit{Limiter: tried})
		door.within(func() { assert.Zero(t, left(candidate, "all")) })
		assert.EqualValues(t, 1, left(candidate, "all"), "a candidate")

		limiter = NewEngine[string](t, inFlight(3))
		door = newDoor(t, open, Options{}, Limit{Limiter: limiter, PolicyFor: plan})
		door.serve(context.Background(), Request{Key: "all", Plan: inFlight(1), Serve: func() {
			verdict := door.serve(context.Background(), Request{Key: "all", Plan: inFlight(1)})
			assert.Equal(t, limits.OverLimit, verdict.Reason)
			assert.Equal(t, limits.Admitted, door.within(nil).Reason)
		}})
		assert.EqualValues(t, 3, left(limiter, "all"), "a plan")
	})
}

func unitsInUseTellGuess(t *testing.T, open Open) {
	for _, way := range ways {
		synctest.Test(t, func(t *testing.T) {
			limiter := NewEngine[string](t, inFlight(1))
			door := newDoor(t, open, Options{Spread: time.Hour}, inWay(t, way, Limit{Limiter: limiter})...)
			told := map[time.Duration]bool{}
			door.within(func() {
				for range 100 {
					verdict := door.within(nil)
					assert.GreaterOrEqual(t, verdict.RetryAfter, time.Second/2, way)
					assert.LessOrEqual(t, verdict.RetryAfter, time.Second, way)
					assert.LessOrEqual(t, verdict.Decision.ResetAfter, time.Second, way)
					told[verdict.RetryAfter] = true
				}
				assert.Greater(t, len(told), 50, "%s: they come back at different times", way)
				time.Sleep(time.Minute + time.Minute/8 - 10*time.Millisecond)
				assert.LessOrEqual(t, door.within(nil).RetryAfter, 10*time.Millisecond, "%s: the unit ends by itself", way)

				require.NoError(t, limiter.Block("all", time.Hour))
				verdict := door.within(nil)
				assert.Equal(t, limits.OverLimit, verdict.Reason, way)
				// A mixed list hides that a block refuses.
				if way != "mixed" {
					assert.Greater(t, verdict.RetryAfter, 59*time.Minute, "%s: a block is no guess", way)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		for _, hide := range []func(limits.Limiter[string]) limits.Limiter[string]{
			func(limiter limits.Limiter[string]) limits.Limiter[string] { return limiter }, Remote[string],
		} {
			limiter := NewEngine[string](t, inFlight(1))
			rate := NewEngine[string](t, policy.Must(policy.FixedWindow(1, 10*time.Second)))
			door := newDoor(t, open, Options{}, Limit{Limiter: hide(limiter)}, Limit{Name: "rate", Limiter: rate})
			door.within(func() {
				verdict := door.within(nil)
				assert.Equal(t, "rate", verdict.Limit, "the unit may end sooner than its longest time")
				assert.Equal(t, 10*time.Second, verdict.RetryAfter.Round(time.Second))
			})
		}
	})
}
