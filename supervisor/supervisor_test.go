package supervisor

import (
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

func TestEveryEndIsRestarted(t *testing.T) {
	for way, order := range map[string]func() error{"return": returns, "error": fails, "panic": panics, "goexit": exits} {
		t.Run(way, func(t *testing.T) {
			in(t, func(t *testing.T) {
				r := start(t, Config{Intensity: 1}, kid("a"))
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

func TestWithoutChildrenKeepsRunning(t *testing.T) {
	in(t, func(t *testing.T) {
		r := start(t, Config{})
		time.Sleep(time.Hour)
		r.isRunning()
		r.stop()
	})
}
