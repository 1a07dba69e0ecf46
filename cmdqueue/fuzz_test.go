package cmdqueue

import (
	"slices"
	"testing"
)

// FuzzQueue sends and receives in any order beside a plain list: commands come in order, once each.
// A dead receiver's command comes again, first, and is counted.
func FuzzQueue(f *testing.F) {
	f.Add(2, []byte{0, 0, 0, 1, 1, 2, 1, 2, 1})
	f.Add(0, []byte{1, 2, 0, 3, 0, 1, 1, 1, 2})
	f.Add(-1, []byte{0, 1, 3, 1, 2, 1})
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
			case 1: // also by the receiver after a dead receiver
				command, attempt, ok := q.TryReceive()
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
			if q.Len() != len(list) || q.Cap() != capacity {
				t.Fatalf("%d of %d, want %d of %d", q.Len(), q.Cap(), len(list), capacity)
			}
			if closed || len(list) == capacity {
				want := ErrFull
				if closed {
					want = ErrClosed
				}
				if err := q.Send(0, 0); err != want {
					t.Fatalf("Send: %v, want %v", err, want)
				}
			}
		}
	})
}
