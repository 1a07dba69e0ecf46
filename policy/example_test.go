package policy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Ten at once, and two a second in the long run. The caller keeps the word and tells the time.
func ExampleFunnel() {
	limit, err := policy.Funnel(10, 2, time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(limit)

	var word uint64 // a key that was never used
	now := policy.Instant(1)
	word, d := limit.Take(word, now, 8, 0)
	fmt.Println(d.Allowed, d.Remaining, "of", d.Limit)

	word, d = limit.Take(word, now, 3, 0)
	fmt.Println(d.Allowed, "retry after", d.RetryAfter)

	now += policy.Instant(d.RetryAfter)
	_, d = limit.Take(word, now, 3, 0)
	fmt.Println(d.Allowed, "as good as new in", d.ResetAfter)
	// Output:
	// funnel 10, 2/s
	// true 2 of 10
	// false retry after 500ms
	// true as good as new in 5s
}

// With patience, a caller is told its turn instead of being refused, if that is soon enough.
func ExampleFunnel_patience() {
	limit := policy.Must(policy.Funnel(1, 4, time.Second))

	var word uint64
	now := policy.Instant(1)
	for range 4 {
		var d policy.Decision
		word, d = limit.Take(word, now, 1, 600*time.Millisecond)
		if d.Allowed {
			fmt.Println("start in", d.Wait)
		} else {
			fmt.Println("busy, ask again in", d.RetryAfter)
		}
	}
	// Output:
	// start in 0s
	// start in 250ms
	// start in 500ms
	// busy, ask again in 150ms
}

// A service that speaks redis-cell's language replies to CL.THROTTLE with five integers: here to
// a burst of 15 more than 1, and 30 a minute.
func ExampleDecision_RedisCell() {
	limit := policy.Must(policy.Funnel(16, 30, time.Minute))

	_, d := limit.Take(0, 1, 1, 0)
	fmt.Println(d.RedisCell())
	// Output: [0 16 15 -1 2]
}

// Units of work that was not done go back. Work that turned out larger is charged later.
func ExampleRefunder() {
	limit := policy.Must(policy.Funnel(10, 2, time.Second))
	refunder := limit.(policy.Refunder)

	now := policy.Instant(1)
	word, _ := limit.Take(0, now, 8, 0)
	word = refunder.Refund(word, now, 5)
	_, d := limit.Take(word, now, 0, 0)
	fmt.Println(d.Remaining, "remain")

	word = refunder.Refund(word, now, -9)
	_, d = limit.Take(word, now, 1, 0)
	fmt.Println(d.Remaining, "remain, retry after", d.RetryAfter)
	// Output:
	// 7 remain
	// 0 remain, retry after 1.5s
}

// A limit that is written in the program is right, or a mistake to be found at once.
func ExampleMust() {
	var perAddress = policy.Must(policy.Funnel(20, 100, time.Minute))
	fmt.Println(perAddress)
	// Output: funnel 20, 100/m
}

// A limit from outside is refused with an error that names the setting.
func ExampleFieldError() {
	_, err := policy.Funnel(0, 100, time.Minute)

	var field *policy.FieldError
	if errors.As(err, &field) {
		fmt.Println("check the", field.Field)
	}
	fmt.Println(err)
	// Output:
	// check the capacity
	// ral: Funnel: capacity is 0, want 1 or more
}

// cooldown is a custom limit: one unit, and then none for a pause of up to a year. The word is
// the instant of the next call. Time stands still after 146 years, and no call waits for more
// than one, so no word exceeds [policy.MaxWord].
type cooldown struct{ pause time.Duration }

func (c cooldown) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	const end, year = policy.MaxWord / 2, 365 * 24 * time.Hour
	at := uint64(max(0, min(now, end)))
	patience = max(0, min(patience, year))
	busy := time.Duration(max(word, at) - at)
	d := policy.Decision{Limit: 1, ResetAfter: busy}
	if busy == 0 {
		d.Remaining = 1
	}
	switch {
	case n < 0 || n > 1:
		d.RetryAfter = policy.Never
	case n == 0:
		d.Allowed = true
	case busy > patience:
		d.RetryAfter = busy - patience
	default:
		d = policy.Decision{Allowed: true, Limit: 1, Wait: busy, ResetAfter: busy + c.pause}
		return at + uint64(d.ResetAfter), d
	}
	return word, d
}

func (c cooldown) Limit() int64                       { return 1 }
func (c cooldown) Delays() bool                       { return false }
func (c cooldown) FreshAt(word uint64) policy.Instant { return policy.Instant(word) }
func (c cooldown) String() string                     { return fmt.Sprintf("one, then none for %v", c.pause) }

// An engine takes a custom limit as any other.
func ExamplePolicy() {
	p := cooldown{time.Minute}
	word, d := p.Take(0, 1, 1, 0)
	fmt.Println(p, d.Allowed, p.FreshAt(word))
	_, d = p.Take(word, policy.Instant(20*time.Second)+1, 1, 0)
	fmt.Println(d.Allowed, d.RetryAfter)
	// Output:
	// one, then none for 1m0s true 60000000001
	// false 40s
}

// A limit from a flag, an environment variable or a query string.
func ExampleParse() {
	limit, err := policy.Parse("at most 5/10m")
	fmt.Println(limit.Limit(), limit.(policy.Windowed).Window(), err)

	_, err = policy.Parse("funnel 100, 10/x")
	fmt.Println(err)
	_, err = policy.Parse("funnel 0, 10/s")
	fmt.Println(err)
	// Output:
	// 5 10m0s <nil>
	// ral: limit "funnel 100, 10/^x" at byte 15: want a unit of time: ns, us, ms, s, m, h or d
	// ral: limit "funnel ^0, 10/s" at byte 7: capacity is 0, want 1 or more
}

// A limit in a configuration, here of JSON.
func ExampleText() {
	var config struct{ Requests, Logins policy.Text }
	err := json.Unmarshal([]byte(`{"requests": "funnel 100, 10/s", "logins": "at most 5/10m"}`), &config)
	fmt.Println(config.Requests.Policy.Limit(), config.Logins.Policy, err)

	text, _ := json.Marshal(config)
	fmt.Println(string(text))
	// Output:
	// 100 at most 5/10m <nil>
	// {"Requests":"funnel 100, 10/s","Logins":"at most 5/10m"}
}

func ExampleDecision_String() {
	limit := policy.Must(policy.Queue(2, 1, time.Second))
	word, now := uint64(0), policy.Instant(1)
	for range 4 {
		var d policy.Decision
		word, d = limit.Take(word, now, 1, 0)
		fmt.Println(d)
	}
	_, never := limit.Take(word, now, 5, 0)
	fmt.Println(never)
	// Output:
	// admitted, 2 of 3 left, all in 1s
	// admitted after 1s, 1 of 3 left, all in 2s
	// admitted after 2s, 0 of 3 left, all in 3s
	// refused for 1s, 0 of 3 left, all in 3s
	// refused for ever, of 3
}
