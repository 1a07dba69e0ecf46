package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ral-limiter/ral/policy"
)

const (
	// servers is how many there are.
	servers = 3
	// tick is how often it is looked how all is going.
	tick = 200 * time.Millisecond
	// remembered is how many ticks the page can look back.
	remembered = 300
	// told is how many notes the page shows.
	told = 30
)

// stage is all that is shown: a Redis, web servers that share it, the load on them, and
// what is counted of it.
type stage struct {
	settings settings
	began    time.Time
	redis    *redis
	servers  [servers]*server
	load     *load
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex // held for all below
	samples []sample   // the last ones
	notes   []note     // the last ones
}

// note is what happened.
type note struct {
	At   int64  `json:"at"`  // in milliseconds since it began
	Who  string `json:"who"` // "" is the user
	Text string `json:"text"`
}

// open starts everything.
func open(ctx context.Context, s settings, program string) (_ *stage, err error) {
	g := &stage{settings: s, began: time.Now(), stop: func() {}}
	if g.redis, err = openRedis(program, func(text string) { g.note("", text) }); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	for i := range g.servers {
		name := fmt.Sprintf("server %d", i+1)
		g.servers[i] = &server{
			name: name,
			args: append([]string{serveCommand, "-at", g.redis.Addr()}, s.args()...),
			log:  func(text string) { g.note(name, text) },
		}
		if err := g.servers[i].start(); err != nil {
			return nil, err
		}
	}
	limit, err := s.limit()
	if err != nil {
		return nil, err
	}
	capacity := float64(limit.Limit())
	rate := capacity / limit.(policy.Windowed).Window().Seconds()
	g.load = newLoad(g.servers[:], newCounts(g.began, capacity, rate), 3*rate)

	ctx, g.stop = context.WithCancel(ctx)
	g.running.Go(func() { g.load.run(ctx) })
	g.every(ctx, func() { g.redis.probe() })
	for _, s := range g.servers {
		g.every(ctx, func() { s.look(ctx) })
	}
	g.every(ctx, g.sample)
	return g, nil
}

// every does something at each tick until the context ends.
func (g *stage) every(ctx context.Context, do func()) {
	g.running.Go(func() {
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				do()
			case <-ctx.Done():
				return
			}
		}
	})
}

// close ends everything: the load, the servers, which give back what they have leased,
// and Redis.
func (g *stage) close() error {
	g.stop()
	g.running.Wait()
	var closing sync.WaitGroup
	for _, s := range g.servers {
		if s != nil {
			closing.Go(s.close)
		}
	}
	closing.Wait()
	return g.redis.close()
}

func (g *stage) note(who, text string) {
	n := note{time.Since(g.began).Milliseconds(), who, text}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.notes = last(told, append(g.notes, n))
}

func (g *stage) sample() {
	s := g.load.counts.cut()
	s.Redis = g.redis.state()
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.samples); n > 0 {
		s.Seq = g.samples[n-1].Seq + 1
	}
	g.samples = last(remembered, append(g.samples, s))
}

// last returns the last n of all, in a slice that does not grow for ever.
func last[T any](n int, all []T) []T {
	if len(all) <= n {
		return all
	}
	copy(all, all[len(all)-n:])
	return all[:n]
}
