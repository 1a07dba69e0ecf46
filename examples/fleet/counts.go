package main

import (
	"sync"
	"time"
)

// counts is what the load counts, of the answers that it gets. It knows nothing of
// limiters.
type counts struct {
	began time.Time

	mu     sync.Mutex // held for all below
	redis  bound
	shares bound
	total  total
	next   sample
	since  time.Time // when the last sample ended
}

// total is since the beginning.
type total struct {
	Asked    int64 `json:"asked"`
	Admitted int64 `json:"admitted"`
	Refused  int64 `json:"refused"`
	Lost     int64 `json:"lost"` // without an answer
	// Two bounds are promised, and audited apart: one for what Redis admits, at once or by
	// leases, and one for what the shares of the servers admit without it.
	Redis  audit `json:"redis"`
	Shares audit `json:"shares"`
}

// audit holds what was admitted in some ways against the limit.
type audit struct {
	Admitted int64 `json:"admitted"`
	Most     int64 `json:"most"`    // that the limit allows from the first request to the last answer
	Burst    int64 `json:"burst"`   // see bound, of the last 30 s
	Highest  int64 `json:"highest"` // the highest burst ever
}

// look brings the bursts up to date.
func (a *audit) look(b *bound, now time.Duration) {
	a.Burst = b.burst(now)
	a.Highest = max(a.Highest, a.Burst)
}

// sample is what was counted in a short time.
type sample struct {
	Seq     int              `json:"seq"`
	At      int64            `json:"at"`      // its end, in milliseconds since the beginning
	Took    int64            `json:"took"`    // its length, in milliseconds
	Redis   string           `json:"redis"`   // its state at the end
	Skipped int64            `json:"skipped"` // requests that were due, and not sent for want of a free connection
	Servers [servers]answers `json:"servers"`
}

// answers are those of a server.
type answers struct {
	Admitted [len(ways)]int64 `json:"admitted"` // by the way that it was decided
	Refused  [len(ways)]int64 `json:"refused"`
	Lost     int64            `json:"lost"`
	Slowest  float64          `json:"slowest"` // decision, in milliseconds
}

func newCounts(began time.Time, capacity, rate float64) *counts {
	limit := bound{capacity: capacity, rate: rate}
	return &counts{began: began, redis: limit, shares: limit, since: began}
}

// add counts what became of a request.
func (c *counts) add(server int, r reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total.Asked++
	s := &c.next.Servers[server]
	switch {
	case r.lost:
		c.total.Lost++
		s.Lost++
		return
	case r.admitted:
		c.total.Admitted++
		s.Admitted[r.by]++
		c.admit(r)
	default:
		c.total.Refused++
		s.Refused[r.by]++
	}
	s.Slowest = max(s.Slowest, float64(r.decided)/float64(time.Millisecond))
}

// admit puts an admitted request to the audit that it is for, if its way has a limit. c.mu is
// held.
func (c *counts) admit(r reply) {
	sent, got := r.sent.Sub(c.began), r.got.Sub(c.began)
	switch ways[r.by] {
	case "exact", "leased":
		c.total.Redis.Admitted++
		c.redis.admit(sent, got)
	case "local":
		c.total.Shares.Admitted++
		c.shares.admit(sent, got)
	}
}

// skip counts a request that was not sent.
func (c *counts) skip() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next.Skipped++
}

// cut returns what was counted since it was called last.
func (c *counts) cut() sample {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	s := c.next
	s.At, s.Took = now.Sub(c.began).Milliseconds(), now.Sub(c.since).Milliseconds()
	c.next, c.since = sample{}, now
	c.total.Redis.look(&c.redis, now.Sub(c.began))
	c.total.Shares.look(&c.shares, now.Sub(c.began))
	return s
}

// sum returns what was counted since the beginning. The bursts are those of the last cut.
func (c *counts) sum() total {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.total
	t.Redis.Most, t.Shares.Most = c.redis.most(), c.shares.most() // of the same instant as Admitted
	return t
}
