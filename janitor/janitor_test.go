package janitor

import (
	"context"
	"hash/maphash"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ral-limiter/ral/cmdqueue"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
	"github.com/stretchr/testify/require"
)

func TestEveryIsASixteenthOfIdle(t *testing.T) {
	for idle, want := range map[time.Duration]time.Duration{
		-1:                    time.Millisecond,
		1:                     time.Millisecond,
		16 * time.Millisecond: time.Millisecond,
		32 * time.Millisecond: 2 * time.Millisecond,
		8 * time.Second:       time.Second / 2,
		16 * time.Second:      time.Second,
		time.Hour:             time.Second,
		math.MaxInt64:         time.Second,
	} {
		require.Equal(t, want, Every(idle), idle)
	}
}

// A house is a janitor with a table, in a synctest bubble. The test is the writer.
type house struct {
	t       *testing.T
	table   *table.Table[int]
	queue   *cmdqueue.Queue[table.Command[int]]
	janitor *Janitor[int]
	epoch   time.Time
	// deadly is the point at which the janitor panics, once.
	deadly atomic.Value
	cancel context.CancelFunc
	// ended has the panic value of Run, or its error, or nil.
	ended chan any
}

const (
	// With that idle time the janitor looks once a second.
	idle  = 16 * time.Second
	depth = 2
)

func inHouse(t *testing.T, test func(t *testing.T, h *house)) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{
			t:     t,
			queue: cmdqueue.New[table.Command[int]](depth),
			table: table.New[int](table.Options{
				Policy:  policy.Must(policy.Funnel(1, 1, time.Second)),
				Idle:    idle,
				MaxKeys: 10 * Budget,
			}),
			epoch: time.Now(),
		}
		h.janitor = New(h.queue, h.now, idle, func(point string) {
			if h.deadly.CompareAndSwap(point, "") {
				panic(point)
			}
		})
		h.run()
		test(t, h)
		h.cancel()
		synctest.Wait()
		require.Nil(t, h.end())
		require.NoError(t, h.table.Check())
	})
}

func (h *house) now() policy.Instant { return policy.Instant(time.Since(h.epoch)) + 1 } // wall: in the bubble of a house

func (h *house) run() {
	ctx, cancel := context.WithCancel(h.t.Context())
	h.cancel, h.ended = cancel, make(chan any, 1)
	go func(ended chan any) {
		var result any
		defer func() {
			if r := recover(); r != nil {
				result = r
			}
			ended <- result
		}()
		if err := h.janitor.Run(ctx); err != nil {
			result = err
		}
	}(h.ended)
	synctest.Wait()
}

// end returns the result of Run, which must have ended.
func (h *house) end() any {
	h.t.Helper()
	select {
	case result := <-h.ended:
		return result
	default:
		require.Fail(h.t, "the janitor goes on")
		return nil
	}
}

func (h *house) fill(keys int) {
	view := h.table.View()
	for key := range keys {
		hash := maphash.Comparable(view.Seed(), key)
		e, _ := view.Open(hash, key)
		e.Advance(e.Word(), 1)
		h.table.File(hash, h.now())
	}
}

// asked returns the command that the janitor has sent, if any.
func (h *house) asked() (table.Command[int], bool) {
	command, _, ok := h.queue.TryReceive()
	h.queue.Done()
	return command, ok
}

// sleep lets time pass and all goroutines catch up.
func sleep(d time.Duration) {
	time.Sleep(d) // wall: in the bubble of a house
	synctest.Wait()
}

func TestAsksAtEachTick(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		for range 5 {
			sleep(time.Second - 1)
			_, ok := h.asked()
			require.False(t, ok, "a nanosecond early")
			sleep(1)
			command, ok := h.asked()
			require.True(t, ok)
			h.table.Apply(command)
			synctest.Wait()
			_, ok = h.asked()
			require.False(t, ok, "there is no more")
		}
	})
}

func TestGoesOnWhileThereIsMore(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		const keys = 3*Budget + 7
		h.fill(keys)
		for left := keys; left > 0; {
			synctest.Wait()
			command, ok := h.asked()
			// The sweep is not due yet.
			if !ok {
				require.Equal(t, keys, left, "it goes on at once")
				sleep(time.Second)
				continue
			}
			before := h.table.View().Len()
			h.table.Apply(command)
			left = h.table.View().Len()
			require.LessOrEqual(t, before-left, Budget, "a step is bounded")
		}
		require.Less(t, time.Since(h.epoch), idle+2*time.Second+Every(idle))
		_, ok := h.asked()
		require.False(t, ok)
	})
}

func TestAsksNothingOfAFullQueue(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		for range depth {
			require.True(t, h.queue.TrySend(table.Command[int]{}))
		}
		sleep(5 * time.Second)
		require.Equal(t, depth, h.queue.Len())
		for range depth {
			_, ok := h.asked()
			require.True(t, ok)
		}
		sleep(time.Second - 1)
		_, ok := h.asked()
		require.False(t, ok, "not before the next tick")
		sleep(1)
		_, ok = h.asked()
		require.True(t, ok)
	})
}

func TestEndsWithItsContext(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, h *house){
		"before it begins": func(t *testing.T, h *house) {
			h.cancel()
			synctest.Wait()
			require.Nil(t, h.end())
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.NoError(t, h.janitor.Run(ctx))
			h.run()
		},
		"between ticks":              func(*testing.T, *house) { sleep(time.Second / 2) },
		"while it waits":             func(*testing.T, *house) { sleep(time.Second) },
		"when the queue is closed":   func(_ *testing.T, h *house) { h.queue.Close(); sleep(5 * time.Second) },
		"while there is always more": alwaysMore,
	} {
		t.Run(name, func(t *testing.T) { inHouse(t, before) })
	}
}

// alwaysMore sweeps until half of the keys have left, and then ends the janitor.
func alwaysMore(t *testing.T, h *house) {
	done := make(chan struct{})
	writer, stop := context.WithCancel(t.Context())
	h.fill(10 * Budget)
	sleep(idle + time.Second)
	go func() {
		defer close(done)
		for {
			command, _, ok := h.queue.Receive(writer)
			if !ok {
				return
			}
			h.table.Apply(command)
			h.queue.Done()
			if h.table.View().Len() < 5*Budget {
				h.cancel()
			}
		}
	}()
	sleep(2 * time.Second)
	stop()
	<-done
}

// Promise: The janitor restarts after a panic.
func TestRunsAgainAfterAPanic(t *testing.T) {
	for _, point := range Points() {
		t.Run(point, func(t *testing.T) {
			inHouse(t, func(t *testing.T, h *house) {
				h.fill(1)
				serve := func() {
					for range 3 * int(idle/time.Second) {
						sleep(time.Second)
						if command, ok := h.asked(); ok {
							h.table.Apply(command)
							synctest.Wait()
						}
					}
				}
				if point == "janitor: begin" {
					h.cancel()
					synctest.Wait()
					require.Nil(t, h.end())
					h.deadly.Store(point)
					h.run()
				} else {
					h.deadly.Store(point)
					serve()
				}
				require.Equal(t, point, h.end())
				h.run()
				serve()
				require.Zero(t, h.table.View().Len())
			})
		})
	}
}

func TestAlsoIsDoneOnceASecond(t *testing.T) {
	for _, idle := range []time.Duration{1, 8 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			j := New(cmdqueue.New[table.Command[int]](depth), func() policy.Instant { return 1 }, idle, nil)
			done := 0
			j.Also(func() { done++ })
			go func() { _ = j.Run(ctx) }()
			defer synctest.Wait()
			defer cancel()
			time.Sleep(10*time.Second + 1)
			synctest.Wait()
			// Without a writer a sweep takes as long as the time between two looks.
			require.LessOrEqual(t, done, 10, idle)
			require.GreaterOrEqual(t, done, 4, idle)
		})
	}
}

// The janitor notices a lost command at the next tick and asks again at the next. A late answer says
// that there is more. That answer does not answer the next step.
//
// Promise: The janitor gives up on a lost answer.
func TestGivesUpALostCommand(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.fill(3 * Budget)
		var late table.Command[int]
		for due := false; !due; {
			sleep(Every(idle))
			if command, ok := h.asked(); ok {
				late, due = command, time.Since(h.epoch) > idle+time.Second
			}
		}
		sleep(Every(idle))
		_, ok := h.asked()
		require.False(t, ok, "given up")
		h.table.Apply(late)
		require.Equal(t, 2*Budget, h.table.View().Len())
		sleep(Every(idle))
		_, ok = h.asked()
		require.True(t, ok)
		synctest.Wait()
		_, ok = h.asked()
		require.False(t, ok, "it waits for its own answer")
	})
}

// An answer that comes before the janitor waits for it is not lost.
func TestAnswerMayComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := cmdqueue.New[table.Command[int]](depth)
		asked := 0
		keys := table.New[int](table.Options{
			Policy: policy.Must(policy.Funnel(1, 1, time.Second)), Idle: idle, MaxKeys: 10 * Budget,
		})
		h := &house{t: t, table: keys, epoch: time.Now()}
		h.fill(3 * Budget)
		j := New(queue, func() policy.Instant { return policy.Instant(time.Hour) }, idle, func(point string) {
			if point == "janitor: asked" {
				asked++
				command, _, ok := queue.TryReceive()
				require.True(t, ok)
				keys.Apply(command)
				queue.Done()
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), Every(idle)+time.Millisecond)
		defer cancel()
		require.NoError(t, j.Run(ctx))
		require.Zero(t, keys.View().Len(), "all within one tick")
		require.Equal(t, 3, asked)
	})
}
