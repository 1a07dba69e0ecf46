package main

import (
	"time"

	"github.com/ral-limiter/ral/policy"
)

const second = time.Second

const length = 8 * second

// traffic returns the instants of the calls. A single call is followed by two bursts of thirty, on
// both sides of the second after it. Then come twenty a second for two seconds and, after a pause,
// a burst of thirty.
func traffic() (calls []time.Duration) {
	burst := func(at time.Duration) {
		for i := range 30 {
			calls = append(calls, at+time.Duration(i)*time.Millisecond)
		}
	}
	calls = append(calls, second/2)
	burst(14 * second / 10)
	burst(16 * second / 10)
	for at := 3 * second; at < 5*second; at += second / 20 {
		calls = append(calls, at)
	}
	burst(13 * second / 2)
	return calls
}

// played holds when calls came, and when those admitted started.
type played struct{ asked, started []time.Duration }

// play takes a unit of the same new key at each instant. Calls wait only as the policy makes them.
func play(limit policy.Policy, calls []time.Duration) played {
	out := played{asked: calls}
	var word uint64
	for _, call := range calls {
		next, decision := limit.Take(word, 1+policy.Instant(call), 1, 0)
		word = next
		if decision.Allowed {
			out.started = append(out.started, call+decision.Wait)
		}
	}
	return out
}
