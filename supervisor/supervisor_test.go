package supervisor

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStartsInOrderStopsInReverse(t *testing.T) {
	in(t, func(t *testing.T) {
		r := start(t, Config{}, kid("a"), kid("b"), kid("c"))
		r.journaled("+a +b +c")
		r.reported("a started", "b started", "c started")
		r.stop()
		r.journaled("-c -b -a")
		r.reported("c stopped", "b stopped", "a stopped")
	})
}

func TestNextChildWaitsForInit(t *testing.T) {
	in(t, func(t *testing.T) {
		slow := func(int) error { time.Sleep(time.Second); return nil }
		r := start(t, Config{}, kid("a").with(slow), kid("b").with(slow), kid("c"))
		r.journaled("")
		time.Sleep(999 * time.Millisecond)
		r.journaled("")
		time.Sleep(time.Millisecond)
		r.journaled("+a")
		time.Sleep(time.Second)
		r.journaled("+b +c")
	})
}

// TestFirstInitFails: those before the failing child are stopped in reverse,
// those after it have never been started, and the cause can be reached.
func TestFirstInitFails(t *testing.T) {
	for name, tc := range map[string]struct {
		way   func() error
		cause func(t *testing.T, err error)
	}{
		"error":  {fails, func(t *testing.T, err error) { require.ErrorIs(t, err, errBoom) }},
		"goexit": {exits, func(t *testing.T, err error) { require.ErrorIs(t, err, ErrGoexit) }},
		"panic": {panics, func(t *testing.T, err error) {
			var p *PanicError
			require.ErrorAs(t, err, &p)
			require.Equal(t, "boom", p.Value)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				bad := kid("c").with(func(int) error { return tc.way() })
				r := start(t, Config{Intensity: 10}, kid("a"), kid("b"), bad, kid("d"))
				err := r.ends()
				require.ErrorIs(t, err, ErrStart)
				require.ErrorIs(t, err, ErrInit)
				require.NotErrorIs(t, err, ErrIntensity)
				require.ErrorContains(t, err, `"c"`)
				tc.cause(t, err)
				require.Zero(t, r.Restarts())
				r.reported("a started", "b started", "c exited", "escalated", "b stopped", "a stopped")
			})
		})
	}
}

// TestEveryEndIsRestarted: a child is started again whatever the way of its end.
func TestEveryEndIsRestarted(t *testing.T) {
	for way, order := range map[string]func() error{"return": returns, "error": fails, "panic": panics, "goexit": exits} {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/plain=%v", way, plain), func(t *testing.T) {
				in(t, func(t *testing.T) {
					a := kid("a")
					a.plain = plain
					r := start(t, Config{Intensity: 1}, a)
					r.journaled("+a")
					r.seen()
					r.tell("a", order)
					r.journaled("!a +a")
					r.reported("a exited", "a restarting", "a started")
					require.EqualValues(t, 1, r.Restarts())
					r.stop()
				})
			})
		}
	}
}

func TestWithoutChildrenKeepsRunning(t *testing.T) {
	in(t, func(t *testing.T) {
		r := start(t, Config{})
		time.Sleep(time.Hour)
		r.isRunning()
		r.stop()
	})
}

// TestOthersRunOn: a restart concerns one child alone.
func TestOthersRunOn(t *testing.T) {
	in(t, func(t *testing.T) {
		r := start(t, Config{Intensity: 3}, kid("a"), kid("b"), kid("c"))
		r.journaled("+a +b +c")
		r.story(
			step{"a", fails, "!a +a"},
			step{"c", panics, "!c +c"},
			step{"b", exits, "!b +b"},
		)
		require.EqualValues(t, 3, r.Restarts())
	})
}
