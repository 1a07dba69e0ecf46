// Package await waits, in tests, for events that other goroutines and processes bring about.
package await

import (
	"testing"
	"time"
)

// patience is for slow machines that do much else.
const patience = time.Minute

// True waits until done returns true, and fails the test if it does not within a minute. what
// names the event. done runs on the caller's goroutine. In a bubble of testing/synctest the
// minute is the bubble's.
func True(t testing.TB, done func() bool, what string, args ...any) {
	t.Helper()
	pause := 50 * time.Microsecond
	for began := time.Now(); !done(); pause = min(2*pause, 10*time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("this has not happened: "+what, args...)
		}
		time.Sleep(pause)
	}
}
