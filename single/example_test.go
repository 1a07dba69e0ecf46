package single_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

// A limit for the whole program: bursts of 2, and one a minute in the long run.
func ExampleLimiter_Allow() {
	limiter := single.MustNew(policy.Funnel(2, 1, time.Minute))

	fmt.Println(limiter.Allow(), limiter.Allow(), limiter.Allow())
	// Output: true true false
}

// A call whose turn does not come in time is refused at once.
func ExampleLimiter_Wait() {
	limiter := single.MustNew(policy.Funnel(1, 1, time.Hour))
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()

	fmt.Println(limiter.Wait(ctx, 1))
	fmt.Println(errors.Is(limiter.Wait(ctx, 1), single.ErrDeadline))
	// Output:
	// <nil>
	// true
}

// Unused units of a reservation come back.
func ExampleLimiter_Reserve() {
	limiter := single.MustNew(policy.Funnel(10, 1, time.Hour))

	r := limiter.Reserve(8, math.MaxInt64)
	fmt.Println(r.Allowed, r.Wait, r.Remaining)
	r.Keep(3)
	fmt.Println(limiter.Peek(0).Remaining)
	// Output:
	// true 0s 2
	// 7
}
