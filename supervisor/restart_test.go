package supervisor

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEscalation: the intensity's restarts take place, the next ends it all.
func TestEscalation(t *testing.T) {
	in(t, func(t *testing.T) {
		r := start(t, Config{Name: "top", Intensity: 2}, kid("a"), kid("b"), kid("c"))
		r.journaled("+a +b +c")
		r.story(step{"b", fails, "!b +b"}, step{"b", fails, "!b +b"})
		r.isRunning()
		r.seen()
		r.tell("b", fails)
		err := r.ends()
		require.ErrorIs(t, err, ErrIntensity)
		require.ErrorIs(t, err, errBoom)
		require.EqualError(t, err, `top: restart intensity exceeded: more than 2 within 5s; last: child "b": boom`)
		r.journaled("!b -c -a")
		r.reported("b exited", "escalated", "c stopped", "a stopped")
		require.EqualValues(t, 2, r.Restarts())
	})
}

func TestEscalationCauses(t *testing.T) {
	var p *PanicError
	for way, c := range map[string]struct {
		order func() error
		check func(err error)
	}{
		"panic": {func() error { panic(errBoom) }, func(err error) {
			require.ErrorIs(t, err, errBoom, "through PanicError.Unwrap")
			require.ErrorAs(t, err, &p)
		}},
		"goexit": {exits, func(err error) { require.ErrorIs(t, err, ErrGoexit) }},
		"return": {returns, func(err error) { require.ErrorContains(t, err, "returned nil") }},
	} {
		t.Run(way, func(t *testing.T) {
			in(t, func(t *testing.T) {
				r := start(t, Config{}, kid("a"))
				r.tell("a", c.order)
				err := r.ends()
				require.ErrorIs(t, err, ErrIntensity)
				require.Zero(t, r.Restarts(), "an intensity of zero means none, not a default")
				c.check(err)
			})
		})
	}
}

// FuzzWindow compares the window with a plain count over everything admitted.
func FuzzWindow(f *testing.F) {
	f.Add(2, int64(10), []byte{0, 0, 10, 1, 9, 11})
	f.Add(0, int64(1), []byte{5})
	f.Add(1, int64(0), []byte{0, 0, 1})
	f.Add(2, int64(60), []byte{0, 0, 59})                 // the first just inside
	f.Add(2, int64(60), []byte{0, 0, 60})                 // exactly on the edge
	f.Add(2, int64(60), []byte{0, 0, 61})                 // both just outside
	f.Add(2, int64(60), []byte{0, 30, 31, 30, 31, 0})     // it slides on
	f.Add(2, int64(60), []byte{31, 31, 31, 31, 31, 0, 0}) // steadily below, and then above
	f.Fuzz(func(t *testing.T, limit int, period int64, gaps []byte) {
		if limit < 0 || period < 0 {
			t.Skip()
		}
		w := window{limit: limit, period: time.Duration(period)}
		now := time.Unix(0, 0)
		var admitted []time.Time
		for _, gap := range gaps {
			now = now.Add(time.Duration(gap))
			within := 0
			for _, at := range admitted {
				if now.Sub(at) <= w.period {
					within++
				}
			}
			require.Equal(t, within+1 > limit, w.full(now))
			if within < limit {
				w.add(now)
				admitted = append(admitted, now)
			}
		}
	})
}

func TestWindowForgets(t *testing.T) {
	w := window{limit: 5, period: time.Second}
	now := time.Now()
	for range 1000 {
		require.False(t, w.full(now))
		w.add(now)
		now = now.Add(time.Second/5 + 1)
	}
	require.LessOrEqual(t, cap(w.at), 16)
}

// Promise: A restart is immediate; more than `Intensity` within `Period` gives up.
func TestRestartIsImmediate(t *testing.T) {
	in(t, func(t *testing.T) {
		r := start(t, Config{Intensity: 100}, kid("a"))
		before := time.Now()
		for range 100 {
			r.tell("a", fails)
		}
		require.Zero(t, time.Since(before))
		require.EqualValues(t, 100, r.Restarts())
	})
}

// TestEndsInOneStep: the second child ends while the first child's end is received.
func TestEndsInOneStep(t *testing.T) {
	in(t, func(t *testing.T) {
		var r *rig
		told := false
		r = start(t, Config{Intensity: 9, Fault: func(point string) {
			if point == pointExit && !told {
				told = true
				r.actors["b"].orders <- fails
				time.Sleep(1)
			}
		}}, kid("a"), kid("b"), kid("c"))
		r.journaled("+a +b +c")
		r.tell("a", fails)
		time.Sleep(time.Second)
		r.journaled("!a !b +a +b")
		require.EqualValues(t, 2, r.Restarts())
	})
}

// BenchmarkRestart: from a child's failure until it is up again.
func BenchmarkRestart(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	n := 0
	s, err := New(Config{Intensity: math.MaxInt, Period: time.Millisecond}, Child{
		Name: "a",
		Run: func(context.Context) error {
			if n++; n > b.N {
				cancel()
			}
			return errBoom
		},
	})
	require.NoError(b, err)
	require.NoError(b, s.Run(ctx))
}
