package cell_test

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

// A key is any comparable value: an address needs no formatting.
func ExampleCell_Choke() {
	limiter, err := engine.New[netip.Addr](engine.Config{
		Policy:    policy.Must(policy.Funnel(2, 1, time.Minute)),
		Admission: cell.Exact, // the default
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()

	client := netip.MustParseAddr("2001:db8::17")
	fmt.Println(limiter.Choke(client), limiter.Choke(client), limiter.Choke(client))
	// Output: true true false
}

// A call may cost more than one unit, and a refused one learns how long to wait.
func ExampleCell_Take() {
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

// Looking takes nothing, and opens no key.
func ExampleCell_Peek() {
	limiter, _ := engine.New[string](engine.Config{
		Policy: policy.Must(policy.Funnel(5, 1, time.Hour)),
	})
	defer limiter.Close()

	fmt.Println(limiter.Peek("nobody").Remaining, limiter.Len())
	limiter.Choke("somebody")
	fmt.Println(limiter.Peek("somebody").Remaining, limiter.Len())
	// Output:
	// 5 0
	// 4 1
}
