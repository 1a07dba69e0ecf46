package engine

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/logbuffer"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/janitor"
	"github.com/ral-limiter/ral/supervisor"
	"github.com/ral-limiter/ral/table"
)

// load passes every point of the engine's goroutines: callers open keys, keys go idle, and the
// table is too small for all.
type load struct {
	t     *testing.T
	e     *Engine[string]
	clock *handClock
}

const loadKeys = 40

func newLoad(t *testing.T, f *faults) *load {
	clock := newHandClock()
	e := open[string](t, Config{
		Policy: funnel(1, 1, time.Second), Clock: clock.Now, Idle: time.Millisecond,
		MaxKeys: loadKeys + 8, QueueDepth: 4, OpenTimeout: time.Minute, Restarts: 1000, fault: f.at,
	})
	return &load{t: t, clock: clock, e: e}
}

// round has 8 callers choke the same unused keys of capacity 1. It returns the number of admitted
// calls.
func (l *load) round() int64 {
	var admitted atomic.Int64
	all := keys(loadKeys)
	together(8, func(i int) {
		for j := range all {
			if l.e.Choke(all[(i*5+j)%loadKeys]) {
				admitted.Add(1)
			}
		}
	})
	l.clock.Advance(time.Second + time.Millisecond)
	return admitted.Load()
}

// crowd opens too many keys, and reuses some just after they drained, unknown to the index.
func (l *load) crowd() {
	for i := range 3 * loadKeys {
		l.e.Choke(fmt.Sprintf("crowd-%d", i))
	}
	l.clock.Advance(time.Second)
	for i := range 3 * loadKeys {
		l.e.Choke(fmt.Sprintf("crowd-%d", i))
	}
	l.clock.Advance(2 * time.Millisecond)
	// The janitor has time.
	time.Sleep(2 * time.Millisecond)
	l.clock.Advance(time.Second)
}

// Each point at which a goroutine of the engine can die, once by panic and once by Goexit. Under
// load:
//
//  1. the process lives, and the death of the writer or janitor counts as a restart;
//  2. each key passes exactly once a round: nothing is forgotten or forgiven, and service is back
//     before any call gives up;
//  3. no call is answered without a word, as after OpenTimeout;
//  4. the engine is healthy;
//  5. table and index agree afterwards (in open's cleanup).
//
// Promise: The limit holds wherever the writer dies; the writer restarts at once.
func TestDeathAtEveryPoint(t *testing.T) {
	// Passed only when a goroutine does not stop, or at giving up: the supervisor's tests go there.
	elsewhere := []string{"escalate", "abandon"}
	// Passed at Close.
	closing := []string{"stop", "stopping", "finish"}

	points := slices.Concat(table.Points(), writerPoints(), janitor.Points(), supervisor.Points())
	for _, goexit := range []bool{false, true} {
		for _, point := range points {
			if slices.Contains(elsewhere, point) {
				continue
			}
			name := "panic at " + point
			if goexit {
				name = "Goexit at " + point
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := newFaults(goexit)
					l := newLoad(t, f)
					require.EqualValues(t, loadKeys, l.round())
					settled(t, l.e)

					f.arm(point, 1)
					next := int64(1)
					for rounds := 0; f.count(point) == 0 && !slices.Contains(closing, point); rounds++ {
						require.Less(t, rounds, 1000, "no round came by the point")
						// Some points are passed only after some restarts: a table that is empty
						// just then has nothing to recover.
						switch {
						case point == "janitor: begin":
							f.arm("janitor: look", 1)
						case strings.HasPrefix(point, "recover") || slices.Contains(supervisor.Points(), point),
							point == "writer: begin", point == "writer: settle", point == "adopt: begin":
							f.arm("writer: done", 1)
						}
						if strings.HasPrefix(point, "move") {
							// There must be a key.
							l.e.Choke("crowd-0")
						}
						if strings.HasPrefix(point, "change") || strings.HasPrefix(point, "move") {
							// The new figures have the same rate.
							next = 4 - next
							require.NoError(t, l.e.SetPolicy(funnel(1, next, time.Duration(next)*time.Second)))
						}
						if point == "sweep: refiled" {
							// Taken from again after it was filed, and before it leaves.
							l.e.Choke("again")
							settled(t, l.e)
							l.clock.Advance(time.Second)
							l.e.Choke("again")
						}
						l.crowd()
						l.settle()
					}
					for range 5 {
						require.EqualValues(t, loadKeys, l.round())
						l.settle()
					}
					require.NoError(t, l.e.Health())
					if strings.HasPrefix(point, "change") {
						require.NoError(t, l.e.SetPolicy(funnel(1, 2, 2*time.Second)), "the engine must go on as if nothing had happened")
						require.EqualValues(t, loadKeys, l.round())
					}
					s := l.e.Stats()
					assert.Zero(t, s.Unavailable)
					assert.Zero(t, s.Dropped)
					if !slices.Contains(supervisor.Points(), point) {
						assert.Positive(t, s.Restarts)
					}
					if slices.Contains(closing, point) {
						require.NoError(t, l.e.Close())
						assert.Equal(t, 1, f.count(point))
					}
				})
			})
		}
	}
}

// settle waits until the engine is at rest, and all keys may be evicted.
func (l *load) settle() {
	must.Await(l.t, func() bool {
		if l.e.Len() == 0 {
			return true
		}
		l.clock.Advance(time.Second)
		l.e.table.View().NoteLostFiling()
		return false
	}, "all keys leave")
}

// Promise: A command that kills the writer is retried once, then dropped and counted.
func TestCommandIsTriedAgainOnceThenDropped(t *testing.T) {
	for deaths, dropped := range map[int]uint64{1: 0, 2: 1, 3: 1} {
		t.Run(fmt.Sprintf("%d deaths", deaths), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFaults(false)
				e := open[string](t, Config{Policy: funnel(30, 1, time.Hour), fault: f.at})
				require.True(t, e.Choke("before"))
				synctest.Wait()
				f.arm("change: begin", deaths)
				require.NoError(t, e.SetPolicy(funnel(20, 1, time.Hour)), "SetPolicy must ask again after the writer died")
				require.True(t, e.Choke("behind"))
				synctest.Wait()
				s := e.Stats()
				assert.Equal(t, dropped, s.Dropped)
				assert.EqualValues(t, deaths, s.Restarts)
				assert.Zero(t, e.table.View().Landed(), "all keys must be filed")
				assert.EqualValues(t, 19, e.Peek("before", 0).Remaining)
				assert.EqualValues(t, 19, e.Peek("behind", 0).Remaining)
			})
		})
	}
}

// With the writer dying always:
//
//  1. Health says so, with the cause;
//  2. known keys, filed or only landed, are limited as before;
//  3. other keys are answered as WhenUnavailable says, and counted;
//  4. no call waits.
//
// Promise: Past `Restarts` the engine is unhealthy, limits known keys, and answers others by `WhenUnavailable`.
func TestPastTheIntensityTheEngineDegrades(t *testing.T) {
	for _, when := range []WhenUnavailable{Admit, Refuse} {
		t.Run(fmt.Sprint(when), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFaults(false)
				var events sync.Map
				var hold sync.WaitGroup
				e := open[string](t, Config{
					Policy: funnel(2, 1, time.Hour), WhenUnavailable: when,
					Restarts: 1, RestartPeriod: time.Second,
					fault: func(point string) {
						hold.Wait()
						f.at(point)
					},
					OnEvent: func(event Event) { events.Store(event.Kind, event) },
				})
				require.True(t, e.Choke("filed"))
				synctest.Wait()
				require.NoError(t, e.Health())

				f.arm("writer: received", -1)
				// The engine has a writer until the call is over.
				hold.Add(1)
				require.True(t, e.Choke("landed"))
				hold.Done()
				synctest.Wait()
				err := e.Health()
				require.ErrorIs(t, err, ErrUnhealthy)
				require.ErrorIs(t, err, supervisor.ErrIntensity)
				var died *supervisor.PanicError
				require.ErrorAs(t, err, &died)
				assert.Equal(t, "injected at writer: received", died.Value)
				_, told := events.Load(supervisor.Escalated)
				assert.True(t, told)
				assert.EqualValues(t, 1, e.Stats().Restarts)

				begin := time.Now()
				assert.True(t, e.Choke("filed"))
				assert.False(t, e.Choke("filed"))
				assert.False(t, e.Take("landed", 2).Allowed)
				for range 3 {
					assert.Equal(t, when == Admit, e.Choke("unknown"))
				}
				assert.EqualValues(t, 3, e.Stats().Unavailable)
				assert.Equal(t, begin, time.Now(), "a call waited for the writer")
			})
		})
	}
}

// Nothing else is logged, except failing saves.
//
// Promise: A degraded engine logs it by default.
func TestFaultsAreLoggedByDefault(t *testing.T) {
	was := slog.Default()
	defer slog.SetDefault(was)
	synctest.Test(t, func(t *testing.T) {
		var log logbuffer.Buffer
		slog.SetDefault(log.Logger())
		config := inFile(t, Config{Policy: funnel(2, 1, time.Hour), State: State{Every: time.Minute}})
		saves, err := New[string](config)
		require.NoError(t, err)
		require.True(t, saves.Choke("key"))
		hour := func() {
			// The time lies between two saves.
			time.Sleep(time.Hour + time.Second)
			synctest.Wait()
		}
		hour()
		assert.Empty(t, log.Lines())
		folder := filepath.Dir(config.State.Path)
		require.NoError(t, os.Rename(folder, folder+" away"))
		hour()
		require.NoError(t, os.Rename(folder+" away", folder))
		hour()
		require.NoError(t, saves.Close())
		synctest.Wait()
		assert.Len(t, log.Lines(), 2)
		assert.Regexp(t, `level=ERROR msg="ral: the state of the limiter is not saved" limit=ral error=.*\n.*level=INFO msg="ral: the state of the limiter is saved again" limit=ral`, log.String())

		log.Drain()
		f := newFaults(false)
		e := open[string](t, Config{Name: "api", Policy: funnel(2, 1, time.Hour), Restarts: 1, fault: f.at})
		f.arm("writer: received", 1)
		e.Choke("a")
		synctest.Wait()
		require.EqualValues(t, 1, e.Stats().Restarts)
		assert.Empty(t, log.Lines(), "an engine that is not degraded wrote to the log")
		f.arm("writer: received", -1)
		e.Choke("b")
		synctest.Wait()
		require.Error(t, e.Health())
		assert.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
		assert.Contains(t, log.String(), `msg="ral: the limiter is degraded: it records no new key from now on" limit=api error=`)

		log.Drain()
		e = open[string](t, Config{Name: "api", Policy: funnel(2, 1, time.Hour), OnEvent: func(Event) {}, Restarts: 1, fault: f.at})
		e.Choke("a")
		synctest.Wait()
		require.Error(t, e.Health())
		assert.Empty(t, log.Lines(), "an engine with OnEvent wrote to the log")
	})
}

// The command that asks for room dies with two writers. The waiting caller asks again.
func TestRoomIsAskedForAgainWhenTheCommandIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaults(false)
		e := open[string](t, Config{Policy: funnel(1, 1, time.Hour), MaxKeys: 1, fault: f.at})
		require.True(t, e.Choke("a"))
		synctest.Wait()
		f.arm("room: begin", 2)
		assert.True(t, e.Choke("b"))
		assert.False(t, e.Choke("b"))
		synctest.Wait()
		s := e.Stats()
		assert.EqualValues(t, 1, s.Dropped)
		assert.Zero(t, s.Unavailable, "the call must be recorded")
		assert.EqualValues(t, 1, s.Forgiven)
	})
}
