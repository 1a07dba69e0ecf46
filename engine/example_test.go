package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

// Each client may make 3 calls at once, and one a minute in the long run.
func ExampleNew() {
	limiter, err := engine.New[string](engine.Config{
		Policy: policy.Must(policy.Funnel(3, 1, time.Minute)),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()

	for range 4 {
		fmt.Println(limiter.Choke("192.0.2.7"))
	}
	fmt.Println(limiter.Choke("192.0.2.8"))
	// Output:
	// true
	// true
	// true
	// false
	// true
}

func ExamplePolicyFor() {
	paid := policy.Must(policy.Funnel(100, 10, time.Minute))
	customers := map[string]bool{"alice": true}
	limiter, _ := engine.New(engine.Config{
		Policy: policy.Must(policy.Funnel(2, 1, time.Minute)),
	}, engine.PolicyFor(func(user string) policy.Policy {
		if customers[user] {
			return paid
		}
		// Config.Policy holds for other users.
		return nil
	}))
	defer limiter.Close()

	fmt.Println(limiter.Peek("alice", 0).Limit, limiter.Peek("bob", 0).Limit)
	fmt.Println(limiter.Take("alice", 50).Allowed, limiter.Take("bob", 50).Allowed)
	// Output:
	// 100 2
	// true false
}

// Customers are told when most of their calls are used.
func ExampleOnWarn() {
	mails := make(chan string, 2)
	limiter, _ := engine.New(engine.Config{
		Policy: policy.Must(policy.FixedWindow(1000, 24*time.Hour)),
		WarnAt: []float64{0.8, 0.95},
	}, engine.OnWarn(func(w engine.Warning[string]) {
		mails <- fmt.Sprintf("%s has passed %.0f%%: %d of %d left", w.Key, 100*w.Share, w.Decision.Remaining, w.Decision.Limit)
	}))
	defer limiter.Close()

	for range 900 {
		limiter.Choke("alice")
	}
	fmt.Println(<-mails)
	limiter.Take("alice", 99)
	fmt.Println(<-mails)
	// Output:
	// alice has passed 80%: 200 of 1000 left
	// alice has passed 95%: 1 of 1000 left
}

// A customer uses up the small plan and buys the large one. The 10 calls count, and 990 remain.
func ExampleEngine_ChangeLimit() {
	small := policy.Must(policy.Funnel(10, 10, time.Hour))
	large := policy.Must(policy.Funnel(1000, 1000, time.Hour))
	// plans has the customers with another plan than the small one.
	var plans sync.Map
	limiter, _ := engine.New(engine.Config{Policy: small}, engine.PolicyFor(func(customer string) policy.Policy {
		if plan, ok := plans.Load(customer); ok {
			return plan.(policy.Policy)
		}
		return small
	}))
	defer limiter.Close()

	fmt.Println(limiter.Take("alice", 10).Allowed, limiter.Choke("alice"))
	// The plan comes first, and then the change.
	plans.Store("alice", large)
	fmt.Println(limiter.Choke("alice"))
	fmt.Println(limiter.ChangeLimit("alice", small, large))
	fmt.Println(limiter.Peek("alice", 0).Remaining)
	// Output:
	// true false
	// false
	// <nil>
	// 990
}

// Two limits on each key: 3 at once, and 5 an hour. A call that either refuses counts for neither.
func ExampleNewTiered() {
	limiter, err := engine.NewTiered[string](
		engine.Config{Policy: policy.Must(policy.Funnel(3, 3, time.Second))},
		policy.Must(policy.FixedWindow(5, time.Hour)),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()

	// The call has units of the present second.
	fmt.Println(limiter.Take("client", 3).Remaining)
	// The call waits until the next second.
	fmt.Println(limiter.Wait(context.Background(), "client", 2))
	d := limiter.Take("client", 1)
	// The call has to wait until the next hour.
	fmt.Println(d.Allowed, d.RetryAfter > time.Minute)
	// Output:
	// 0
	// <nil>
	// false true
}

// Both limits on the user, and one on all users together.
func ExampleTiered_Claims() {
	users, _ := engine.NewTiered[string](
		engine.Config{Policy: policy.Must(policy.FixedWindow(3, time.Minute))},
		policy.Must(policy.FixedWindow(20, time.Hour)),
	)
	defer users.Close()
	everybody, _ := engine.New[struct{}](engine.Config{Policy: policy.Must(policy.FixedWindow(5, time.Hour))})
	defer everybody.Close()

	for _, user := range []string{"alice", "bob", "bob"} {
		out := engine.TakeAll(append(users.Claims(user, 2), everybody.Claim(struct{}{}, 2))...)
		fmt.Println(out.Allowed, out.Binding)
	}
	// Output:
	// true 0
	// true 2
	// false 2
}

func ExampleState() {
	folder, err := os.MkdirTemp("", "ral")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	config := engine.Config{
		Policy: policy.Must(policy.Parse("funnel 3, 3/d")),
		State:  engine.State{Path: filepath.Join(folder, "limits")},
	}
	for range 2 {
		limiter, err := engine.New[string](config)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(limiter.Allow("alice"), limiter.Allow("alice"))
		if err := limiter.Close(); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// true true
	// true false
}

func ExampleLoad() {
	config := engine.Config{Policy: policy.Must(policy.Parse("window 10/d"))}
	old, err := engine.New[string](config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer old.Close()
	old.Take("alice", 7)

	var state bytes.Buffer
	if err := old.Save(&state); err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := engine.Load[string](&state, config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()
	fmt.Println(limiter.Peek("alice", 0).Remaining)
	// Output: 3
}

func ExampleEngine_MostRefused() {
	e, err := engine.New[string](engine.Config{Policy: policy.Must(policy.FixedWindow(2, time.Hour))})
	if err != nil {
		panic(err)
	}
	defer e.Close()
	for range 5 {
		e.Choke("10.0.0.1")
	}
	e.Choke("10.0.0.2")
	for _, k := range e.MostRefused(10).Keys {
		fmt.Println(k.Key, k.Refusals, "at least", k.Least, "at most", k.Most)
	}
	// Output: 10.0.0.1 3 at least 3 at most 3
}

func ExampleEngine_MostUsed() {
	e, err := engine.New[string](engine.Config{Policy: policy.Must(policy.FixedWindow(10, time.Hour))})
	if err != nil {
		panic(err)
	}
	defer e.Close()
	e.Take("alice", 9)
	e.Take("bob", 2)
	e.Take("carol", 5)
	var cursor engine.OwingCursor
	for more := true; more; more = !cursor.IsZero() {
		page := e.MostUsed(2, cursor)
		for _, k := range page.Keys {
			fmt.Printf("%s has used %.0f%%\n", k.Key, 100*k.Share)
		}
		cursor = page.Next
	}
	// Output:
	// alice has used 90%
	// carol has used 50%
	// bob has used 20%
}

func ExampleEngine_Explain() {
	e, err := engine.New[string](engine.Config{Name: "api", Policy: policy.Must(policy.AtMost(3, time.Hour))})
	if err != nil {
		panic(err)
	}
	defer e.Close()
	e.Take("alice", 1)
	x := e.Explain("alice")
	fmt.Println(x.Allowed, x.Used, "of", x.Of)
	// Output: true 1 of 3
}
