package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// redis starts a Redis for an example; yours runs already.
func redis() (address string, stop func()) {
	s, err := redistest.Open(redistest.Options{})
	if err != nil {
		panic(err)
	}
	return s.Addr(), func() { _ = s.Close() }
}

// open opens a limiter of the Redis at the address.
func open(address string, c fleet.Config) *fleet.Limiter {
	c.Redis = rueidis.ClientOption{InitAddress: []string{address}}
	c.Budget = time.Second
	l, err := fleet.New(c)
	if err != nil {
		panic(err)
	}
	return l
}

func Example() {
	address, stop := redis()
	defer stop()

	// Each user: bursts of 3, and one a minute in the long run, over all servers.
	limiter, err := fleet.New(fleet.Config{
		Name:   "log-in",
		Policy: policy.Must(policy.Funnel(3, 1, time.Minute)),
		Redis:  rueidis.ClientOption{InitAddress: []string{address}},
		// With a second the example says the same on any machine.
		Budget: time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()

	for range 4 {
		answer, err := limiter.Take(context.Background(), "alice", 1)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(answer.Allowed, answer.Remaining, answer.Source())
	}
	// Output:
	// true 2 exact
	// true 1 exact
	// true 0 exact
	// false 0 exact
}

// Without Redis, each server keeps its share. It begins as Redis last said: 4 of 10 are used, and
// so are 2 of each server's 5.
func Example_outage() {
	address, stop := redis()
	limiter := open(address, fleet.Config{Name: "api", Policy: policy.Must(policy.FixedWindow(10, time.Hour)), Servers: 2})
	defer limiter.Close()

	for call := range 8 {
		if call == 4 {
			stop()
		}
		answer, _ := limiter.Take(context.Background(), "alice", 1)
		fmt.Println(answer.Allowed, answer.Remaining, answer.Source())
	}
	// Output:
	// true 9 exact
	// true 8 exact
	// true 7 exact
	// true 6 exact
	// true 2 local
	// true 1 local
	// true 0 local
	// false 0 local
}

// An operator refuses a key on all servers for an hour.
func ExampleLimiter_Block() {
	address, stop := redis()
	defer stop()
	c := fleet.Config{Name: "api", Policy: policy.Must(policy.Funnel(10, 1, time.Hour))}
	one, another := open(address, c), open(address, c)
	defer one.Close()
	defer another.Close()
	ctx := context.Background()

	if err := one.Block(ctx, "mallory", time.Hour); err != nil {
		fmt.Println(err)
	}
	answer, _ := another.Take(ctx, "mallory", 1)
	fmt.Println(answer.Allowed, errors.Is(answer.Err(), limits.ErrBlocked), answer.RetryAfter.Round(time.Hour))
	// Reset lifts the block.
	if _, err := another.Reset(ctx, "mallory"); err != nil {
		fmt.Println(err)
	}
	fmt.Println(one.Choke(ctx, "mallory"))
	// Output:
	// false true 1h0m0s
	// true
}

// All or nothing over several limits. They share a client, and in a cluster a Tag.
func ExampleTakeAll() {
	address, stop := redis()
	defer stop()
	byAddress := open(address, fleet.Config{Name: "by-address", Tag: "api", Policy: policy.Must(policy.Funnel(2, 1, time.Hour))})
	defer byAddress.Close()
	byUser, err := fleet.New(fleet.Config{Name: "by-user", Tag: "api", Policy: policy.Must(policy.FixedWindow(5, time.Hour)), Via: byAddress, Budget: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer byUser.Close()

	for range 3 {
		out, err := fleet.TakeAll(context.Background(), byAddress.Claim("192.0.2.1", 1), byUser.Claim("alice", 1))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(out.Allowed, out.Binding, out.Answers[1].Remaining)
	}
	// Output:
	// true 0 4
	// true 0 3
	// false 0 3
}

// The cost of a request is known afterwards: take the estimate, and give the rest back.
func ExampleReservation_Keep() {
	address, stop := redis()
	defer stop()
	limiter := open(address, fleet.Config{Name: "tokens", Policy: policy.Must(policy.FixedWindow(10_000, time.Hour))})
	defer limiter.Close()

	ctx := context.Background()
	r, err := limiter.Acquire(ctx, "alice", 4000, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Allowed, r.Remaining)
	if err := r.Keep(ctx, 1500); err != nil {
		fmt.Println(err)
		return
	}
	answer, err := limiter.Peek(ctx, "alice", 0)
	fmt.Println(answer.Remaining, err)
	// Output:
	// true 6000
	// 8500 <nil>
}

// The exact log: a unit taken an hour ago counts no more.
func ExampleSlidingLog() {
	address, stop := redis()
	defer stop()
	limiter := open(address, fleet.Config{Name: "messages", Policy: policy.Must(fleet.SlidingLog(5, time.Hour))})
	defer limiter.Close()

	for _, n := range []int64{4, 2, 1} {
		answer, err := limiter.Take(context.Background(), "alice", n)
		fmt.Println(answer.Allowed, answer.Remaining, err)
	}
	// Output:
	// true 1 <nil>
	// false 1 <nil>
	// true 0 <nil>
}
