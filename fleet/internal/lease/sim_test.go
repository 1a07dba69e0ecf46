package lease

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/lease/plan"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
)

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed of TestLimitHoldsWhateverBreaks")
	seeds     = flag.Uint64("seeds", 0, "how many there are; 0 is as many as take a few seconds")
)

type admission struct {
	key string
	at  policy.Instant
	n   int64
}

type audit struct {
	mu  sync.Mutex
	all []admission
}

func (a *audit) add(key string, instant policy.Instant, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, admission{key, instant, n})
}

// fault returns an error if the admissions break the limit. s is the shape of the whole limit.
func (a *audit) fault(s shape.Shape, m *memory) error {
	byKey := map[string][]admission{}
	for _, x := range a.all {
		byKey[x.key] = append(byKey[x.key], x)
	}
	for key, list := range byKey {
		slices.SortFunc(list, func(x, y admission) int { return int(x.at - y.at) })
		var err error
		var used int64
		for _, x := range list {
			used += x.n
		}
		switch s.Kind {
		case shape.Funnel:
			err = overflows(list, s.Capacity, s.Count, s.Per)
		case shape.SlidingWindow:
			err = overflows(list, s.Limit, s.Limit, s.Per)
		case shape.FixedWindow:
			err = crowds(list, s.Limit, s.Per)
		}
		if paid := m.payment(key); err == nil && used > paid {
			err = fmt.Errorf("%d units were used, of %d that were paid and not given back", used, paid)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// overflows finds a window of any length t with more than capacity + count*t/per: then a bucket of
// that capacity and rate overflows.
func overflows(list []admission, capacity, count int64, per time.Duration) error {
	// level is in units/per.
	level, last := int64(0), policy.Instant(0)
	for _, x := range list {
		// After a hundred periods it has drained, and an int64 might overflow.
		gone := min(int64(x.at-last), 100*int64(per)*(capacity/count+1))
		level = max(level-gone*count, 0) + x.n*int64(per)
		last = x.at
		if level > capacity*int64(per) {
			return fmt.Errorf("at %d: %.3f above %d", x.at, float64(level)/float64(per), capacity)
		}
	}
	return nil
}

// crowds finds a window of any length t with more than limit*(1 + t/per), t/per rounded up.
func crowds(list []admission, limit int64, per time.Duration) error {
	for i, first := range list {
		var sum int64
		for _, x := range list[i:] {
			sum += x.n
			k := (int64(x.at-first.at) + int64(per) - 1) / int64(per)
			if sum > limit*(1+max(k, 1)) {
				return fmt.Errorf("from %d to %d: %d, of a limit of %d", first.at, x.at, sum, limit)
			}
		}
	}
	return nil
}

// one runs the test on one processor: runs repeat except within one instant. On several, bubbles of
// Go 1.26 sometimes stand still (golang/go#76052).
func one(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

type chance struct{ *rand.Rand }

func (r chance) in(part float64) bool { return r.Float64() < part }

// between is evenly spread over the orders of magnitude.
func (r chance) between(least, most time.Duration) time.Duration {
	d := least
	for d < most && r.in(0.7) {
		d *= 2
	}
	return min(d+time.Duration(r.Int64N(int64(d))), most)
}

func (r chance) limit() policy.Policy {
	n := 2 + r.Int64N(8)<<r.IntN(5)
	per := r.between(20*time.Millisecond, time.Second)
	switch r.IntN(3) {
	case 0:
		// It drains in 25 ms or more, and its count differs from its capacity.
		return policy.Must(policy.Funnel(n, 1+r.Int64N(n), per+5*time.Millisecond))
	case 1:
		return policy.Must(policy.FixedWindow(n, per))
	}
	return policy.Must(policy.SlidingWindow(n, per))
}

type simulation struct {
	seed   uint64
	chance chance
	limit  policy.Policy
	plan   *plan.Plan
	bank   *memory
	audit  audit
	// wires is the part of messages that suffer.
	wires   float64
	panics  float64
	slow    time.Duration
	maxKeys int
	end     time.Time
	running sync.WaitGroup
}

// part returns an actor's own chance, so that the order of actors does not matter.
func (s *simulation) part() chance { return chance{rand.New(rand.NewPCG(s.chance.Uint64(), s.seed))} }

func newSimulation(seed uint64) *simulation {
	s := &simulation{seed: seed, chance: chance{rand.New(rand.NewPCG(seed, 0))}}
	for s.plan == nil {
		s.limit = s.chance.limit()
		s.plan, _ = plan.New(s.limit, s.chance.between(plan.ShortestTerm, 500*time.Millisecond))
	}
	s.bank = newMemory(s.plan)
	s.bank.ppm = s.chance.Int64N(2001) - 1000
	if s.chance.in(0.7) {
		s.wires = s.chance.Float64() * 0.3
	}
	if s.chance.in(0.3) {
		s.panics = s.chance.Float64() * 0.2
	}
	s.slow = s.chance.between(200*time.Microsecond, 2*s.plan.Term)
	s.maxKeys = 1 << s.chance.IntN(4)
	s.end = time.Now().Add(time.Duration(4+s.chance.IntN(8)) * s.plan.Term)
	return s
}

func (s *simulation) wire(r chance) *wire {
	return &wire{
		bank: s.bank,
		trip: func() time.Duration { return 100*time.Microsecond + time.Duration(r.Int64N(int64(s.slow))) },
		fault: func() (f fault) {
			if !r.in(s.wires) {
				return fault{}
			}
			switch r.IntN(4) {
			case 0:
				f.lost = true
			case 1:
				f.mute = true
			case 2:
				f.early = r.between(time.Millisecond, 2*s.plan.Term)
			default:
				f.late = r.between(time.Millisecond, 2*s.plan.Term)
			}
			return f
		},
	}
}

// server runs a server for several lives.
func (s *simulation) server(t require.TestingT, r chance) {
	for time.Now().Before(s.end) {
		var mu sync.Mutex
		dice := chance{rand.New(rand.NewPCG(r.Uint64(), 3))}
		l, err := newLeases(Config{
			Plan: s.plan, Bank: s.wire(chance{rand.New(rand.NewPCG(r.Uint64(), 1))}), MaxKeys: s.maxKeys,
			Timeout: r.between(time.Millisecond, 3*s.plan.Term),
			Servers: func() int { return 3 }, seed: r.Uint64() | 1, always: r.in(0.5),
			fault: func(point string) {
				mu.Lock()
				defer mu.Unlock()
				if dice.in(s.panics) {
					panic("injected at " + point)
				}
			},
		})
		require.NoError(t, err)
		var callers sync.WaitGroup
		life := min(r.between(time.Millisecond, 8*s.plan.Term), time.Until(s.end)) // wall: in bubbles alone
		until := time.Now().Add(life)
		for range 1 + r.IntN(4) {
			own := chance{rand.New(rand.NewPCG(r.Uint64(), 2))}
			callers.Go(func() { s.calls(t, l, own, until) })
		}
		time.Sleep(life) // wall: in bubbles alone
		if r.in(0.7) {
			l.Kill()
		} else {
			ctx, cancel := context.WithTimeout(context.Background(), s.plan.Term) // wall: in bubbles alone
			_ = l.Close(ctx)
			cancel()
		}
		callers.Wait()
		time.Sleep(r.between(100*time.Microsecond, s.plan.Term)) // wall: in bubbles alone
	}
}

// calls makes the calls of one caller.
func (s *simulation) calls(t require.TestingT, l *Leases, r chance, until time.Time) {
	pace := r.between(50*time.Microsecond, s.plan.Term)
	for time.Now().Before(until) {
		time.Sleep(time.Duration(r.ExpFloat64()*float64(pace)) + 1) // wall: in bubbles alone
		key, n := fmt.Sprint("key-", r.IntN(1+r.IntN(4))), int64(1)
		if r.in(0.1) {
			n = 1 + r.Int64N(s.plan.Limit())
		}
		d, err := takeFrom(l, key, n, r.between(100*time.Microsecond, s.plan.Term))
		if err == nil && d.Allowed {
			s.audit.add(key, s.bank.now(), n)
		}
		switch {
		case errors.Is(err, ErrClosed):
			return
		case err == nil && !d.Allowed && d.RetryAfter <= 0, err == nil && d.Limit != s.plan.Limit():
			t.Errorf("the answer is %+v", d)
		}
	}
}

func (s *simulation) String() string {
	return fmt.Sprintf("seed %d: %v in terms of %v, %d ppm, round trips to %v, %.0f%% of messages suffer, %.0f%% of exchanges panic twice",
		s.seed, s.limit, s.plan.Term, s.bank.ppm, s.slow, 100*s.wires, 100*s.panics)
}

// Whatever dies, gets lost or is late, and however clocks drift: servers keep the limit in every
// window, and each unit is paid before use. To repeat a seed: -run Whatever -seed 17 -seeds 1 -v
// Promise: Leases keep the limit in any window, whatever is killed.
func TestLimitHoldsWhateverBreaks(t *testing.T) {
	one(t)
	count := *seeds
	if count == 0 {
		count = 200
		if testenv.Race || testing.Short() {
			count = 40
		}
	}
	var admitted, paid int64
	for seed := *firstSeed; seed < *firstSeed+count && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) {
			s := newSimulation(seed)
			for range 1 + s.chance.IntN(4) {
				r := s.part()
				s.running.Go(func() { s.server(t, r) })
			}
			s.running.Wait()
			// The wires are empty by then.
			time.Sleep(10 * s.plan.Term)
			if err := s.audit.fault(s.limit.(shape.Shaped).Shape(), s.bank); err != nil || t.Failed() {
				t.Fatalf("%v\n%v", err, s)
			}
			for _, x := range s.audit.all {
				admitted += x.n
			}
			s.bank.mu.Lock()
			defer s.bank.mu.Unlock()
			for _, n := range s.bank.paid {
				paid += n
			}
			if count == 1 {
				t.Log(s, len(s.audit.all), "admissions")
			}
		})
	}
	t.Logf("%d units were admitted, of %d that were paid and not given back", admitted, paid)
	require.Greater(t, admitted, 20*int64(count), "this tries nothing")
}
