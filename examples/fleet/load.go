package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// ways are the sources of answers, in words of limits.Source.
var ways = [...]string{"exact", "leased", "local", "open", "closed"}

// patterns are the servers' weights, by the time since a pattern was chosen.
var patterns = map[string]func(since time.Duration) [servers]float64{
	"even":   func(time.Duration) [servers]float64 { return [servers]float64{1, 1, 1} },
	"skewed": func(time.Duration) [servers]float64 { return [servers]float64{8, 1, 1} },
	// Each server has the most in turn.
	"shifting": func(since time.Duration) [servers]float64 {
		w := [servers]float64{1, 1, 1}
		w[int(since/(4*time.Second))%servers] = 8
		return w
	},
}

// load calls the servers at a steady rate, and counts their answers.
type load struct {
	servers        [servers]*server
	queues         [servers]chan struct{}
	began          time.Time
	capacity, rate float64 // of the limit, in calls and calls a second

	mu      sync.Mutex // guards all below
	plan    plan
	since   time.Time // when the pattern was chosen
	total   total
	next    sample
	samples []sample // the last samples
}

type plan struct {
	Pattern string  `json:"pattern"`
	Demand  float64 `json:"demand"` // calls a second
}

// total counts from the beginning. Redis, directly or by leases, keeps the limit, and so do the
// shares without it: two audits.
type total struct {
	Admitted int64 `json:"admitted"`
	Redis    audit `json:"redis"`
	Shares   audit `json:"shares"`
}

// audit compares admitted calls with the limit: the capacity, and the rate from the first admitted
// call's start to the last answer.
type audit struct {
	Admitted    int64 `json:"admitted"`
	Most        int64 `json:"most"`
	first, last time.Time
}

type sample struct {
	Seq     int              `json:"seq"`
	At      int64            `json:"at"`      // its end, in milliseconds from the beginning
	Took    int64            `json:"took"`    // its length, in milliseconds
	Redis   string           `json:"redis"`   // its state at the end
	Skipped int64            `json:"skipped"` // calls not made because all callers of the server waited
	Servers [servers]answers `json:"servers"`
}

type answers struct {
	Admitted [len(ways)]int64 `json:"admitted"` // by source
	Refused  [len(ways)]int64 `json:"refused"`
	Lost     int64            `json:"lost"`    // the server was stopped
	Slowest  float64          `json:"slowest"` // in milliseconds
}

func newLoad(servers [servers]*server, began time.Time, capacity, rate float64) *load {
	l := &load{servers: servers, capacity: capacity, rate: rate, plan: plan{"even", 3 * rate}, began: began, since: began}
	for i := range l.queues {
		l.queues[i] = make(chan struct{})
	}
	return l
}

func (l *load) set(plan plan) error {
	const most = 1e6
	if patterns[plan.Pattern] == nil {
		return fmt.Errorf("the pattern %q is none of even, skewed, shifting", plan.Pattern)
	}
	if !(plan.Demand >= 0 && plan.Demand <= most) {
		return fmt.Errorf("a demand of %v is not between 0 and %v a second", plan.Demand, most)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if plan.Pattern != l.plan.Pattern {
		l.since = time.Now()
	}
	l.plan = plan
	return nil
}

// run makes calls until the context ends, and waits for their answers. It drops late calls.
func (l *load) run(ctx context.Context) {
	var calling sync.WaitGroup
	for i, queue := range l.queues {
		for range 32 {
			calling.Go(func() {
				for range queue {
					l.call(i)
				}
			})
		}
	}
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	due, before := 0.0, time.Now()
	for ctx.Err() == nil {
		now := <-ticker.C
		l.mu.Lock()
		demand, weights := l.plan.Demand, patterns[l.plan.Pattern](now.Sub(l.since))
		l.mu.Unlock()
		due += demand * min(now.Sub(before), 50*time.Millisecond).Seconds()
		before = now
		for ; due >= 1; due-- {
			select {
			case l.queues[pick(weights)] <- struct{}{}:
			default:
				l.mu.Lock()
				l.next.Skipped++
				l.mu.Unlock()
			}
		}
	}
	for _, queue := range l.queues {
		close(queue)
	}
	calling.Wait()
}

// pick draws a server. In a fixed order calls could keep in step with the limit.
func pick(weights [servers]float64) int {
	at := rand.Float64() * (weights[0] + weights[1] + weights[2])
	for i, w := range weights {
		if at -= w; at < 0 {
			return i
		}
	}
	return servers - 1
}

// call makes a call and counts the answer. All calls have the same key.
func (l *load) call(to int) {
	limiter, sent := l.servers[to].limiter.Load(), time.Now()
	lost, way, allowed := true, 0, false
	if limiter != nil {
		if answer, err := limiter.Take(context.Background(), "everybody", 1); err == nil {
			lost, way, allowed = false, slices.Index(ways[:], answer.Source().String()), answer.Allowed
		}
	}
	got := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	answers := &l.next.Servers[to]
	switch {
	case lost:
		answers.Lost++
		return
	case allowed:
		answers.Admitted[way]++
		l.total.Admitted++
		switch ways[way] {
		case "exact", "leased":
			l.admit(&l.total.Redis, sent, got)
		case "local":
			l.admit(&l.total.Shares, sent, got)
		}
	default:
		answers.Refused[way]++
	}
	answers.Slowest = max(answers.Slowest, got.Sub(sent).Seconds()*1e3)
}

// admit adds to an audit. l.mu is held.
func (l *load) admit(audit *audit, sent, got time.Time) {
	if audit.Admitted++; audit.Admitted == 1 || sent.Before(audit.first) {
		audit.first = sent
	}
	if got.After(audit.last) {
		audit.last = got
	}
	audit.Most = int64(l.capacity + l.rate*audit.last.Sub(audit.first).Seconds())
}

func (l *load) cut(redis string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.next
	s.At, s.Redis = time.Since(l.began).Milliseconds(), redis
	if n := len(l.samples); n > 0 {
		s.Seq, s.Took = l.samples[n-1].Seq+1, s.At-l.samples[n-1].At
	}
	l.samples = append(l.samples, s)
	l.next, l.samples = sample{}, l.samples[max(0, len(l.samples)-120):]
}
