package share

import (
	"math/bits"
	"time"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// ticks in a nanosecond, in the words of paced policies.
const ticks = 16

type part struct {
	policy  policy.Policy
	servers int         // dividing the limit
	shape   shape.Shape // zero for an AtMost, a log's share
	per     time.Duration
}

func newPart(p policy.Policy, servers int) *part {
	t := &part{policy: p, servers: servers}
	if s, ok := p.(shape.Shaped); ok {
		t.shape = s.Shape()
	}
	if t.shape.Kind == shape.FixedWindow {
		t.per = time.Duration(t.shape.Length * t.shape.Step)
	}
	return t
}

// paced reports whether words are the tick at which all will have drained.
func paced(s shape.Shape) bool {
	return s.Kind == shape.Funnel || s.Kind == shape.Queue || s.Kind == shape.Bursty
}

// portion returns whole*some/all, rounded up.
func portion(whole, some, all int64) int64 {
	high, low := bits.Mul64(uint64(whole), uint64(some))
	result, rest := bits.Div64(high, low, uint64(all))
	if rest > 0 {
		result++
	}
	return int64(result)
}

// used returns the units that count, rounded up, with debts as far as the policy tells.
func (t *part) used(word uint64, now policy.Instant) int64 {
	_, d := t.policy.Take(word, now, 0, 0)
	if !paced(t.shape) {
		return d.Limit - d.Remaining
	}
	return portion(ticks, int64(max(d.ResetAfter, 0)), int64(t.shape.Interval))
}

// usedUp returns the initial entry of an unknown key whose call asks for n units: all units except
// a first call's are used at Redis's last answer. If the table evicted a key with debts later,
// all units are used at that time. start is the server's start.
func (t *part) usedUp(n int64, heard, lost, start policy.Instant) (word uint64, d unknownSince) {
	since, units := heard, full(t.policy)-t.firstCall(n)
	d = unknownSince(since)
	if heard <= lost {
		since, units = max(lost, start), full(t.policy)
		d = -unknownSince(since)
	}
	if paced(t.shape) {
		return charged(t.policy, 0, since, units), 0
	}
	return 0, d
}

// firstCall returns how many of n units the first call of an unknown key finds at least: up to the
// share. A Bursty grants any call while a unit is left.
func (t *part) firstCall(n int64) int64 {
	if t.shape.Kind == shape.Bursty {
		return 1
	}
	return min(max(n, 1), t.policy.Limit())
}

// withheld returns the units of a window that an unknown key must not use yet: share x (memory - time
// since the key was unknown) / memory, rounded up. They leave room for a first call of n units: a
// second finds that call's units used as well.
func (t *part) withheld(n int64, d unknownSince, memory time.Duration, now policy.Instant) int64 {
	if d == 0 {
		return 0
	}
	units, maxWithheld, since := full(t.policy)-1, full(t.policy)-t.firstCall(n), policy.Instant(d)
	if d < 0 {
		units, maxWithheld, since = units+1, units+1, -since
	}
	left := max(memory-time.Duration(now-since), 0)
	return min(portion(units, int64(min(left, memory)), int64(memory)), maxWithheld)
}

// raise returns a word at least as used as redisWord, the undivided limit's word at redisNow. A paced word is a
// debt of time, the same part of the share as of the limit. Of a window each server counts its
// part, rounded up.
func (t *part) raise(limit policy.Policy, s shape.Shape, word, redisWord uint64, redisNow, now policy.Instant) uint64 {
	_, d := limit.Take(redisWord, redisNow, 0, 0)
	if paced(s) {
		if d.ResetAfter <= 0 {
			return word
		}
		drained := min(uint64(now)+uint64(d.ResetAfter), policy.MaxWord/ticks)
		return max(word, drained*ticks)
	}
	more := portion(t.policy.Limit(), d.Limit-d.Remaining, d.Limit) - t.used(word, now)
	if more <= 0 {
		return word
	}
	opened := now
	if t.per > 0 && t.policy.FreshAt(word) <= now {
		word = 0
		opened = min(now, max(now+policy.Instant(d.ResetAfter-t.per), 1)) // ends with Redis's window
	}
	return charged(t.policy, word, opened, more)
}

// carry converts another share's word. The larger stays used: as many units, or as large a part.
func (t *part) carry(from *part, word uint64, now policy.Instant) uint64 {
	next, ok := t.policy.(policy.Relative).Carry(from.policy, word, now)
	if !ok {
		return charged(t.policy, 0, now, full(t.policy))
	}
	if paced(t.shape) {
		return max(next, word)
	}
	used, limit := from.used(word, now), from.policy.Limit()
	return charged(t.policy, next, now, portion(t.policy.Limit(), used, limit)-t.used(next, now))
}
