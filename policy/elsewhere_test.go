package policy_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// elsewhere is another library's limiter, from its published source: whether a call passes at
// this time, after how long, and how many more may.
type elsewhere interface {
	call(at time.Duration) (ok bool, wait time.Duration, left int64)
}

const untold = -1

// limitReq is limit_req of nginx, which counts milliseconds and thousandths of a call.
type limitReq struct {
	// All three are in thousandths.
	rate, burst, delay int64

	used         bool
	excess, last int64
}

func (q *limitReq) call(instant time.Duration) (ok bool, wait time.Duration, left int64) {
	excess := int64(0)
	if q.used {
		excess = max(0, q.excess-q.rate*(instant.Milliseconds()-q.last)/1000+1000)
	}
	if excess > q.burst {
		return false, 0, untold
	}
	q.excess, q.last, q.used = excess, instant.Milliseconds(), true
	return true, time.Duration(max(0, excess-q.delay)*1000/q.rate) * time.Millisecond, untold
}

// greedy is a bucket of Bucket4j with greedy refill: whole tokens, and a remainder.
type greedy struct {
	capacity, tokens int64
	per, last        time.Duration
	size, over       int64
}

func (b *greedy) call(at time.Duration) (ok bool, wait time.Duration, left int64) {
	grown := b.tokens*int64(at-b.last) + b.over
	b.last, b.size, b.over = at, b.size+grown/int64(b.per), grown%int64(b.per)
	if b.size >= b.capacity {
		b.size, b.over = b.capacity, 0
	}
	if b.size < 1 {
		return false, 0, b.size
	}
	b.size--
	return true, 0, b.size
}

// incr is INCR in Redis, with EXPIRE when it was 1.
type incr struct {
	limit, count int64
	per, expires time.Duration
}

func (c *incr) call(instant time.Duration) (ok bool, wait time.Duration, left int64) {
	if instant >= c.expires {
		c.count = 0
	}
	if c.count++; c.count == 1 {
		c.expires = instant + c.per
	}
	return c.count <= c.limit, 0, max(0, c.limit-c.count)
}

// The same calls pass, after the same waits, and the same remains.
// Promise: Limits of nginx, Bucket4j and Redis counters hold as docs/choosing.md says.
func TestLimitsOfOthersHoldAsTheirsDo(t *testing.T) {
	const s = time.Second
	nginx := limitReq{rate: 10_000, burst: 20_000}
	nodelay, delay8, noBurst := nginx, nginx, nginx
	nodelay.delay, delay8.delay, noBurst.burst = 20_000, 8_000, 0
	bucket4j := greedy{capacity: 10, size: 10, tokens: 10, per: time.Minute}
	for _, row := range []struct {
		name     string
		there    func() elsewhere
		here     string
		patience time.Duration
		// mean is the time between two units in the long run.
		mean time.Duration
	}{
		{"nginx burst=20", func() elsewhere { q := nginx; return &q }, "queue 20, 10/s", 0, s / 10},
		{"nginx burst=20 nodelay", func() elsewhere { q := nodelay; return &q }, "funnel 21, 10/s", 0, s / 10},
		{"nginx burst=20 delay=8", func() elsewhere { q := delay8; return &q }, "funnel 9, 10/s", 1200 * time.Millisecond, s / 10},
		{"nginx without burst", func() elsewhere { q := noBurst; return &q }, "funnel 1, 10/s", 0, s / 10},
		{"Bucket4j refillGreedy", func() elsewhere { b := bucket4j; return &b }, "funnel 10, 10/m", 0, 6 * s},
		{"Redis INCR and EXPIRE", func() elsewhere { return &incr{limit: 100, per: time.Minute} }, "window 100/m", 0, 6 * s / 10},
	} {
		t.Run(row.name, func(t *testing.T) {
			here := policy.Must(policy.Parse(row.here))
			for seed := range uint64(50) {
				random := rand.New(rand.NewPCG(seed, 1))
				there, word, instant := row.there(), uint64(0), s
				for range 500 {
					// About twice the rate, in bursts and pauses, in whole milliseconds.
					instant += time.Duration(random.Int64N(int64(row.mean))) * time.Duration(random.IntN(3)) / 1e6 * 1e6
					ok, wait, left := there.call(instant)
					next, d := here.Take(word, policy.Instant(instant), 1, row.patience)
					word = next
					if d.Allowed != ok || d.Wait != wait || left != untold && d.Remaining != left {
						t.Fatalf("seed %d, at %v: the other limiter says %v, wait %v, %d left; the limit here says %+v", seed, instant, ok, wait, left, d)
					}
				}
			}
		})
	}
}
