package cmdqueue

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzQueue sends and receives in any order beside a plain list: commands come in order, once each.
// A dead receiver's command comes again, first, and is counted.
//
// Promise: The writer's queue is bounded and keeps its order.
// Promise: A dead receiver's command reaches the next receiver first.
func FuzzQueue(f *testing.F) {
	f.Add(2, []byte{0, 0, 0, 1, 1, 2, 1, 2, 1})
	f.Add(0, []byte{1, 2, 0, 3, 0, 1, 1, 1, 2})
	f.Add(-1, []byte{0, 1, 3, 1, 2, 1})
	f.Add(-1<<31, []byte{0, 0, 3, 3, 1, 0})
	f.Add(5, []byte{0, 0, 0, 5, 1, 5, 1, 2, 5, 2, 1, 2, 2, 1, 0, 5, 3, 1})
	f.Fuzz(func(t *testing.T, capacity int, steps []byte) {
		capacity = max(min(capacity, 100), -100)
		q := New[int](capacity)
		capacity = max(capacity, 1)
		var list []int
		var hand, attempts, sent int
		held, closed := false, false
		for _, step := range steps {
			switch step % 4 {
			case 0:
				sent++
				fits := !closed && len(list) < capacity
				if got := q.TrySend(sent); got != fits {
					t.Fatalf("sent: %v, with %d of %d waiting, closed %v", got, len(list), capacity, closed)
				}
				if fits {
					list = append(list, sent)
				}
			// The receiver after a dead receiver also receives.
			case 1:
				receive := q.TryReceive
				if step/4%2 == 1 && (held || !closed && len(list) > 0) {
					receive = func() (int, int, bool) { return q.Receive(t.Context()) }
				}
				command, attempt, ok := receive()
				switch {
				case held:
					attempts++
				case len(list) > 0:
					hand = list[0]
					list = slices.Delete(list, 0, 1)
					held, attempts = true, 1
				}
				if ok != held || ok && (command != hand || attempt != attempts) {
					t.Fatalf("received %d, %d, %v; want %d, %d, %v", command, attempt, ok, hand, attempts, held)
				}
			case 2:
				q.Done()
				held = false
			case 3:
				q.Close()
				closed = true
			}
			if q.Len() != len(list) {
				t.Fatalf("%d commands, want %d", q.Len(), len(list))
			}
			if closed || len(list) == capacity {
				want := ErrFull
				if closed {
					want = ErrClosed
				}
				// A choice between a free place and the closed queue would be random.
				for range 10 {
					if err := q.Send(0, 0); err != want || q.TrySend(0) {
						t.Fatalf("Send: %v, want %v", err, want)
					}
				}
			}
		}
	})
}

func TestSendWaitsForAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int](1)
		require.NoError(t, q.Send(1, 0), "there is one")
		for _, patience := range []time.Duration{-time.Second, 0, 1, time.Second, time.Hour} {
			begin := time.Now()
			require.ErrorIs(t, q.Send(2, patience), ErrFull)
			require.Equal(t, max(patience, 0), time.Since(begin))
		}
		require.Equal(t, 1, q.Len(), "the sender that gave up has sent nothing")
		begin := time.Now()
		time.AfterFunc(3*time.Second, func() {
			_, _, _ = q.TryReceive()
			q.Done()
		})
		require.NoError(t, q.Send(2, 4*time.Second))
		require.Equal(t, 3*time.Second, time.Since(begin))
		require.Equal(t, 1, q.Len())
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
		begin := time.Now()
		go func() {
			time.Sleep(time.Minute)
			q.TrySend(5)
		}()
		command, attempt, ok := q.Receive(t.Context())
		require.True(t, ok, "the queue goes on")
		require.Equal(t, 5, command)
		require.Equal(t, 1, attempt)
		require.Equal(t, time.Minute, time.Since(begin))
	})
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
		// Each round has a receiver of its own.
		for open := true; open; {
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
