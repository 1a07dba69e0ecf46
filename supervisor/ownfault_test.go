package supervisor

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var deaths = map[string]func(){
	"panic":  func() { panic(errBoom) },
	"goexit": runtime.Goexit,
}

// play is a scenario with an outcome that must not depend on own faults.
func play(t *testing.T, fault func(string)) (outcome string, events []Event) {
	r := start(t, Config{Intensity: 50, Fault: fault},
		kid("a"), kid("b"), kid("d").within(time.Second).thatIsDeaf(), kid("e"))
	r.tell("b", panics)
	r.tell("e", exits)
	r.tell("b", returns)
	r.cancel()
	err := r.ends()
	r.mu.Lock()
	journal := strings.Join(r.journal, " ")
	r.mu.Unlock()
	return fmt.Sprintf("%s | %v | %d restarts, %d abandoned", journal, err, r.Restarts(), r.Abandoned()), r.seen()
}

// TestOneOwnFaultAnywhere runs the play with a death at each call of Fault. The outcome stays: no
// child lost, started twice or stopped out of order, the same verdict.
//
// Promise: The supervisor counts and mends its own faults.
func TestOneOwnFaultAnywhere(t *testing.T) {
	var want string
	var moments []string
	in(t, func(t *testing.T) {
		want, _ = play(t, func(point string) { moments = append(moments, point) })
	})
	for _, point := range Points() {
		// A fault at escalate is too much: see TestRunEndsIfAPointAlwaysDies.
		require.Equal(t, point != pointEscalate, slices.Contains(moments, point), point)
	}
	for way, die := range deaths {
		for k, instant := range moments {
			in(t, func(t *testing.T) {
				n := 0
				got, events := play(t, func(point string) {
					if n++; n == k+1 {
						die()
					}
				})
				require.Equal(t, want, got, "%s at about %s, call %d", way, instant, k)
				// The number of steps may vary by a few.
				if n > k {
					require.Equal(t, 1, kinds(events, OwnFault))
				}
			})
		}
	}
}

// TestRunEndsIfAPointAlwaysDies: the bookkeeping always dies at a point. Run returns an error that says so
// within its children's limits, and every child is asked to stop, in reverse order.
func TestRunEndsIfAPointAlwaysDies(t *testing.T) {
	for _, point := range Points() {
		for way, die := range deaths {
			for _, intensity := range []int{0, 3, 1e9} {
				t.Run(fmt.Sprintf("%s/%s/%d", point, way, intensity), func(t *testing.T) {
					in(t, func(t *testing.T) { alwaysDies(t, point, way, intensity, die) })
				})
			}
		}
	}
}

func alwaysDies(t *testing.T, point, way string, intensity int, die func()) {
	calls := 0
	r := build(t, Config{Intensity: intensity, Fault: func(p string) {
		if p == point {
			calls++
			die()
		}
	}}, kid("a"), kid("b"), kid("d").within(time.Second).thatIsDeaf(), kid("e"))
	r.run()
	// Reach the points that need failures, a late child, or a shutdown, if possible.
	for range min(intensity, 3) + 1 {
		r.order("a", fails)
		time.Sleep(time.Second + 1)
	}
	r.cancel()

	var err error
	require.LessOrEqual(t, since(func() { err = r.ends() }), time.Second)
	if intensity > 3 && (point == pointStarted || point == pointStopping || point == pointEscalate) {
		// The first two follow the work: each fault counts, but the run gets on. The third was not
		// reached.
		require.NoError(t, err)
		require.Zero(t, kinds(r.seen(), Escalated))
		return
	}
	require.ErrorIs(t, err, ErrIntensity)
	// At the points of a shutdown, the child's failures may have been first.
	if !slices.Contains([]string{pointStop, pointStopping, pointAbandon, pointFinish}, point) {
		require.ErrorContains(t, err, "own fault")
	}
	if strings.Contains(err.Error(), "own fault") && way == "goexit" {
		require.ErrorIs(t, err, ErrGoexit)
	} else {
		require.ErrorIs(t, err, errBoom)
	}
	require.LessOrEqual(t, calls, maxFaults+2)
	require.Zero(t, r.running("a")+r.running("b")+r.running("e"))
	require.Equal(t, r.Abandoned(), r.running("d"))
	events := r.seen()
	require.Equal(t, 1, kinds(events, Escalated))
	require.Equal(t, calls, kinds(events, OwnFault))
	require.Equal(t, kinds(events, ChildStarted), kinds(events, ChildExited)+
		kinds(events, ChildStopped)+kinds(events, ChildAbandoned))
	asked := slices.DeleteFunc(r.journal, func(line string) bool { return line[0] != '-' })
	require.True(t, slices.IsSortedFunc(asked, func(a, b string) int { return strings.Compare(b, a) }), asked)
}

func (r *rig) order(name string, order func() error) {
	select {
	case r.actors[name].orders <- order:
	case <-time.After(1):
	}
	synctest.Wait()
}

// TestOwnFaultsCount: faults and restarts share the sliding window.
func TestOwnFaultsCount(t *testing.T) {
	in(t, func(t *testing.T) {
		faulty := false
		r := start(t, Config{Intensity: 2, Fault: func(point string) {
			if faulty {
				faulty = false
				panic(errBoom)
			}
		}}, kid("a"))
		for range 3 {
			faulty = true
			// The failure makes a fault and a restart.
			r.tell("a", fails)
			require.Equal(t, 1, r.running("a"))
			time.Sleep(DefaultPeriod + 1)
		}
		require.EqualValues(t, 3, r.Restarts(), "own faults are not restarts")
		faulty = true
		r.tell("a", fails)
		r.tell("a", fails)
		require.ErrorIs(t, r.ends(), ErrIntensity)
	})
}
