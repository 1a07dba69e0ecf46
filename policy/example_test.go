package policy_test

import (
	"encoding/json"
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

	// The word of a key that was never used is 0.
	var word uint64
	now := policy.Instant(1)
	word, decision := limit.Take(word, now, 8, 0)
	fmt.Println(decision.Allowed, decision.Remaining, "of", decision.Limit)

	word, decision = limit.Take(word, now, 3, 0)
	fmt.Println(decision.Allowed, "retry after", decision.RetryAfter)

	now += policy.Instant(decision.RetryAfter)
	_, decision = limit.Take(word, now, 3, 0)
	fmt.Println(decision.Allowed, "as good as new in", decision.ResetAfter)
	// Output:
	// funnel 10, 2/s
	// true 2 of 10
	// false retry after 500ms
	// true as good as new in 5s
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
	_, decision := limit.Take(word, now, 0, 0)
	fmt.Println(decision.Remaining, "remain")

	word = refunder.Refund(word, now, -9)
	_, decision = limit.Take(word, now, 1, 0)
	fmt.Println(decision.Remaining, "remain, retry after", decision.RetryAfter)
	// Output:
	// 7 remain
	// 0 remain, retry after 1.5s
}

// cooldown is a custom limit: one unit, and then none for a pause of up to a year. The word is
// the instant of the next call. Time stands still after 146 years, and no call waits for more
// than one, so no word exceeds [policy.MaxWord].
type cooldown struct{ pause time.Duration }

func (c cooldown) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	const end, year = policy.MaxWord / 2, 365 * 24 * time.Hour
	instant := uint64(max(0, min(now, end)))
	patience = max(0, min(patience, year))
	busy := time.Duration(max(word, instant) - instant)
	decision := policy.Decision{Limit: 1, ResetAfter: busy}
	if busy == 0 {
		decision.Remaining = 1
	}
	switch {
	case n < 0 || n > 1:
		decision.RetryAfter = policy.Never
	case n == 0:
		decision.Allowed = true
	case busy > patience:
		decision.RetryAfter = busy - patience
	default:
		decision = policy.Decision{Allowed: true, Limit: 1, Wait: busy, ResetAfter: busy + c.pause}
		return instant + uint64(decision.ResetAfter), decision
	}
	return word, decision
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

// Two a second leave, evenly spaced, and three may wait. Every call is told its wait.
func ExampleQueue() {
	limit := policy.Must(policy.Queue(3, 2, time.Second))
	fmt.Println(limit)

	var word uint64
	for _, n := range []int64{1, 1, 1, 1, 1, 5} {
		var d policy.Decision
		word, d = limit.Take(word, 1, n, 0)
		fmt.Println(d)
	}
	// Output:
	// queue 3, 2/s
	// admitted, 3 of 4 left, all in 500ms
	// admitted after 500ms, 2 of 4 left, all in 1s
	// admitted after 1s, 1 of 4 left, all in 1.5s
	// admitted after 1.5s, 0 of 4 left, all in 2s
	// refused for 500ms, 0 of 4 left, all in 2s
	// refused for ever, of 4
}

// A megabyte a second. A large piece starts as soon as the piece before it is paid.
func ExampleBursty() {
	limit := policy.Must(policy.Bursty(1_000_000, time.Second, 1_000_000))

	// By then the store is full.
	now := policy.Instant(time.Minute)
	word, decision := limit.Take(0, now, 4_000_000, 0)
	fmt.Println(decision.Allowed, decision.Wait)

	_, decision = limit.Take(word, now, 1, 0)
	fmt.Println(decision.Allowed, "the other three must be paid first:", decision.RetryAfter)
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

func ExampleAtMost() {
	// An upstream service bans callers that exceed 100 calls in any second.
	limit := policy.Must(policy.AtMost(100, time.Second))
	fmt.Println(limit)

	now := policy.Instant(1)
	word, decision := limit.Take(0, now, 100, 0)
	fmt.Println(decision.Allowed)

	// They count until their part, of half a second, is over for good.
	_, decision = limit.Take(word, now, 1, 0)
	fmt.Println(decision.Allowed, "retry after", decision.RetryAfter.Round(time.Millisecond))
	// Output:
	// at most 100/s
	// true
	// false retry after 1.5s
}

func ExampleFixedWindow() {
	limit := policy.Must(policy.FixedWindow(100, time.Hour))
	fmt.Println(limit)

	now := policy.Instant(1)
	word, decision := limit.Take(0, now, 98, 0)
	fmt.Println(decision.Allowed, decision.Remaining, "remain, and start anew in", decision.ResetAfter)

	now += policy.Instant(59 * time.Minute)
	_, decision = limit.Take(word, now, 3, 0)
	fmt.Println(decision.Allowed, "retry after", decision.RetryAfter)
	// Output:
	// window 100/h
	// true 2 remain, and start anew in 1h0m0s
	// false retry after 1m0s
}

func ExampleSlidingWindow() {
	limit := policy.Must(policy.SlidingWindow(100, time.Minute))
	fmt.Println(limit)

	// All of the limit in the first minute. Half a minute into the second, half of it still
	// counts.
	word, _ := limit.Take(0, policy.Instant(10*time.Second), 100, 0)
	_, d := limit.Take(word, policy.Instant(90*time.Second), 0, 0)
	fmt.Println(d.Remaining, "remain")
	// Output:
	// sliding 100/m
	// 50 remain
}

func ExampleAlignedWindow() {
	// 1000 an hour, from full hour to full hour. An engine anchors its limit; here instants count
	// from ten to ten.
	zero := time.Date(2026, 11, 22, 21, 50, 0, 0, time.UTC)
	limit := policy.Must(policy.AlignedWindow(1000, time.Hour)).(policy.Anchored).Anchor(zero)

	word, d := limit.Take(0, 0, 1000, 0)
	fmt.Println(d.Allowed, "until", zero.Add(d.ResetAfter).Format(time.TimeOnly))
	_, d = limit.Take(word, policy.Instant(4*time.Minute), 1, 0)
	fmt.Println(d.Allowed, "retry after", d.RetryAfter)
	// Output:
	// true until 22:00:00
	// false retry after 6m0s
}

func ExampleCalendarWindow() {
	limit := policy.Must(policy.CalendarWindow(10_000, policy.Month, "Europe/Berlin"))
	fmt.Println(limit)

	zero := time.Date(2026, 3, 20, 12, 0, 0, 0, time.UTC)
	_, d := limit.(policy.Anchored).Anchor(zero).Take(0, 0, 1, 0)
	fmt.Println("starts anew on", zero.Add(d.ResetAfter).Format(time.RFC1123))
	// Output:
	// window 10000/month in Europe/Berlin
	// starts anew on Tue, 31 Mar 2026 22:00:00 UTC
}

// The windows of a customer begin on the day of the month on which the customer pays.
func ExampleCalendarWindow_from() {
	paysOn := func(day int) policy.Policy {
		limit := policy.Must(policy.CalendarWindow(1000, policy.Month, "UTC", day))
		return limit.(policy.Anchored).Anchor(time.Date(2027, 1, 25, 0, 0, 0, 0, time.UTC))
	}
	now := time.Date(2027, 1, 31, 9, 0, 0, 0, time.UTC)
	instant := policy.Instant(now.Sub(time.Date(2027, 1, 25, 0, 0, 0, 0, time.UTC)))

	word, decision := paysOn(31).Take(0, instant, 400, 0)
	fmt.Println(paysOn(31), "starts anew on", now.Add(decision.ResetAfter).Format("2 January"))
	// The customer pays on another day from now on.
	_, decision = paysOn(20).Take(word, instant, 100, 0)
	fmt.Println(decision.Remaining, "left until", now.Add(decision.ResetAfter).Format("2 January"))
	// Output:
	// window 1000/month from 31 in UTC starts anew on 28 February
	// 500 left until 28 February
}
