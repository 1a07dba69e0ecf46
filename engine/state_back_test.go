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

// stateOf returns a file of an engine with that limit, as it ended at the instant last, with the
// word of the key "a". Instant 0 was at the time zero.
func stateOf(t *testing.T, limit policy.Policy, zero time.Time, last policy.Instant, word uint64) *bytes.Buffer {
	t.Helper()
	var file bytes.Buffer
	w, err := statefile.NewWriter(&file, statefile.Header{Epoch: zero, Limit: limit.String(), Codec: "string"})
	require.NoError(t, err)
	require.NoError(t, w.Add([]byte("a"), word, 0))
	require.NoError(t, w.Close(last))
	return &file
}

// loadState returns an engine with the state of a file.
func loadState(t *testing.T, file *bytes.Buffer, config Config) *Engine[string] {
	t.Helper()
	e, err := Load[string](file, config)
	require.NoError(t, err)
	t.Cleanup(func() { check(t, e) })
	return e
}

// atTheMinute sleeps until a minute of the bubble's clock begins.
func atTheMinute() { time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))) }

// No time has passed then. If it went on, as much has drained.
//
// Promise: A wall clock set back before a load grants nothing.
func TestWallClockThatWentBackMintsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const last = policy.Instant(100 * time.Hour)
		limit := funnel(10, 1, time.Hour)
		word, _ := limit.Take(0, last, 5, 0)
		for _, c := range []struct {
			// passed is the time since last, by the wall clock.
			passed time.Duration
			left   int64
		}{{2 * time.Hour, 7}, {0, 5}, {-1, 5}, {-time.Hour, 5}, {-200 * time.Hour, 5}, {-100 * 365 * 24 * time.Hour, 5}, {time.Hour, 6}} {
			zero := time.Now().Add(-time.Duration(last) - c.passed)
			e := loadState(t, stateOf(t, limit, zero, last, word), Config{Policy: limit})
			require.EqualValues(t, c.left, e.Peek("a", 0).Remaining, "%v", c.passed)
			require.GreaterOrEqual(t, e.control.Now(), last)
			time.Sleep(time.Hour)
			require.EqualValues(t, c.left+1, e.Peek("a", 0).Remaining, "the key must drain from then on")
			require.NoError(t, e.Close())
		}
	})
}

// Promise: A wall clock far ahead during a load shortens no word's time.
func TestWallClockFarAheadStartsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const last = policy.Instant(time.Hour)
		config := Config{Policy: funnel(10, 1, time.Hour)}
		word, _ := config.Policy.Take(0, last, 5, 0)
		e := loadState(t, stateOf(t, config.Policy, time.Now().AddDate(-60, 0, 0), last, word), config)
		require.Equal(t, policy.Instant(1), e.control.Now())
		require.True(t, e.Take("a", 10).Allowed)
		time.Sleep(time.Hour)
		require.True(t, e.Choke("a"))

		// Words that still count there cannot be right.
		word, _ = config.Policy.Take(0, lastLoaded+1, 5, 0)
		_, err := Load[string](stateOf(t, config.Policy, time.Now(), lastLoaded+1, word), config)
		require.ErrorIs(t, err, ErrState)
	})
}

// Promise: A wall clock set back grants nothing under another limit.
func TestWallClockThatWentBackBeforeAnotherLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const last = policy.Instant(100 * time.Second)
		for _, limits := range [][2]string{
			{"at most 5/10m", "at most 5/1m"}, {"window 5/h", "window 5/20s"}, {"sliding 5/h", "sliding 5/20s"},
			{"funnel 5, 5/h", "funnel 5, 5/20s"}, {"queue 4, 5/h", "queue 4, 5/20s"},
		} {
			from := parsed(t, limits[0])
			word, _ := from.Take(0, last-policy.Instant(90*time.Second), 1, 0)
			for allowed := true; allowed; {
				next, d := from.Take(word, last, 1, 0)
				if allowed = d.Allowed; allowed {
					word = next
				}
			}
			for _, back := range []time.Duration{0, time.Second, time.Hour, 100 * 365 * 24 * time.Hour} {
				zero := time.Now().Add(back - time.Duration(last))
				e := loadState(t, stateOf(t, from, zero, last, word), Config{Policy: parsed(t, limits[1])})
				require.False(t, e.Choke("a"), "%v, %v back", limits, back)
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
		e, err := Load[string](stateOf(t, config.Policy, time.Now().Add(back-time.Duration(last)), last, 0), config)
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
		atTheMinute()
		hand := newHandClock()
		config := Config{Policy: parsed(t, "window 5/m aligned"), Clock: hand.Now}
		e, err := New(config, stringCodec(func() { hand.Advance(-90 * time.Second) }))
		require.NoError(t, err)
		defer check(t, e)
		require.True(t, e.Take("a", 5).Allowed)
		hand.Advance(2 * time.Minute)
		require.True(t, e.Take("b", 5).Allowed)
		var file bytes.Buffer
		require.NoError(t, e.Save(&file))
		loaded := loadState(t, &file, config)
		require.Equal(t, time.Minute, loaded.Peek("b", 0).ResetAfter, "key a must have another window")
	})
}

// Promise: A wall clock set back during a load forgives nothing.
func TestWallClockThatGoesBackDuringALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const last = policy.Instant(100 * time.Hour)
		const judged = last + policy.Instant(2*time.Hour)
		limit, zero := parsed(t, "funnel 10, 10/h"), time.Now().Add(-time.Duration(last))
		// The key is fresh after an hour.
		word, d := limit.Take(0, last, 10, 0)
		require.True(t, d.Allowed)
		for _, to := range []string{"funnel 10, 10/h", "funnel 20, 20/h"} {
			for _, clock := range []func() policy.Instant{nil, newHandClock().Now} {
				reads := 0
				e := loadState(t, stateOf(t, limit, zero, last, word), Config{Policy: parsed(t, to), Clock: clock, wall: func() time.Time {
					if reads++; reads == 1 {
						return zero.Add(time.Duration(judged))
					}
					// The wall clock goes back by two hours.
					return zero.Add(time.Duration(last))
				}})
				require.Greater(t, reads, 1)
				require.Zero(t, e.Len(), "key a was fresh, so it must not be loaded")
				require.GreaterOrEqual(t, e.control.Now(), judged)
			}
		}
	})
}

func TestTimePassesDuringALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{Policy: funnel(10, 1, time.Second)}
		e := open[string](t, config)
		require.True(t, e.Take("a", 5).Allowed)
		var file bytes.Buffer
		require.NoError(t, e.Save(&file))
		wall := time.Now()
		config.wall = func() time.Time {
			defer func() { wall = wall.Add(2 * time.Second) }()
			return wall
		}
		a := loadState(t, &file, config).Peek("a", 0)
		require.EqualValues(t, 7, a.Remaining)
		require.Equal(t, 3*time.Second, a.ResetAfter)
	})
}

// A save that is held up between its clocks moves no window.
func TestSaveThatIsHeldUpMovesNoWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		atTheMinute()
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
		// The writer reads the clock, too.
		synctest.Wait()
		heldUp.Store(int64(40 * time.Second))
		loaded := restart(t, e, config, func() {})
		defer check(t, loaded)
		require.False(t, loaded.Choke("a"), "a call must be refused, as the minute is not over")
	})
}
