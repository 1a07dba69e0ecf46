package must

import (
	"testing"
	"time"
)

// patience is for slow machines that do much else.
const patience = time.Minute

// Await waits until done, on the caller's goroutine, returns true. It fails the test after a minute,
// in a bubble of testing/synctest by its clock. what is the event's name.
func Await(t testing.TB, done func() bool, what string, args ...any) {
	t.Helper()
	pause := 50 * time.Microsecond
	for began := time.Now(); !done(); pause = min(2*pause, 10*time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("this has not happened: "+what, args...)
		}
		time.Sleep(pause)
	}
}
