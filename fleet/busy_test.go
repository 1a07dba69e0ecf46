package fleet

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// busyRuns is how often TestBusyServerKeepsToRedis runs each of its loads.
var busyRuns = flag.Int("busy", 1, "how often TestBusyServerKeepsToRedis runs each of its loads")

const busyJob = "RAL_FLEET_TEST_BUSY"

type busyLoad struct {
	Addr, Name string
	Callers    int
	Work       time.Duration // between the calls of a caller, all of it computing
	Budget     time.Duration
	Calm       time.Duration // before Redis halts, and again from a second after it went on
	Halt       time.Duration // how long Redis answers nothing
	Keys       int
}

type busyCount struct {
	Calls   int64
	InTime  int64 // answered within the budget
	Exact   int64 // of those by Redis
	Late    int64 // answered by Redis after the budget
	Unasked int64 // Redis was not asked, as the breaker was open
	Slowest time.Duration
}

// busyPeriods bounds the periods of busyLoad.Calm until one is fine, from a second after Redis went
// on. A busy machine may spoil some.
const busyPeriods = 20

// busyReport has the phases: before Redis halts, until a second after, and the last period.
type busyReport struct {
	Phases   [3]busyCount
	Spoiled  int // periods that were not as they should be
	Openings uint64
}

func burn(d time.Duration) {
	for begun := time.Now(); time.Since(begun) < d; { // wall: it judges the machine, nightly
	}
}

func serveBusy() error {
	var j busyLoad
	if err := json.Unmarshal([]byte(os.Getenv(busyJob)), &j); err != nil {
		return err
	}
	p, err := policy.FixedWindow(1_000_000, time.Hour)
	if err != nil {
		return err
	}
	c := at(j.Addr, p)
	c.Name, c.Budget = j.Name, j.Budget
	l, err := New(c)
	if err != nil {
		return err
	}
	defer l.Close()
	admin, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{j.Addr}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		return err
	}
	defer admin.Close()

	var phase, ended atomic.Int32
	var lock sync.Mutex
	var counts [2 + busyPeriods]busyCount
	counted := func(phase int) busyCount {
		lock.Lock()
		defer lock.Unlock()
		return counts[phase]
	}
	var all sync.WaitGroup
	for i := range j.Callers {
		all.Go(func() {
			for n := i; ended.Load() == 0; n += j.Callers {
				burn(j.Work)
				during := phase.Load()
				begun := time.Now()
				a, err := l.Take(l.ctx, fmt.Sprint(n%j.Keys), 1)
				took := time.Since(begun) // wall: it judges the machine, nightly
				if err != nil {
					panic(err)
				}
				lock.Lock()
				counts[during].add(a, took, j.Budget)
				lock.Unlock()
			}
		})
	}
	time.Sleep(j.Calm) // wall: it judges the machine, nightly
	phase.Store(1)
	if err := admin.Do(l.ctx, admin.B().Arbitrary("CLIENT", "PAUSE", fmt.Sprint(j.Halt.Milliseconds()), "ALL").Build()).Error(); err != nil {
		return err
	}
	time.Sleep(j.Halt + time.Second) // wall: it judges the machine, nightly
	var r busyReport
	for r.Spoiled = 0; r.Spoiled < busyPeriods; r.Spoiled++ {
		phase.Store(int32(2 + r.Spoiled))
		time.Sleep(j.Calm) // wall: it judges the machine, nightly
		if r.Phases[2] = counted(2 + r.Spoiled); r.Phases[2].fine() {
			break
		}
	}
	ended.Store(1)
	all.Wait()
	r.Phases[0], r.Phases[1] = counted(0), counted(1)
	r.Openings = l.Stats().Openings
	return json.NewEncoder(os.Stdout).Encode(r)
}

func (c *busyCount) add(a limits.Answer, took, budget time.Duration) {
	c.join(busyCount{
		Calls: 1, InTime: count(took <= budget), Exact: count(took <= budget && a.Source() == limits.SourceRedis),
		Late: count(took > budget && a.Source() == limits.SourceRedis), Unasked: count(errors.Is(a.Err(), ErrBreakerOpen)), Slowest: took,
	})
}

func (c *busyCount) join(o busyCount) {
	c.Calls += o.Calls
	c.InTime += o.InTime
	c.Exact += o.Exact
	c.Late += o.Late
	c.Unasked += o.Unasked
	c.Slowest = max(c.Slowest, o.Slowest)
}

// fine reports whether Redis answered 95% of the calls in time, and some, and the breaker was open
// for a twentieth at most.
func (c *busyCount) fine() bool {
	return 20*c.Exact >= 19*c.InTime && c.Exact+c.Late > 0 && 20*c.Unasked <= c.Calls
}

func (c busyCount) String() string {
	return fmt.Sprintf("%d calls: %d in their budget, %d of those exact (%.1f%%), %d exact and late, %d not asked, slowest %v",
		c.Calls, c.InTime, c.Exact, 100*float64(c.Exact)/float64(max(c.InTime, 1)), c.Late, c.Unasked, c.Slowest)
}

// TestBusyServerKeepsToRedis has servers compute all the time, so that calls wait longer for a
// processor than for Redis, and halts Redis for a tenth of a second. From a second later on,
// in the first period that the machine does not spoil,
//
//  1. Redis answers 95% of the calls that are answered within the budget;
//  2. the breaker is open for at most one call in twenty, as when Redis lacks a processor;
//  3. Redis answers some calls that wait for a processor for longer than the budget;
//
// and there are few openings over all. Each is a share of calls, however few.
//
// Promise: A server short of processors keeps a Redis that answers.
func TestBusyServerKeepsToRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("it judges the time of a machine: guard.TestLateAnswersAreLife and its neighbours count ticks")
	}
	for _, c := range []struct {
		name      string
		processes int
		callers   int
		env       []string
	}{
		{"32 callers", 1, 32, nil},
		{"64 callers on one processor", 1, 64, []string{"GOMAXPROCS=1"}},
		{"two servers", 2, 32, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range *busyRuns {
				redis := redistest.Start(t, redistest.Options{})
				load := busyLoad{
					Addr: redis.Addr(), Name: name(), Budget: defaultBudget, Callers: c.callers, Keys: 100,
					Work: 100 * time.Microsecond, Calm: 300 * time.Millisecond, Halt: 100 * time.Millisecond,
				}
				servers := make([]*process, c.processes)
				for i := range servers {
					servers[i] = start(t, busyJob, load, c.env...)
				}
				for _, s := range servers {
					var r busyReport
					s.hear(t, &r)
					for i, when := range []string{"before", "halt and a second", "after"} {
						t.Logf("%s: %v", when, r.Phases[i])
					}
					t.Logf("%d openings, %d spoiled periods", r.Openings, r.Spoiled)
					assert.True(t, r.Phases[2].fine())
					assert.LessOrEqual(t, r.Openings, uint64(10+2*r.Spoiled))
				}
			}
		})
	}
}

func count(is bool) int64 {
	if is {
		return 1
	}
	return 0
}
