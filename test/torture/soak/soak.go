package soak

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/test/torture/internal/fault"
)

type Load struct {
	Seed    uint64
	Keys    int           // known keys, in use all the time
	Callers int           // goroutines
	Period  time.Duration // length of each period, with faults and without in turn
	Every   time.Duration // from one fault to the next
}

const (
	capacity = 20
	rate     = 10 // a second

	newOneIn    = 256 // calls go to a key that was never used, if the table is less than half full
	watchedKeys = 64  // are counted,
	watchOneIn  = 16  // and called so often that they are at their limit

	idle     = 2 * time.Second
	stall    = 20 * time.Millisecond
	backstep = time.Second
	burst    = 4096 // calls on new keys at once: more than the queue holds
)

// Period holds the measurements of a period.
type Period struct {
	Faulty  bool
	Calls   uint64 // a second
	Faults  int
	Longest time.Duration // of all calls, on the wall
	Heap    uint64        // in use afterwards
	Keys    int
}

type Soak struct {
	load     Load
	engine   *engine.Engine[uint64]
	sabotage *fault.Switch
	begin    time.Time
	behind   atomic.Int64 // time by which the engine's clock is
	watched  [watchedKeys]atomic.Int64
	fresh    atomic.Uint64
	burst    atomic.Int64 // number of the next calls that go to new keys
}

func Start(load Load) (*Soak, error) {
	soak := &Soak{load: load, sabotage: &fault.Switch{Stall: stall}, begin: time.Now()}
	e, err := engine.New[uint64](engine.Config{
		Policy: soak.sabotage.Wrap(policy.Must(policy.Funnel(capacity, rate, time.Second))),
		Idle:   idle, MaxKeys: 4 * load.Keys, Restarts: 1 << 30,
		Clock: func() policy.Instant { return policy.Instant(int64(time.Since(soak.begin)) - soak.behind.Load()) },
	})
	if err != nil {
		return nil, err
	}
	soak.engine = e
	soak.fresh.Store(1 << 32)
	for key := range load.Keys {
		soak.choke(uint64(key))
	}
	return soak, nil
}

func (s *Soak) choke(key uint64) {
	if s.engine.Choke(key) && key < watchedKeys {
		s.watched[key].Add(1)
	}
}

// Run lets all callers call for a period and returns the measurements.
func (s *Soak) Run(faulty bool) Period {
	period := Period{Faulty: faulty}
	var over atomic.Bool
	var calls atomic.Uint64
	var longest atomic.Int64
	var callers sync.WaitGroup
	begin := time.Now()
	for i := range s.load.Callers {
		callers.Go(func() {
			dice := rand.New(rand.NewPCG(s.load.Seed, uint64(i)))
			n, most := uint64(0), time.Duration(0)
			for ; !over.Load(); n++ {
				key := dice.Uint64N(uint64(s.load.Keys))
				switch {
				case n%newOneIn == 0 && s.engine.Len() < 2*s.load.Keys, s.burst.Load() > 0 && s.burst.Add(-1) >= 0:
					key = s.fresh.Add(1)
				case n%watchOneIn == 0:
					key %= watchedKeys
				}
				if n%64 > 0 {
					s.choke(key)
					continue
				}
				called := time.Now()
				s.choke(key)
				most = max(most, time.Since(called))
			}
			calls.Add(n)
			for was := longest.Load(); int64(most) > was && !longest.CompareAndSwap(was, int64(most)); {
				was = longest.Load()
			}
		})
	}
	period.Faults = s.breaking(faulty, begin)
	over.Store(true)
	callers.Wait()
	period.Calls = uint64(float64(calls.Load()) / time.Since(begin).Seconds())
	period.Longest = time.Duration(longest.Load())
	period.memory(s)
	return period
}

func (p *Period) memory(soak *Soak) {
	p.Keys = soak.engine.Len()
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	p.Heap = memory.HeapAlloc
}

func (p *Period) PerKey() uint64 { return p.Heap / uint64(max(p.Keys, 1)) }

// Rest waits until all keys have left, limit at most. It returns the rest and the time taken.
func (s *Soak) Rest(limit time.Duration) (left Period, took time.Duration) {
	begin := time.Now()
	for s.engine.Len() > 0 && time.Since(begin) < limit {
		time.Sleep(10 * time.Millisecond)
	}
	took = time.Since(begin)
	left.memory(s)
	return left, took
}

// breaking waits until the period is over, with faults if faulty. It returns their number.
func (s *Soak) breaking(faulty bool, begin time.Time) (faults int) {
	for at := s.load.Every; at < s.load.Period; at += s.load.Every {
		// On a busy machine it wakes late, and the next fault follows sooner.
		time.Sleep(time.Until(begin.Add(at)))
		if !faulty {
			continue
		}
		switch faults % 5 {
		case 0:
			s.strike(fault.Panic)
		case 1:
			s.strike(fault.Stall)
		case 2:
			s.strike(fault.Goexit)
		case 3:
			s.behind.Store(int64(backstep))
		case 4:
			s.behind.Store(0)
			s.burst.Store(burst)
		}
		faults++
	}
	time.Sleep(time.Until(begin.Add(s.load.Period)))
	s.behind.Store(0)
	s.sabotage.Arm(fault.None)
	return faults
}

// strike waits until the writer has failed.
func (s *Soak) strike(kind fault.Kind) {
	fired := s.sabotage.Fired()
	s.sabotage.Arm(kind)
	for s.sabotage.Fired() == fired {
		time.Sleep(time.Millisecond)
	}
}

// Judge returns the broken promises.
func (s *Soak) Judge() error {
	most := int64(capacity + time.Since(s.begin)*rate/time.Second + 1)
	for key := range s.watched {
		if n := s.watched[key].Load(); n > most {
			return fmt.Errorf("key %d passed %d times, and the limit allows %d", key, n, most)
		}
	}
	stats := s.engine.Stats()
	switch {
	case s.engine.Health() != nil:
		return s.engine.Health()
	case stats.Forgiven > 0 || stats.Unavailable > 0 || stats.Full > 0:
		return fmt.Errorf("the table has room for all, but %+v", stats)
	case s.sabotage.Fired() > 0 && stats.Restarts == 0:
		return fmt.Errorf("faults struck %d times, and nothing was restarted", s.sabotage.Fired())
	}
	return nil
}

func (s *Soak) Close() error { return s.engine.Close() }

func (s *Soak) Stats() engine.Stats { return s.engine.Stats() }

// Watched returns the number of admitted calls on all watched keys.
func (s *Soak) Watched() (n int64) {
	for i := range s.watched {
		n += s.watched[i].Load()
	}
	return n
}

// Ratio returns the median throughput with faults, divided by the median without.
func Ratio(periods []Period) float64 {
	var with, without []uint64
	for _, period := range periods {
		if period.Faulty {
			with = append(with, period.Calls)
		} else {
			without = append(without, period.Calls)
		}
	}
	return median(with) / median(without)
}

func median(n []uint64) float64 {
	slices.Sort(n)
	return float64(n[(len(n)-1)/2]+n[len(n)/2]) / 2
}
