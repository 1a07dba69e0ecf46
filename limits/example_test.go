package limits_test

import (
	"context"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

// serve is an adapter for any limiter.
func serve(ctx context.Context, limiter limits.Limiter[string], user string) string {
	answer, err := limiter.Admit(ctx, user, 1)
	switch {
	case err != nil:
		return "unavailable"
	case !answer.Allowed && answer.Exact():
		return fmt.Sprintf("try again in %.0f s", answer.RetryAfter.Seconds())
	case !answer.Allowed:
		return "too many requests"
	}
	return "served"
}

func ExampleLimiter() {
	limiter, err := engine.New[string](engine.Config{Policy: policy.Must(policy.FixedWindow(1, time.Minute))})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()
	fmt.Println(serve(context.Background(), limiter, "alice"))
	fmt.Println(serve(context.Background(), limiter, "alice"))
	// Output:
	// served
	// try again in 60 s
}

// An estimate is taken first, and settled when the cost is known.
func ExampleGrant_Settle() {
	tokens := limits.ForAnyKey[string](single.MustNew(policy.FixedWindow(1000, time.Hour)))
	ctx := context.Background()
	grant, err := tokens.Hold(ctx, limits.Call[string]{Key: "any", N: 500})
	if err != nil || !grant.Allowed {
		return
	}
	if err := grant.Settle(ctx, 320); err != nil {
		fmt.Println(err)
	}
	left, _ := tokens.Admit(ctx, "any", 0)
	fmt.Println(left.Remaining, "left")
	// Output: 680 left
}

// An address in process and a tenant elsewhere, in a single decision.
func ExampleAskAll() {
	addresses, _ := engine.New[string](engine.Config{Policy: policy.Must(policy.FixedWindow(100, time.Minute))})
	defer addresses.Close()
	tenants, _ := engine.New[string](engine.Config{Policy: policy.Must(policy.FixedWindow(5, time.Minute))}) // or a fleet.Limiter
	defer tenants.Close()
	out, err := limits.AskAll(context.Background(), 0,
		limits.NewClaim(addresses, limits.Call[string]{Key: "192.0.2.1", N: 1}),
		limits.NewClaim(tenants, limits.Call[string]{Key: "acme", N: 9}),
	)
	fmt.Println(out.Allowed, out.Binding, err)
	fmt.Println(limits.Explain(context.Background(), addresses, "192.0.2.1"))
	// Output:
	// false 1 <nil>
	// ral: At most 100 in each window of 1m, which begins with the first call. 0 of 100 used. A call is admitted. <nil>
}
