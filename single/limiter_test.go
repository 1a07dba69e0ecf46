package single_test

import (
	"context"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

func funnel(capacity, count int64, per time.Duration) policy.Policy {
	return policy.Must(policy.Funnel(capacity, count, per))
}

func open(t testing.TB, p policy.Policy, more ...single.Option) *single.Limiter {
	return must.Get(single.New(p, more...))
}

// Promise: The zero `Limiter` refuses every call at once.
func TestZeroLimiterRefuses(t *testing.T) {
	var l single.Limiter
	never := policy.Decision{RetryAfter: policy.Never}
	assert.Equal(t, never, must.Get(l.Admit(t.Context(), struct{}{}, 1)).Decision)
	assert.False(t, l.Choke())
	assert.False(t, l.Allow())
	for _, n := range []int64{-1, 0, 1} {
		assert.Equal(t, never, l.Take(n))
		assert.Equal(t, never, l.Refund(n))
		assert.Equal(t, never, l.Reserve(n, time.Hour).Decision)
		assert.ErrorIs(t, l.Wait(t.Context(), n), single.ErrNever)
		r, err := l.Acquire(t.Context(), n, time.Hour)
		assert.ErrorIs(t, err, single.ErrNever)
		assert.Equal(t, never, r.Decision)
		r.Cancel()
	}
	assert.Equal(t, never, l.Peek(0))
	assert.False(t, l.Reset())
	assert.Nil(t, l.Limit())
	var refused *policy.FieldError
	assert.ErrorAs(t, l.SetPolicy(funnel(1, 1, time.Second)), &refused)
	assert.False(t, l.Choke())
}

func TestNewRefuses(t *testing.T) {
	limit := funnel(1, 1, time.Second)
	for want, refused := range map[string]func() (*single.Limiter, error){
		"ral: single.New: policy is nil, want a policy, such as policy.Funnel returns": func() (*single.Limiter, error) { return single.New(nil) },
		"ral: single.New: more is nil, want an option, such as MaxWaiting returns":     func() (*single.Limiter, error) { return single.New(limit, nil) },
		"ral: single.MaxWaiting: n is 0, want 1 or more":                               func() (*single.Limiter, error) { return single.New(limit, single.MaxWaiting(0)) },
		"ral: single.Clock: now is nil, want a function":                               func() (*single.Limiter, error) { return single.New(limit, single.Clock(nil)) },
	} {
		l, err := refused()
		assert.Nil(t, l)
		assert.EqualError(t, err, want)
	}
	assert.Panics(t, func() { single.MustNew(policy.Funnel(0, 1, time.Second)) })
	assert.Panics(t, func() { single.MustNew(nil, nil) })
	assert.True(t, single.MustNew(policy.Funnel(1, 1, time.Second)).Choke())
}

func TestErrorsAreTheEngines(t *testing.T) {
	assert.Same(t, engine.ErrNever, single.ErrNever)
	assert.Same(t, engine.ErrDeadline, single.ErrDeadline)
	assert.Same(t, engine.ErrCrowded, single.ErrCrowded)
	assert.Same(t, engine.ErrCancelled, single.ErrCancelled)
}

// Promise: Verbs that need not wait allocate nothing.
func TestVerbsAllocateNothing(t *testing.T) {
	if testenv.Race {
		t.Skip("the race detector allocates")
	}
	ctx := context.Background()
	passing, refused := open(t, funnel(1_000_000, 1, time.Second)), open(t, funnel(1, 1, time.Hour))
	require.True(t, refused.Choke())
	for name, call := range map[string]func(){
		"Choke, admitted":  func() { passing.Choke() },
		"Choke, refused":   func() { refused.Choke() },
		"Allow":            func() { passing.Allow() },
		"Take, admitted":   func() { passing.Take(2) },
		"Take, refused":    func() { refused.Take(1) },
		"Take, never":      func() { refused.Take(-1) },
		"Peek":             func() { passing.Peek(0) },
		"Wait":             func() { _ = passing.Wait(ctx, 1) },
		"Refund":           func() { passing.Refund(1) },
		"Refund, charge":   func() { passing.Refund(-1) },
		"Reserve, refused": func() { refused.Reserve(1, 0) },
		"Reset":            func() { passing.Reset() },
		"Limit":            func() { passing.Limit() },
		"Admit":            func() { _, _ = passing.Admit(ctx, struct{}{}, 1) },
		"Hold, Settle": func() {
			g, _ := passing.Hold(ctx, limits.Call[struct{}]{N: 3})
			_ = g.Settle(ctx, 1)
		},
		"Reserve, Cancel": func() {
			r := passing.Reserve(2, time.Hour)
			r.Cancel()
		},
		"Reserve, Cancel after another": func() {
			r := passing.Reserve(2, time.Hour)
			passing.Choke()
			r.Cancel()
		},
		"Acquire, Keep": func() {
			r, _ := passing.Acquire(ctx, 2, time.Hour)
			r.Keep(1)
		},
	} {
		assert.Zero(t, testing.AllocsPerRun(1000, call), name)
	}
}

// A bubble does not end while a goroutine is left.
//
// Promise: A `Limiter` starts no goroutine and needs no `Close`.
func TestStartsNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			l := open(t, funnel(1, 1, time.Second))
			require.True(t, l.Choke())
			require.NoError(t, l.SetPolicy(funnel(1, 2, time.Second)))
			require.NoError(t, l.Wait(t.Context(), 1))
		}
	})
}

// Promise: Racing calls pass exactly to the limit.
func TestIsExactUnderContention(t *testing.T) {
	const callers, capacity = 64, 1000
	clock := &handClock{}
	l := open(t, funnel(capacity, capacity, time.Hour), single.Clock(clock.Now))
	for range 20 {
		var admitted atomic.Int64
		together(callers, func(i int) {
			for j := range 50 {
				var got bool
				switch (i + j) % 4 {
				case 0:
					got = l.Choke()
				case 1:
					got = l.Take(1).Allowed
				case 2:
					got = l.Reserve(1, 0).Allowed
				case 3:
					_, err := l.Acquire(context.Background(), 1, 0)
					got = err == nil
				}
				if got {
					admitted.Add(1)
				}
			}
		})
		require.EqualValues(t, capacity, admitted.Load())
		clock.now.Add(int64(time.Hour))
	}
}

// together runs f on n goroutines that start together, and waits.
func together(n int, f func(i int)) {
	var start, done sync.WaitGroup
	start.Add(1)
	for i := range n {
		done.Go(func() {
			start.Wait()
			f(i)
		})
	}
	start.Done()
	done.Wait()
}

// Takes with Cancel, Keep, Refund or charges: the units used in the end are missing, no others.
//
// Promise: Returns lose no other call's units and return nothing twice.
func TestGivingBackIsExactUnderContention(t *testing.T) {
	const callers, capacity = 32, 1 << 17
	for name, limit := range map[string]policy.Policy{
		"funnel": funnel(capacity, 1, time.Hour), "fixed window": policy.Must(policy.FixedWindow(capacity, time.Hour)),
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, limit, single.Clock(new(handClock).Now))
			var used atomic.Int64
			together(callers, func(i int) {
				for j := range 300 / testenv.RaceSlowdown {
					n := int64(1 + (i+j)%7)
					r := l.Reserve(n, 0)
					assert.True(t, r.Allowed)
					if i%2 == 0 {
						// Other calls may take in between.
						runtime.Gosched()
					}
					switch j % 5 {
					case 0:
						r.Cancel()
						r.Cancel()
						n = 0
					case 1:
						r.Keep(1)
						n = 1
					case 2:
						l.Refund(n)
						n = 0
					case 3:
						l.Refund(-n)
						n *= 2
					}
					used.Add(n)
				}
			})
			left := l.Peek(0).Remaining
			if name == "funnel" {
				// Others may have refunded these units, so some of a cancelled take may stay.
				assert.LessOrEqual(t, left, capacity-used.Load())
				return
			}
			assert.Equal(t, capacity-used.Load(), left)
		})
	}
}

// The limit alternates between one rate and half of it. Each round admits exactly as much as both
// allow.
//
// Promise: `SetPolicy` is exact while calls run.
func TestIsExactWhileThePolicyChanges(t *testing.T) {
	const callers, rounds, capacity = 16, 30, 100
	for name, limits := range map[string][2]policy.Policy{
		"funnel":       {funnel(capacity, capacity, time.Second), funnel(capacity, capacity, 2*time.Second)},
		"fixed window": {policy.Must(policy.FixedWindow(capacity, time.Hour)), policy.Must(policy.FixedWindow(capacity, time.Hour))},
		"at most":      {policy.Must(policy.AtMost(capacity, time.Hour)), policy.Must(policy.AtMost(capacity, time.Hour))},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &handClock{}
			l := open(t, limits[0], single.Clock(clock.Now))
			for range rounds {
				var admitted atomic.Int64
				together(callers, func(i int) {
					for j := range 2 * capacity {
						if i == 0 {
							assert.NoError(t, l.SetPolicy(limits[(j+1)%2]))
						}
						if i%2 == 0 && l.Choke() || i%2 == 1 && l.Take(1).Allowed {
							admitted.Add(1)
						}
						if j%8 == 0 {
							runtime.Gosched()
						}
					}
				})
				assert.EqualValues(t, capacity, admitted.Load())
				clock.now.Add(int64(3 * time.Hour))
			}
		})
	}
}

// The limiter on the counter drains after the first limiter on package time and before the last.
func TestClocksAgreeWithinMicroseconds(t *testing.T) {
	byPackageTime := func() *single.Limiter { return open(t, funnel(1, 1, time.Hour), single.PackageTime()) }
	before, counter, after := byPackageTime(), open(t, funnel(1, 1, time.Hour)), byPackageTime()
	for _, l := range []*single.Limiter{before, counter, after} {
		require.True(t, l.Choke())
	}
	for range 10_000 {
		latest := after.Peek(0).ResetAfter
		left := counter.Peek(0).ResetAfter
		earliest := before.Peek(0).ResetAfter
		require.LessOrEqual(t, left, latest+2*time.Microsecond)
		require.GreaterOrEqual(t, left, earliest-2*time.Microsecond)
	}
}

// Promise: `go vet` finds copies of a `Limiter`.
func TestVetFindsCopies(t *testing.T) {
	out, err := exec.Command("go", "vet", "./testdata/copied").CombinedOutput()
	assert.Error(t, err)
	assert.Contains(t, string(out), "assignment copies lock value")
}

// Earlier reservations are settled exactly.
func TestSetPolicyOfTheSameLimitChangesNothing(t *testing.T) {
	l := single.MustNew(policy.Funnel(10, 1, time.Hour))
	r := l.Reserve(5, 0)
	require.NoError(t, l.SetPolicy(policy.Must(policy.Funnel(10, 1, time.Hour))))
	r.Keep(1)
	require.EqualValues(t, 9, l.Peek(0).Remaining)
}
