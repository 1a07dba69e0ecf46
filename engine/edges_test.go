package engine

import (
	"context"
	"hash/maphash"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmdqueue"
	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// Promise: Few commands ask for room.
func TestRoomIsNotAskedForAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := stalled(t, Config{Policy: funnel(1, 1, time.Hour), MaxKeys: 1, OpenTimeout: 1})
		require.True(t, e.Choke("a"))
		synctest.Wait()
		e.Choke("b")
		assert.LessOrEqual(t, e.Stats().QueueDepth, 8)
	})
}

func TestCloseWakesCallsThatWaitForAPlaceInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		e, err := New[string](Config{
			Policy: funnel(100, 1, time.Hour), QueueDepth: 1, OpenTimeout: time.Hour,
			fault: func(point string) {
				if point == "file: begin" {
					<-release
				}
			},
		})
		require.NoError(t, err)
		// The writer stands at the command.
		require.True(t, e.Choke("a"))
		synctest.Wait()
		for key := range 8 {
			// A command in another slot fills the queue.
			e.Choke(strconv.Itoa(key))
		}
		begin := time.Now()
		var waited atomic.Int64
		go func() {
			assert.ErrorIs(t, e.SetPolicy(funnel(99, 1, time.Hour)), ErrClosed)
			waited.Store(int64(time.Since(begin)))
		}()
		synctest.Wait()
		require.ErrorIs(t, e.Close(), ErrAbandoned)
		synctest.Wait()
		assert.Equal(t, shutdown, time.Duration(waited.Load()))
		close(release)
		synctest.Wait()
	})
}

// Promise: A writer that never rests finds lost entries, and ends when told.
func TestBusyWriterSettlesAndEnds(t *testing.T) {
	queue := cmdqueue.New[table.Command[string]](4)
	keys := table.New[string](table.Options{Policy: funnel(1, 1, time.Hour), Idle: 1, MaxKeys: 9})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var dropped atomic.Uint64
	commands, settledAt := 0, 0
	w := writer[string]{keys, queue, newHandClock().Now, &dropped, func(point string) {
		switch point {
		case "writer: done":
			if commands++; commands < 10*workPerTurn {
				queue.TrySend(table.Command[string]{})
			}
			if commands == 5*workPerTurn {
				cancel()
			}
		case "writer: settle":
			if settledAt == 0 {
				settledAt = commands
			}
		}
	}, seam.Seam{}}
	require.True(t, queue.TrySend(table.Command[string]{}))
	require.NoError(t, w.run(ctx))
	assert.Positive(t, settledAt)
	assert.LessOrEqual(t, settledAt, workPerTurn)
	assert.LessOrEqual(t, commands, 6*workPerTurn)
}

// A turn of the writer ends after many keys, however few commands file them.
func TestWriterRestsAfterManyKeys(t *testing.T) {
	queue := cmdqueue.New[table.Command[int]](workPerTurn)
	keys := table.New[int](table.Options{Policy: funnel(1, 1, time.Hour), Idle: 1, MaxKeys: 2 * workPerTurn})
	view := keys.View()
	for key := range 2 * workPerTurn {
		hash := maphash.Comparable(view.Seed(), key)
		if _, status := view.Open(hash, key); status == table.Landed {
			require.True(t, queue.TrySend(table.FileCommand[int](hash, 1)))
		}
	}
	require.Less(t, queue.Len(), workPerTurn/2)
	view.NoteLostFiling()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := 0
	w := writer[int]{keys, queue, newHandClock().Now, new(atomic.Uint64), func(point string) {
		if point == "writer: settle" && left == 0 {
			left = view.Landed()
			cancel()
		}
	}, seam.Seam{}}
	require.NoError(t, w.run(ctx))
	require.Greater(t, left, workPerTurn)
}

// With a clock that moves in ticks, a window of t passes at most the limit of t and a tick, and a
// refused call passes a tick after RetryAfter at the latest.
func TestCoarseClockCostsATick(t *testing.T) {
	const tick, capacity, every = 10 * time.Millisecond, 5, time.Millisecond
	exact := newHandClock()
	e := open[string](t, Config{Policy: funnel(capacity, 1, every), Clock: func() policy.Instant {
		now := exact.Now()
		return now - now%policy.Instant(tick)
	}})
	random := rand.New(rand.NewPCG(1, 2))
	var passed []time.Duration
	instant, worst := time.Duration(0), 0
	advance := func(by time.Duration) { exact.Advance(by); instant += by }
	for range 20_000 {
		d := e.Take("key", 1)
		if d.Allowed {
			passed = append(passed, instant)
		} else if random.IntN(10) == 0 {
			advance(d.RetryAfter + tick)
			require.True(t, e.Choke("key"), "a call must pass a tick after RetryAfter")
			passed = append(passed, instant)
		}
		advance(time.Duration(random.Int64N(int64(every))))
	}
	for first := range passed {
		for n := 2; n <= 4*capacity && first+n <= len(passed); n++ {
			window := passed[first+n-1] - passed[first]
			require.LessOrEqual(t, n, capacity+int((window+tick)/every), "more calls passed in %v than a tick more allows", window)
			worst = max(worst, n-capacity-int(window/every))
		}
	}
	require.Positive(t, worst, "no window had more calls than an exact clock allows, so the test tests nothing")
}
