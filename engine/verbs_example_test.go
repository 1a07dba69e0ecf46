package engine_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

// A refused call learns how long to wait.
func ExampleEngine_Take() {
	limiter, _ := engine.New[string](engine.Config{
		Policy: policy.Must(policy.Funnel(100, 1, time.Hour)),
	})
	defer limiter.Close()

	d := limiter.Take("tenant", 60)
	fmt.Println(d.Allowed, d.Remaining)
	d = limiter.Take("tenant", 41)
	fmt.Println(d.Allowed, d.Remaining, d.RetryAfter.Round(time.Minute))
	d = limiter.Take("tenant", 101)
	fmt.Println(d.Allowed, d.RetryAfter == policy.Never)
	// Output:
	// true 40
	// false 40 1h0m0s
	// false true
}

func ExampleEngine_Wait() {
	limiter, _ := engine.New[string](engine.Config{
		Policy: policy.Must(policy.Funnel(1, 100, time.Second)),
	})
	defer limiter.Close()

	start := time.Now()
	for range 3 {
		if err := limiter.Wait(context.Background(), "client", 1); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(time.Since(start) >= 20*time.Millisecond)

	// A call that could not be served in time returns at once.
	// The charge takes ten minutes to drain.
	limiter.Refund("client", -60_000)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println(errors.Is(limiter.Wait(ctx, "client", 1), engine.ErrDeadline))
	fmt.Println(limiter.Wait(ctx, "client", 2))
	// Output:
	// true
	// true
	// ral: the limit never allows this call: 2 of at most 1
}

// A reservation takes units now for later use, and can be cancelled. The example's clock keeps the
// figures even.
func ExampleEngine_Reserve() {
	limiter, _ := engine.New[string](engine.Config{
		Policy: policy.Must(policy.Funnel(2, 1, time.Second)),
		Clock:  func() policy.Instant { return 0 },
	})
	defer limiter.Close()

	limiter.Take("client", 2)
	r := limiter.Reserve("client", 1, time.Minute)
	fmt.Println(r.Allowed, r.Wait)
	other := limiter.Reserve("client", 1, time.Second)
	fmt.Println(other.Allowed, other.RetryAfter)
	r.Cancel()
	other = limiter.Reserve("client", 1, time.Second)
	fmt.Println(other.Allowed, other.Wait)
	// Output:
	// true 1s
	// false 1s
	// true 1s
}

// Wait for a turn, with bounded patience, and give back the rest.
func ExampleEngine_Acquire() {
	limiter, _ := engine.New[string](engine.Config{
		Policy: policy.Must(policy.Funnel(10, 1, time.Hour)),
	})
	defer limiter.Close()

	ctx := context.Background()
	r, err := limiter.Acquire(ctx, "client", 10, time.Second)
	fmt.Println(r.Allowed, err)
	_, err = limiter.Acquire(ctx, "client", 1, time.Second)
	fmt.Println(errors.Is(err, engine.ErrDeadline))
	r.Keep(4)
	fmt.Println(limiter.Peek("client", 0).Remaining)
	// Output:
	// true <nil>
	// true
	// 6
}

func ExampleAcquireAll() {
	hosts, _ := engine.New[netip.Addr](engine.Config{Policy: policy.Must(policy.Funnel(10, 1, time.Hour))})
	defer hosts.Close()
	users, _ := engine.New[string](engine.Config{Policy: policy.Must(policy.Funnel(2, 20, time.Second))})
	defer users.Close()

	for range 3 {
		out, err := engine.AcquireAll(context.Background(), time.Second, hosts.Claim(netip.MustParseAddr("192.0.2.1"), 1), users.Claim("alice", 1))
		fmt.Println(out.Allowed, err)
	}
	// Output:
	// true <nil>
	// true <nil>
	// true <nil>
}

// Take the estimate first, and correct it when the cost is known.
func ExampleEngine_Refund() {
	limiter, _ := engine.New[string](engine.Config{
		Policy: policy.Must(policy.Funnel(1000, 1, time.Hour)),
	})
	defer limiter.Close()

	fmt.Println(limiter.Take("tenant", 600).Remaining)
	// 350 units remained before.
	fmt.Println(limiter.Refund("tenant", 250).Remaining)
	fmt.Println(limiter.Take("tenant", 600).Remaining)
	// 700 units remained before.
	fmt.Println(limiter.Refund("tenant", -100).Remaining)
	fmt.Println(limiter.Choke("tenant"))
	// Output:
	// 400
	// 650
	// 50
	// 0
	// false
}

func ExampleEngine_TakeWith() {
	free, paid := policy.Must(policy.Funnel(2, 1, time.Minute)), policy.Must(policy.Funnel(20, 10, time.Minute))
	limiter, _ := engine.New[string](engine.Config{Policy: free})
	defer limiter.Close()

	fmt.Println(limiter.TakeWith(paid, "customer", 15).Allowed)
	fmt.Println(limiter.TakeWith(free, "guest", 2).Allowed)
	fmt.Println(limiter.TakeWith(free, "guest", 1).Allowed)
	// Output:
	// true
	// true
	// false
}

func ExampleEngine_SetPolicy() {
	limiter, _ := engine.New[string](engine.Config{
		Policy: policy.Must(policy.Funnel(10, 1, time.Hour)),
	})
	defer limiter.Close()

	fmt.Println(limiter.Take("client", 8).Remaining)
	if err := limiter.SetPolicy(policy.Must(policy.Funnel(30, 1, time.Hour))); err != nil {
		fmt.Println(err)
	}
	fmt.Println(limiter.Peek("client", 0).Remaining)
	// Output:
	// 2
	// 22
}

// By address and by user, from both or from none.
func ExampleTakeAll() {
	addresses, _ := engine.New[netip.Addr](engine.Config{Policy: policy.Must(policy.Funnel(100, 1, time.Second))})
	users, _ := engine.New[string](engine.Config{Policy: policy.Must(policy.Funnel(3, 1, time.Hour))})
	defer addresses.Close()
	defer users.Close()

	from, user := addresses.Claim(netip.MustParseAddr("2001:db8::17"), 2), users.Claim("alice", 2)
	fmt.Println(engine.TakeAll(from, user).Allowed)
	out := engine.TakeAll(from, user)
	fmt.Println(out.Allowed, out.Binding, out.RetryAfter.Round(time.Hour))
	fmt.Println(users.Peek("alice", 0).Remaining)
	// Output:
	// true
	// false 1 1h0m0s
	// 1
}

func ExampleEngine_Block() {
	limiter, _ := engine.New[string](engine.Config{
		Policy: policy.Must(policy.Funnel(100, 10, time.Second)),
	})
	defer limiter.Close()

	if err := limiter.Block("192.0.2.7", time.Hour); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(limiter.Choke("192.0.2.7"), limiter.Take("192.0.2.7", 1).RetryAfter.Round(time.Minute))
	fmt.Println(limiter.Choke("192.0.2.8"))
	for client, left := range limiter.AllBlocked() {
		fmt.Println(client, left.Round(time.Minute), limiter.Blocked(client) > 59*time.Minute)
	}
	limiter.Reset("192.0.2.7")
	fmt.Println(limiter.Choke("192.0.2.7"))
	// Output:
	// false 1h0m0s
	// true
	// 192.0.2.7 1h0m0s true
	// true
}

// The third refusal within a minute blocks a client for a minute, then for two, and so on up to an
// hour.
func ExamplePenalty() {
	limiter, err := engine.New[string](engine.Config{
		Policy: policy.Must(policy.Funnel(1, 1, time.Hour)),
		Penalty: engine.Penalty{
			Refusals: 3,
			Within:   time.Minute,
			For:      time.Minute,
			Max:      time.Hour,
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()

	for range 4 {
		fmt.Println(limiter.Choke("192.0.2.7"), limiter.Blocked("192.0.2.7").Round(time.Minute))
	}
	// Output:
	// true 0s
	// false 0s
	// false 0s
	// false 1m0s
}
