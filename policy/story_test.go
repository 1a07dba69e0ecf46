package policy_test

import (
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// A story is a funnel and what becomes of one key in it.
type story struct {
	name            string
	capacity, count int64
	per             time.Duration
	steps           []step
}

// step: at this time, take that, with so much patience; expect this. Limit is
// the story's and stands in no step; at most one of wait and retry is given.
type step struct {
	at       time.Duration
	take     int64
	patience time.Duration

	allowed   bool
	remaining int64
	wait      time.Duration
	retry     time.Duration
	reset     time.Duration
}

const (
	passes  = true
	refused = false
)

func TestFunnelStories(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, story := range []story{
		{"a burst passes, then one a second", 3, 1, s, []step{
			{at: 10 * s, take: 1, allowed: passes, remaining: 2, reset: 1 * s},
			{at: 10 * s, take: 1, allowed: passes, remaining: 1, reset: 2 * s},
			{at: 10 * s, take: 1, allowed: passes, remaining: 0, reset: 3 * s},
			{at: 10 * s, take: 1, allowed: refused, retry: 1 * s, reset: 3 * s},
			{at: 11*s - 1, take: 1, allowed: refused, retry: 1, reset: 2*s + 1},
			{at: 11 * s, take: 1, allowed: passes, remaining: 0, reset: 3 * s},
			{at: 11 * s, take: 1, allowed: refused, retry: 1 * s, reset: 3 * s},
			{at: 14*s - 1, take: 0, allowed: passes, remaining: 2, reset: 1},
			{at: 14 * s, take: 0, allowed: passes, remaining: 3},
			{at: 99 * s, take: 0, allowed: passes, remaining: 3},
			{at: 99 * s, take: 3, allowed: passes, remaining: 0, reset: 3 * s},
		}},
		{"knocking at twice the rate gets the rate, not nothing", 2, 1, s, []step{
			{at: 0, take: 2, allowed: passes, reset: 2 * s},
			{at: 500 * ms, take: 1, allowed: refused, retry: 500 * ms, reset: 1500 * ms},
			{at: 1000 * ms, take: 1, allowed: passes, reset: 2 * s},
			{at: 1500 * ms, take: 1, allowed: refused, retry: 500 * ms, reset: 1500 * ms},
			{at: 2000 * ms, take: 1, allowed: passes, reset: 2 * s},
			{at: 2500 * ms, take: 1, allowed: refused, retry: 500 * ms, reset: 1500 * ms},
			{at: 3000 * ms, take: 1, allowed: passes, reset: 2 * s},
		}},
		{"several at once, all or none", 10, 5, s, []step{
			{at: 1 * s, take: 7, allowed: passes, remaining: 3, reset: 1400 * ms},
			{at: 1 * s, take: 4, allowed: refused, remaining: 3, retry: 200 * ms, reset: 1400 * ms},
			{at: 1 * s, take: 10, allowed: refused, remaining: 3, retry: 1400 * ms, reset: 1400 * ms},
			{at: 1 * s, take: 3, allowed: passes, remaining: 0, reset: 2 * s},
			{at: 1200*ms - 1, take: 1, allowed: refused, retry: 1, reset: 1800*ms + 1},
			{at: 1200 * ms, take: 1, allowed: passes, remaining: 0, reset: 2 * s},
		}},
		{"what can never be had", 2, 1, s, []step{
			{at: 1 * s, take: 3, allowed: refused, remaining: 2, retry: policy.Never},
			{at: 1 * s, take: -1, allowed: refused, remaining: 2, retry: policy.Never},
			{at: 1 * s, take: 3, patience: time.Hour, allowed: refused, remaining: 2, retry: policy.Never},
			{at: 1 * s, take: 1, allowed: passes, remaining: 1, reset: 1 * s},
			{at: 1 * s, take: 3, allowed: refused, remaining: 1, retry: policy.Never, reset: 1 * s},
			{at: 1 * s, take: -1, allowed: refused, remaining: 1, retry: policy.Never, reset: 1 * s},
			{at: 1 * s, take: 1, allowed: passes, remaining: 0, reset: 2 * s},
		}},
		{"the patient get a turn each", 1, 1, s, []step{
			{at: 5 * s, take: 1, patience: 3 * s, allowed: passes, reset: 1 * s},
			{at: 5 * s, take: 1, patience: 3 * s, allowed: passes, wait: 1 * s, reset: 2 * s},
			{at: 5 * s, take: 1, patience: 3 * s, allowed: passes, wait: 2 * s, reset: 3 * s},
			{at: 5 * s, take: 1, patience: 3 * s, allowed: passes, wait: 3 * s, reset: 4 * s},
			{at: 5 * s, take: 1, patience: 3 * s, allowed: refused, retry: 1 * s, reset: 4 * s},
			{at: 5 * s, take: 1, patience: 4*s - 1, allowed: refused, retry: 1, reset: 4 * s},
			{at: 5 * s, take: 1, allowed: refused, retry: 4 * s, reset: 4 * s},
			{at: 5 * s, take: 1, patience: -time.Hour, allowed: refused, retry: 4 * s, reset: 4 * s},
			{at: 6 * s, take: 1, patience: 3 * s, allowed: passes, wait: 3 * s, reset: 4 * s},
			{at: 6 * s, take: 0, allowed: passes, reset: 4 * s},
		}},
		{"patience is for the part that does not fit", 5, 1, s, []step{
			{at: 0, take: 4, patience: s, allowed: passes, remaining: 1, reset: 4 * s},
			{at: 0, take: 3, patience: s, allowed: refused, remaining: 1, retry: 1 * s, reset: 4 * s},
			{at: 0, take: 3, patience: 2 * s, allowed: passes, remaining: 0, wait: 2 * s, reset: 7 * s},
			// It owes more than a bucketful until then.
			{at: 2 * s, take: 1, allowed: refused, remaining: 0, retry: 1 * s, reset: 5 * s},
			{at: 3 * s, take: 1, allowed: passes, remaining: 0, reset: 5 * s},
		}},
		{"a clock that goes back mints nothing", 2, 1, s, []step{
			{at: 60 * s, take: 2, allowed: passes, reset: 2 * s},
			{at: 50 * s, take: 1, allowed: refused, retry: 11 * s, reset: 12 * s},
			{at: 0, take: 1, allowed: refused, retry: 61 * s, reset: 62 * s},
			{at: 60 * s, take: 1, allowed: refused, retry: 1 * s, reset: 2 * s},
			{at: 61 * s, take: 1, allowed: passes, reset: 2 * s},
			{at: 60 * s, take: 0, allowed: passes, reset: 3 * s},
			{at: 63 * s, take: 2, allowed: passes, reset: 2 * s},
		}},
		{"an interval that is no whole nanosecond", 3, 3, s, []step{
			// A unit takes 333,333,333 1/3 ns, kept as 333,333,333 6/16.
			{at: 1, take: 1, allowed: passes, remaining: 2, reset: 333_333_334},
			{at: 1, take: 1, allowed: passes, remaining: 1, reset: 666_666_667},
			{at: 1, take: 1, allowed: passes, remaining: 0, reset: 1_000_000_001},
			{at: 1, take: 1, allowed: refused, retry: 333_333_334, reset: 1_000_000_001},
			{at: 333_333_334, take: 1, allowed: refused, retry: 1, reset: 666_666_668},
			{at: 333_333_335, take: 1, allowed: passes, reset: 1_000_000_000},
			// The fraction is kept, so this turn comes a nanosecond sooner after the last.
			{at: 666_666_667, take: 1, allowed: refused, retry: 1, reset: 666_666_668},
			{at: 666_666_668, take: 1, allowed: passes, reset: 1_000_000_000},
		}},
		{"a sixteenth too early waits for the next nanosecond", 1, 16, 1601, []step{
			// A unit takes 100 1/16 ns.
			{at: 1, take: 1, allowed: passes, reset: 101},
			{at: 101, take: 0, allowed: passes, remaining: 0, reset: 1},
			{at: 101, take: 1, allowed: refused, retry: 1, reset: 1},
			{at: 101, take: 1, patience: 1, allowed: passes, wait: 1, reset: 101},
			// The turn was at 101 1/16, and it is from there that the next is counted.
			{at: 201, take: 1, allowed: refused, retry: 1, reset: 1},
			{at: 202, take: 1, allowed: passes, reset: 101},
		}},
		{"time before the epoch is the epoch", 1, 1, s, []step{
			{at: -5 * s, take: 1, allowed: passes, reset: 1 * s},
			{at: -4 * s, take: 1, allowed: refused, retry: 1 * s, reset: 1 * s},
			{at: 0, take: 1, allowed: refused, retry: 1 * s, reset: 1 * s},
			{at: 1 * s, take: 1, allowed: passes, reset: 1 * s},
		}},
	} {
		t.Run(story.name, func(t *testing.T) {
			follow(t, policy.Must(policy.Funnel(story.capacity, story.count, story.per)), story.capacity, 0, story.steps)
		})
	}
}
