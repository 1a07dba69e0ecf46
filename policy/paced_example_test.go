package policy_test

import (
	"fmt"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Two a second leave, evenly spaced, and three may wait. Every call is told its wait.
func ExampleQueue() {
	limit := policy.Must(policy.Queue(3, 2, time.Second))
	fmt.Println(limit)

	var word uint64
	for range 5 {
		var d policy.Decision
		word, d = limit.Take(word, 1, 1, 0)
		if d.Allowed {
			fmt.Println("leave in", d.Wait)
		} else {
			fmt.Println("the queue is full, try again in", d.RetryAfter)
		}
	}
	// Output:
	// queue 3, 2/s
	// leave in 0s
	// leave in 500ms
	// leave in 1s
	// leave in 1.5s
	// the queue is full, try again in 500ms
}

// A megabyte a second. A large piece starts as soon as the piece before it is paid.
func ExampleBursty() {
	limit := policy.Must(policy.Bursty(1_000_000, time.Second, 1_000_000))

	now := policy.Instant(time.Minute) // long enough for the store to be full
	word, d := limit.Take(0, now, 4_000_000, 0)
	fmt.Println(d.Allowed, d.Wait)

	_, d = limit.Take(word, now, 1, 0)
	fmt.Println(d.Allowed, "the other three must be paid first:", d.RetryAfter)
	// Output:
	// true 0s
	// false the other three must be paid first: 3s
}

// Ten a second once warm, after ten seconds. The first calls are three times as far apart.
func ExampleWarmingUp() {
	limit := policy.Must(policy.WarmingUp(10, time.Second, 10*time.Second, 3))

	var word uint64
	var calls int
	now := policy.Instant(1)
	for second := time.Second; second <= 12*time.Second; second += time.Second {
		for now <= policy.Instant(second) {
			next, d := limit.Take(word, now, 1, 0)
			if !d.Allowed {
				now += policy.Instant(d.RetryAfter)
				continue
			}
			word = next
			calls++
		}
		if second == time.Second || second >= 11*time.Second {
			fmt.Println(calls, "calls after", second)
		}
	}
	// Output:
	// 4 calls after 1s
	// 60 calls after 11s
	// 70 calls after 12s
}
