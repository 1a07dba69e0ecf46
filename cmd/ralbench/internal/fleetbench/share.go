package fleetbench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/limits"
)

// times is the load on the servers, as a multiple of the limit's rate.
const times = 3

type asker interface {
	Take(ctx context.Context, key string, n int64) (limits.Answer, error)
}

// shares measures the usable shares of all workloads and modes at the same time, at the first use:
// none needs much.
type shares struct {
	addr      string
	workloads []bench.Workload
	once      sync.Once
	// cases are by workload and mode: see caseName.
	cases map[string]*shareCase
	err   error
}

// contender returns the servers of a mode as a contender.
func (s *shares) contender(contender bench.Contender, mode fleet.Mode) bench.Contender {
	contender.For = Shares("")
	contender.Measure = func(ctx context.Context, workload bench.Workload, duration time.Duration) (bench.Measured, error) {
		s.once.Do(func() { s.err = s.measure(ctx, duration) })
		if s.err != nil {
			return bench.Measured{}, fmt.Errorf("usable share: %w", s.err)
		}
		return s.cases[caseName(workload, mode)].measured, nil
	}
	return contender
}

func caseName(w bench.Workload, mode fleet.Mode) string { return fmt.Sprintf("%s-%d", w.Name, mode) }

func (s *shares) measure(ctx context.Context, length time.Duration) error {
	s.cases = map[string]*shareCase{}
	for _, workload := range slices.DeleteFunc(slices.Clone(s.workloads), func(w bench.Workload) bool { return !isShare(w) }) {
		for _, mode := range []fleet.Mode{fleet.Exact, fleet.Leased} {
			name := caseName(workload, mode)
			c := &shareCase{limit: workload.Limit}
			c.load = loads[slices.IndexFunc(loads, func(load load) bool { return shareName(load, workload.Limit) == workload.Name })]
			for range Servers {
				limiter, err := newFleet(s.addr, workload.Limit, fleet.Config{Name: name, Mode: mode, Budget: patience})
				if err != nil {
					return err
				}
				// The share was measured when they close.
				defer func() { _ = limiter.Close() }()
				c.askers = append(c.askers, limiter)
			}
			s.cases[name] = c
		}
	}
	var done sync.WaitGroup
	for _, shareCase := range s.cases {
		done.Go(func() { shareCase.drive(ctx, length) })
	}
	done.Wait()
	return nil
}

type shareCase struct {
	limit    bench.Limit
	load     load
	askers   []asker
	measured bench.Measured
}

// drive asks the servers for a key and fills in what was measured. Calls come at random, independently of
// each other and of the answers.
func (c *shareCase) drive(ctx context.Context, length time.Duration) {
	perSecond := times * float64(c.limit.Count) / c.limit.Per.Seconds()
	callers := max(1, min(16, int(perSecond/20)))
	all := make([]shareCaller, Servers*callers)
	var done sync.WaitGroup
	start := time.Now()
	for i := range all {
		all[i] = shareCaller{
			asker: c.askers[i/callers], random: rand.New(rand.NewPCG(uint64(i), 1)),
			rate: perSecond * busy / float64(callers),
			take: func(instant time.Duration) float64 { return c.load.part(i/callers, instant) / busy },
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
	audit := &bench.Audit{
		Promise: bench.LeakyBucket, Asked: elapsed + gained, Binds: true, Passes: 1,
		Limiters: Servers, Each: make([]int64, Servers), Own: new(bench.Counts),
	}
	var passed []span
	for i, caller := range all {
		audit.Calls += caller.calls
		audit.Own.Unavailable += caller.neither
		audit.Each[i/callers] += int64(len(caller.passed))
		for _, span := range caller.passed {
			span.end += gained
			passed = append(passed, span)
		}
	}
	audit.Admitted, audit.Allowed = int64(len(passed)), c.limit.Most(audit.Asked)
	audit.BucketAllowed, audit.Possible = audit.Allowed, audit.Allowed
	audit.Over = max(over(c.limit, passed), audit.Admitted-audit.Allowed, 0)
	c.measured = bench.Measured{
		Pass: bench.Pass{Calls: audit.Calls, Passed: audit.Admitted}, Audit: audit, Share: float64(audit.Admitted) / float64(audit.Allowed),
	}
}

type shareCaller struct {
	asker  asker
	random *rand.Rand
	rate   float64                             // the most calls a second
	take   func(instant time.Duration) float64 // the probability of such a call

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
		answer, err := c.asker.Take(ctx, "key", 1)
		c.calls++
		if err != nil || answer.Source() != limits.SourceRedis && answer.Source() != limits.SourceLease {
			c.neither++
		}
		if answer.Allowed {
			c.passed = append(c.passed, span{begin, time.Since(start)})
		}
	}
}
