package fleetbench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/limits"
)

// Servers is the number of limiters that share a limit, each with its own client.
const Servers = 4

// times is the load on the servers, as a multiple of the limit's rate.
const times = 3

// Share is the share of a limit that several servers could use under a load above it.
type Share struct {
	Mode    string        `json:"mode"` // ModeExact or ModeLeased
	Load    string        `json:"load"`
	Limit   bench.Limit   `json:"limit"`
	Servers int           `json:"servers"`
	Elapsed time.Duration `json:"elapsed_ns"` // from before the first call until after the last
	Calls   int64         `json:"calls"`
	// Admitted is the number of calls admitted by all servers, Each by each server.
	Admitted int64   `json:"admitted"`
	Each     []int64 `json:"each"`
	// Allowed is capacity + rate × Elapsed, Share its admitted part, Aim the goal of leased mode.
	Allowed int64   `json:"allowed"`
	Share   float64 `json:"share"`
	Aim     float64 `json:"aim"`
	// Over is the greatest excess over the limit in any window of time, or 0.
	Over int64 `json:"over"`
	// Neither is the number of calls answered neither by Redis nor on a lease.
	Neither int64 `json:"neither"`
}

// load spreads calls over the servers: at each time the parts add up to 1.
type load struct {
	name string
	aim  float64
	part func(server int, at time.Duration) float64
}

const (
	ModeExact  = "exact"
	ModeLeased = "leased"
)

// busy is the part of the load on the busy server.
const busy = 0.85

var loads = []load{
	{"even", 0.95, func(int, time.Duration) float64 { return 1.0 / Servers }},
	{"skewed", 0.90, func(server int, _ time.Duration) float64 { return partOf(server == 0) }},
	// The busy server changes each second.
	{"shifting", 0.85, func(server int, at time.Duration) float64 {
		return partOf(int(at/time.Second)%Servers == server)
	}},
}

func partOf(isBusy bool) float64 {
	if isBusy {
		return busy
	}
	return (1 - busy) / (Servers - 1)
}

type asker interface {
	Take(ctx context.Context, key string, n int64) (limits.Answer, error)
}

// measureShares measures all loads, modes and limits at the same time: none needs much.
func measureShares(ctx context.Context, addr string, limits []bench.Limit, length time.Duration) ([]Share, error) {
	var cases []*shareCase
	defer func() {
		for _, c := range cases {
			c.close()
		}
	}()
	for _, limit := range limits {
		for _, load := range loads {
			for _, mode := range []fleet.Mode{fleet.Exact, fleet.Leased} {
				c, err := newShareCase(addr, mode, load, limit)
				if err != nil {
					return nil, err
				}
				cases = append(cases, c)
			}
		}
	}
	var done sync.WaitGroup
	for _, c := range cases {
		done.Go(func() { c.drive(ctx, length) })
	}
	done.Wait()
	if ctx.Err() != nil {
		return nil, nil // a share that was cut short says nothing
	}
	shares := make([]Share, len(cases))
	for i, c := range cases {
		shares[i] = c.share
	}
	return shares, nil
}

type shareCase struct {
	share   Share
	load    load
	askers  []asker
	closers []func() error
}

func newShareCase(addr string, mode fleet.Mode, load load, limit bench.Limit) (*shareCase, error) {
	name := map[fleet.Mode]string{fleet.Exact: ModeExact, fleet.Leased: ModeLeased}[mode]
	c := &shareCase{load: load, share: Share{Mode: name, Load: load.name, Limit: limit, Servers: Servers, Aim: load.aim}}
	p, err := funnel(limit)
	if err != nil {
		return nil, err
	}
	for range Servers {
		l, err := fleet.New(fleet.Config{
			Redis:  rueidis.ClientOption{InitAddress: []string{addr}},
			Name:   fmt.Sprintf("share-%s-%s-%d", name, load.name, limit.Count),
			Policy: p, Mode: mode, Budget: patience, Outage: fleet.FallbackClosed,
		})
		if err != nil {
			c.close()
			return nil, err
		}
		c.askers = append(c.askers, l)
		c.closers = append(c.closers, l.Close)
	}
	return c, nil
}

func (c *shareCase) close() {
	for _, do := range c.closers {
		_ = do() // the share was measured already
	}
}

// drive asks the servers for a key and fills in the share. Calls come at random, independently of
// each other and of the answers.
func (c *shareCase) drive(ctx context.Context, length time.Duration) {
	perSecond := times * float64(c.share.Limit.Count) / c.share.Limit.Per.Seconds()
	callers := max(1, min(16, int(perSecond/20)))
	all := make([]shareCaller, Servers*callers)
	var done sync.WaitGroup
	start := time.Now()
	for i := range all {
		all[i] = shareCaller{
			asker: c.askers[i/callers], random: rand.New(rand.NewPCG(uint64(i), 1)),
			rate: perSecond * busy / float64(callers),
			take: func(at time.Duration) float64 { return c.load.part(i/callers, at) / busy },
		}
		done.Go(func() { all[i].work(ctx, start, length) })
	}
	done.Wait()
	end := time.Now()

	// Redis goes by the wall clock: if it gained on the monotonic clock, Redis allows more.
	elapsed := end.Sub(start)
	gained := max(0, end.Round(0).Sub(start.Round(0))-elapsed)
	c.sum(all, callers, elapsed, gained)
}

func (c *shareCase) sum(all []shareCaller, callers int, elapsed, gained time.Duration) {
	s := &c.share
	s.Elapsed = elapsed + gained
	s.Each = make([]int64, Servers)
	var passed []span
	for i, caller := range all {
		s.Calls += caller.calls
		s.Neither += caller.neither
		s.Each[i/callers] += int64(len(caller.passed))
		for _, p := range caller.passed {
			p.end += gained
			passed = append(passed, p)
		}
	}
	s.Admitted = int64(len(passed))
	s.Allowed = s.Limit.Most(s.Elapsed)
	s.Share = float64(s.Admitted) / float64(s.Allowed)
	s.Over = max(over(s.Limit, passed), s.Admitted-s.Allowed, 0)
}

func (s Share) Err() error {
	if s.Over == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s mode, %s load: %d more than allowed in some window of time, %d of %d in all",
		ErrOver, s.Mode, s.Load, s.Over, s.Admitted, s.Allowed)
}

// ErrOver says that more was admitted than the limit allows.
var ErrOver = errors.New("more was admitted than the limit allows")

type shareCaller struct {
	asker  asker
	random *rand.Rand
	rate   float64                        // the most calls a second
	take   func(at time.Duration) float64 // the probability of such a call

	calls, neither int64
	passed         []span
}

func (c *shareCaller) work(ctx context.Context, start time.Time, length time.Duration) {
	for next := time.Duration(0); ctx.Err() == nil; {
		next += time.Duration(c.random.ExpFloat64() / c.rate * float64(time.Second))
		if next >= length {
			return
		}
		if c.random.Float64() >= c.take(next) {
			continue
		}
		time.Sleep(next - time.Since(start))
		begin := time.Since(start)
		a, err := c.asker.Take(ctx, "key", 1)
		c.calls++
		if err != nil || a.Source() != limits.SourceRedis && a.Source() != limits.SourceLease {
			c.neither++
		}
		if a.Allowed {
			c.passed = append(c.passed, span{begin, time.Since(start)})
		}
	}
}
