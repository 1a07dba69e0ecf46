package engine_test

import (
	"fmt"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

// Two teams share 100 calls a second of an upstream API. Each always gets 30 a second, and what the
// other leaves idle is lent.
func ExampleShares() {
	guarantee := policy.Must(policy.Funnel(30, 30, time.Second))
	shares, err := engine.NewShares(engine.SharesConfig[string]{
		Total:     policy.Must(policy.Funnel(100, 100, time.Second)),
		Tenants:   []string{"search", "reports"},
		Guarantee: func(string) policy.Policy { return guarantee },
	})
	if err != nil {
		panic(err)
	}
	defer shares.Close()

	// reports is greedy. It gets its guarantee of 30, and borrows while the group is below 100-60.
	passed := 0
	for shares.Choke("reports") {
		passed++
	}
	fmt.Println("reports:", passed >= 40)
	d := shares.Take("search", 30)
	fmt.Println("search:", d.Allowed, "borrowed:", d.Borrowed)
	// Output:
	// reports: true
	// search: true borrowed: false
}
