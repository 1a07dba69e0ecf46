package engine

import (
	"bytes"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/statefile"
	"github.com/ral-limiter/ral/policy"
)

// Use counts as under SetPolicy at the last instant.
func TestWallClockThatWentBackBeforeAnotherLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const last = policy.Instant(100 * time.Second)
		for _, limits := range [][2]string{
			{"at most 5/10m", "at most 5/1m"}, {"window 5/h", "window 5/20s"}, {"sliding 5/h", "sliding 5/20s"},
			{"funnel 5, 5/h", "funnel 5, 5/20s"}, {"queue 4, 5/h", "queue 4, 5/20s"},
		} {
			from, to := parsed(t, limits[0]), parsed(t, limits[1])
			word, _ := from.Take(0, last-policy.Instant(90*time.Second), 1, 0)
			for {
				next, d := from.Take(word, last, 1, 0)
				if !d.Allowed {
					break
				}
				word = next
			}
			for _, back := range []time.Duration{0, time.Second, time.Hour, 100 * 365 * 24 * time.Hour} {
				var file bytes.Buffer
				zero := time.Now().Add(back - time.Duration(last))
				w, err := statefile.NewWriter(&file, statefile.Header{Epoch: zero, Limit: from.String(), Codec: "string"})
				require.NoError(t, err)
				require.NoError(t, w.Add([]byte("a"), word, 0))
				require.NoError(t, w.Close(last))
				e, err := Load[string](&file, Config{Policy: to})
				require.NoError(t, err)
				require.False(t, e.Choke("a"), "%v, %v back", limits, back)
				check(t, e)
			}
		}
	})
}

// Also over further restarts: a key whose window has ended is not in the file. The engine goes on
// by the file's time.
//
// Promise: A wall clock set back repeats no window.
func TestNoWindowComesAgainIfTheWallClockWentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const last, back = policy.Instant(100 * time.Hour), 25 * time.Minute
		config := Config{Policy: parsed(t, "window 10/h aligned")}
		// It is 00:40. The file was saved at 01:05.
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + 40*time.Minute)))
		var file bytes.Buffer
		w, err := statefile.NewWriter(&file, statefile.Header{
			Epoch: time.Now().Add(back - time.Duration(last)), Limit: config.Policy.String(), Codec: "string",
		})
		require.NoError(t, err)
		require.NoError(t, w.Add([]byte("another"), 0, 0))
		require.NoError(t, w.Close(last))
		e, err := Load[string](&file, config)
		require.NoError(t, err)
		require.True(t, e.Take("a", 10).Allowed)
		require.Equal(t, 55*time.Minute, e.Peek("a", 0).ResetAfter)
		for range 54 {
			time.Sleep(time.Minute)
			require.False(t, e.Choke("a"), "%v", time.Now())
			e = restart(t, e, config, func() {})
		}
		time.Sleep(time.Minute)
		require.True(t, e.Take("a", 10).Allowed)
		check(t, e)
	})
}

// A save leaves out keys that were as good as new before its clock went back. The loading engine
// begins where they were.
func TestClockThatGoesBackDuringASave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		hand := newHandClock()
		config := Config{Policy: parsed(t, "window 5/m aligned"), Clock: hand.Now}
		back := func(dst []byte, key string) ([]byte, error) {
			hand.Advance(-90 * time.Second)
			return append(dst, key...), nil
		}
		codec := KeyCodec("string", back, func(src []byte) (string, error) { return string(src), nil })
		e, err := New(config, codec)
		require.NoError(t, err)
		defer check(t, e)
		require.True(t, e.Take("a", 5).Allowed)
		hand.Advance(2 * time.Minute)
		require.True(t, e.Take("b", 5).Allowed)
		var file bytes.Buffer
		require.NoError(t, e.Save(&file))
		loaded, err := Load[string](&file, config)
		require.NoError(t, err)
		defer check(t, loaded)
		require.Equal(t, time.Minute, loaded.Peek("b", 0).ResetAfter, "a has another window")
	})
}

// The engine begins no earlier than keys were left out as fresh: they would still owe.
func TestWallClockThatGoesBackDuringALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limits := range [][2]string{{"funnel 10, 10/h", "funnel 10, 10/h"}, {"funnel 10, 10/h", "funnel 20, 20/h"}} {
			for _, byClock := range []bool{false, true} {
				const last = policy.Instant(100 * time.Hour)
				limit := parsed(t, limits[0])
				word, d := limit.Take(0, last, 10, 0) // fresh after an hour
				require.True(t, d.Allowed)
				var file bytes.Buffer
				zero := time.Now().Add(-time.Duration(last))
				w, err := statefile.NewWriter(&file, statefile.Header{Epoch: zero, Limit: limit.String(), Codec: "string"})
				require.NoError(t, err)
				require.NoError(t, w.Add([]byte("a"), word, 0))
				require.NoError(t, w.Close(last))
				judged, reads := last+policy.Instant(2*time.Hour), 0
				config := Config{Policy: parsed(t, limits[1]), wall: func() time.Time {
					if reads++; reads == 1 {
						return zero.Add(time.Duration(judged))
					}
					return zero.Add(time.Duration(last)) // two hours back
				}}
				if byClock {
					config.Clock = newHandClock().Now
				}
				e, err := Load[string](&file, config)
				require.NoError(t, err)
				require.Greater(t, reads, 1)
				require.Zero(t, e.Len(), "a was fresh")
				require.GreaterOrEqual(t, e.control.Now(), judged)
				check(t, e)
			}
		}
	})
}

// A save that is held up between its clocks moves no window.
func TestSaveThatIsHeldUpMovesNoWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		hand := newHandClock()
		var heldUp atomic.Int64
		config := Config{Policy: parsed(t, "window 5/m aligned"), Clock: func() policy.Instant {
			now, held := hand.Now(), time.Duration(heldUp.Swap(0))
			time.Sleep(held)
			hand.Advance(held)
			return now
		}}
		e := open[string](t, config)
		require.True(t, e.Take("a", 5).Allowed)
		synctest.Wait() // the writer reads the clock, too
		heldUp.Store(int64(40 * time.Second))
		loaded := restart(t, e, config, func() {})
		defer check(t, loaded)
		require.False(t, loaded.Choke("a"), "the minute is not over")
	})
}
