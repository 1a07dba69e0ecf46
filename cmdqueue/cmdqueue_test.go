package cmdqueue

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func receive(t *testing.T, q *Queue[int]) int {
	t.Helper()
	command, attempt, ok := q.TryReceive()
	require.True(t, ok)
	require.Equal(t, 1, attempt)
	q.Done()
	return command
}

// Promise: The writer's queue is bounded and keeps its order.
func TestOrderAndCapacity(t *testing.T) {
	q := New[int](3)
	require.Equal(t, 3, q.Cap())
	for i := range 3 {
		require.Equal(t, i, q.Len())
		require.True(t, q.TrySend(i))
	}
	require.False(t, q.TrySend(9), "full")
	require.Equal(t, 3, q.Len())
	require.Equal(t, 0, receive(t, q))
	require.True(t, q.TrySend(3))
	for want := 1; want <= 3; want++ {
		require.Equal(t, want, receive(t, q))
	}
	_, _, ok := q.TryReceive()
	require.False(t, ok, "empty")
	require.Zero(t, q.Len())
}

func TestCapacityIsOneAtLeast(t *testing.T) {
	for _, capacity := range []int{1, 0, -1, -1 << 31} {
		q := New[int](capacity)
		require.Equal(t, 1, q.Cap())
		require.True(t, q.TrySend(1))
		require.False(t, q.TrySend(2))
	}
}

func TestTrySendToAClosedQueue(t *testing.T) {
	q := New[int](2)
	q.Close()
	q.Close()
	for range 100 { // a choice between a free place and the closed queue would be random
		require.False(t, q.TrySend(1))
		require.ErrorIs(t, q.Send(1, time.Hour), ErrClosed)
	}
	require.Zero(t, q.Len())
}

func TestSendWaitsForAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int](1)
		begin := time.Now()
		require.NoError(t, q.Send(1, 0), "there is one")
		go func() {
			time.Sleep(3 * time.Second)
			receive(t, q)
		}()
		require.NoError(t, q.Send(2, 4*time.Second))
		require.Equal(t, 3*time.Second, time.Since(begin))
		synctest.Wait() // for the other receiver to end
		require.Equal(t, 2, receive(t, q))
	})
}

func TestSendRunsOutOfPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int](1)
		require.True(t, q.TrySend(1))
		for _, patience := range []time.Duration{-time.Second, 0, 1, time.Second, time.Hour} {
			begin := time.Now()
			require.ErrorIs(t, q.Send(2, patience), ErrFull)
			require.Equal(t, max(patience, 0), time.Since(begin))
		}
		require.Equal(t, 1, receive(t, q))
		require.Zero(t, q.Len(), "the sender that gave up has sent nothing")
	})
}

func TestCloseWakesAllWaitingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, empty := New[int](1), New[int](1)
		full.TrySend(1)
		var woken sync.WaitGroup
		for range 5 {
			woken.Go(func() {
				if err := full.Send(2, time.Hour); err != ErrClosed {
					t.Errorf("Send: %v", err)
				}
			})
		}
		woken.Go(func() {
			if _, _, ok := empty.Receive(t.Context()); ok {
				t.Error("received from an empty queue")
			}
		})
		synctest.Wait()
		begin := time.Now()
		full.Close()
		empty.Close()
		woken.Wait()
		require.Equal(t, begin, time.Now())
	})
}

func TestReceiveEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int](1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, attempt, ok := q.Receive(ctx)
		require.False(t, ok)
		require.Zero(t, attempt)
		require.True(t, q.TrySend(5), "the queue goes on")
		require.Equal(t, 5, receive(t, q))
	})
}

func TestReceiveWaitsForACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int](1)
		go func() {
			time.Sleep(time.Minute)
			q.TrySend(7)
		}()
		command, attempt, ok := q.Receive(t.Context())
		require.True(t, ok)
		require.Equal(t, 7, command)
		require.Equal(t, 1, attempt)
	})
}

// Promise: A dead receiver's command reaches the next receiver first.
func TestCommandOfADeadReceiverComesFirst(t *testing.T) {
	q := New[int](5)
	for i := 1; i <= 3; i++ {
		q.TrySend(i)
	}
	next := func(wait bool) (command, attempt int) {
		t.Helper()
		var ok bool
		if wait {
			command, attempt, ok = q.Receive(t.Context())
		} else {
			command, attempt, ok = q.TryReceive()
		}
		require.True(t, ok)
		return command, attempt
	}
	for attempt := 1; attempt <= 4; attempt++ { // three receivers die of it
		command, n := next(attempt%2 == 0)
		require.Equal(t, 1, command)
		require.Equal(t, attempt, n)
		require.Equal(t, 2, q.Len(), "what is in hand is not waiting")
	}
	q.Done()
	for _, wait := range []bool{true, false} {
		command, n := next(wait)
		require.Equal(t, 1, n, "the count begins anew")
		require.Equal(t, map[bool]int{true: 2, false: 3}[wait], command, "once done, never again")
		q.Done()
	}
	q.Done() // nothing in hand: nothing happens
	_, _, ok := q.TryReceive()
	require.False(t, ok)
}

func TestCommandInHandOutlivesClose(t *testing.T) {
	q := New[int](1)
	q.TrySend(1)
	_, _, _ = q.TryReceive()
	q.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	command, attempt, ok := q.Receive(ctx)
	require.True(t, ok)
	require.Equal(t, 1, command)
	require.Equal(t, 2, attempt)
	q.Done()
	_, _, ok = q.Receive(ctx)
	require.False(t, ok)
}

func TestDoneLetsGo(t *testing.T) {
	q := New[*[64]byte](1)
	var gone atomic.Bool
	func() {
		command := new([64]byte)
		runtime.AddCleanup(command, func(struct{}) { gone.Store(true) }, struct{}{})
		q.TrySend(command)
	}()
	_, _, ok := q.TryReceive()
	require.True(t, ok)
	for range 3 {
		runtime.GC()
	}
	require.False(t, gone.Load(), "in hand it is kept")
	q.Done()
	for end := time.Now().Add(5 * time.Second); !gone.Load() && time.Now().Before(end); {
		runtime.GC()
		runtime.Gosched()
	}
	require.True(t, gone.Load())
	runtime.KeepAlive(q)
}

// Many goroutines send, the queue is closed meanwhile, and successive receivers die of every tenth
// command. No goroutine panics, and all end. A refused command is never received. Commands come to
// a single receiver at a time, in the order of their sender, and again only if a receiver died of
// them.
func TestSendersAndReceiversAndClose(t *testing.T) {
	type command struct{ sender, number int }
	for range 20 {
		q := New[command](4)
		var senders sync.WaitGroup
		sent := make([]map[int]bool, 8)
		for id := range sent {
			sent[id] = map[int]bool{}
			senders.Go(func() {
				for number := 1; number < 500; number++ {
					c := command{id, number}
					if number%2 == 0 {
						sent[id][number] = q.TrySend(c)
						continue
					}
					err := q.Send(c, time.Millisecond)
					sent[id][number] = err == nil
					if err == ErrClosed {
						return
					}
				}
			})
		}

		var received []command
		var attempts []int
		for open := true; open; { // a receiver each
			for {
				c, attempt, ok := q.Receive(t.Context())
				if !ok {
					open = false
					break
				}
				received = append(received, c)
				attempts = append(attempts, attempt)
				if len(received) == 1000 {
					go q.Close()
				}
				if c.number%10 == 0 && attempt == 1 {
					break
				}
				q.Done()
			}
		}
		senders.Wait()

		last := make([]int, len(sent))
		for i, c := range received {
			require.True(t, sent[c.sender][c.number])
			if attempts[i] == 1 {
				require.Less(t, last[c.sender], c.number)
			} else {
				require.Equal(t, received[i-1], c)
			}
			last[c.sender] = c.number
		}
	}
}
