package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// connections is how many the load has to each server.
const connections = 32

// patterns are the weights of the servers, whole numbers, by the time since a pattern was chosen.
var patterns = map[string]func(since time.Duration) [servers]float64{
	"even":   func(time.Duration) [servers]float64 { return [servers]float64{1, 1, 1} },
	"skewed": func(time.Duration) [servers]float64 { return [servers]float64{8, 1, 1} },
	// The most goes to each in turn.
	"shifting": func(since time.Duration) [servers]float64 {
		w := [servers]float64{1, 1, 1}
		w[int(since/(4*time.Second))%servers] = 8
		return w
	},
}

// load is the visitors of the fleet: it sends requests to the servers at a steady rate,
// and counts what becomes of them.
type load struct {
	servers []*server
	counts  *counts
	client  *http.Client
	queues  []chan struct{}

	mu sync.Mutex // held for all below
	plan
	since time.Time // when the pattern was chosen
}

// plan is what load is wanted.
type plan struct {
	Pattern string  `json:"pattern"`
	Demand  float64 `json:"demand"` // requests a second
}

func newLoad(servers []*server, c *counts, demand float64) *load {
	l := &load{
		servers: servers, counts: c,
		client: &http.Client{
			Timeout:   2 * time.Second,
			Transport: &http.Transport{MaxIdleConnsPerHost: connections, DisableCompression: true},
		},
		plan: plan{Pattern: "even", Demand: demand}, since: time.Now(),
	}
	for range servers {
		l.queues = append(l.queues, make(chan struct{}))
	}
	return l
}

// most is how many requests a second can be asked for.
const most = 1e6

// set changes the load.
func (l *load) set(p plan) error {
	if patterns[p.Pattern] == nil {
		return notOne("pattern", p.Pattern, patterns)
	}
	if !(p.Demand >= 0 && p.Demand <= most) {
		return fmt.Errorf("a demand of %v is not between 0 and %v a second", p.Demand, most)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.Pattern != l.Pattern {
		l.since = time.Now()
	}
	l.plan = p
	return nil
}

// now is what load is wanted, and how it is spread at this time.
func (l *load) now() (plan, [servers]float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.plan, patterns[l.Pattern](time.Since(l.since))
}

// run sends requests until the context ends, and waits for their answers.
func (l *load) run(ctx context.Context) {
	var sending sync.WaitGroup
	for i, queue := range l.queues {
		for range connections {
			sending.Go(func() {
				for range queue {
					l.counts.add(i, l.send(ctx, i))
				}
			})
		}
	}
	l.pace(ctx)
	for _, queue := range l.queues {
		close(queue)
	}
	sending.Wait()
	l.client.CloseIdleConnections()
}

// pace hands out requests as they are due. Those for which the machine was too slow are
// not made up for: that would be a burst.
func (l *load) pace(ctx context.Context) {
	const beat, behind = 2 * time.Millisecond, 50 * time.Millisecond
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	var spread spread
	due := 0.0
	for before := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			plan, weights := l.now()
			due += plan.Demand * min(now.Sub(before), behind).Seconds()
			before = now
			for ; due >= 1; due-- {
				select {
				case l.queues[spread.next(weights)] <- struct{}{}:
				default:
					l.counts.skip() // all connections are busy
				}
			}
		}
	}
}

// spread deals requests to servers: in each round as many to each as its weight, in random
// order. In a fixed order and at a fixed pace the requests would keep in step with the
// limit: of three times as many as it admits, the same server would send the first one
// after each unit has drained, and get nearly all of them.
type spread struct {
	weights [servers]float64
	round   []int
}

func (s *spread) next(weights [servers]float64) int {
	if weights != s.weights || len(s.round) == 0 {
		s.weights, s.round = weights, s.round[:0]
		for i, w := range weights {
			for range int(w) {
				s.round = append(s.round, i)
			}
		}
		rand.Shuffle(len(s.round), func(i, j int) { s.round[i], s.round[j] = s.round[j], s.round[i] })
	}
	last := len(s.round) - 1
	to := s.round[last]
	s.round = s.round[:last]
	return to
}

// reply is what became of a request.
type reply struct {
	sent, got time.Time
	by        int // of ways
	admitted  bool
	lost      bool          // there was no answer
	decided   time.Duration // how long the limiter took, as the server measured it
}

// ways are how answers are reached, as fleet.Source names them.
var ways = [...]string{"exact", "leased", "local", "open", "closed"}

var errStrange = errors.New("a strange answer")

// send sends one request.
func (l *load) send(ctx context.Context, to int) reply {
	r := reply{sent: time.Now()}
	err := l.exchange(ctx, "http://"+*l.servers[to].addr.Load()+"/", &r)
	r.got, r.lost = time.Now(), err != nil
	return r
}

func (l *load) exchange(ctx context.Context, url string, r *reply) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := l.client.Do(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return err
	}
	r.admitted = answer.StatusCode == http.StatusOK
	if !r.admitted && answer.StatusCode != http.StatusTooManyRequests {
		return errStrange
	}
	ms, err := strconv.ParseFloat(strings.TrimPrefix(answer.Header.Get(timingField), "limit;dur="), 64)
	if err != nil {
		return err
	}
	r.decided = time.Duration(ms * float64(time.Millisecond))
	for i, way := range ways {
		if way == answer.Header.Get(byField) {
			r.by = i
			return nil
		}
	}
	return errStrange
}
