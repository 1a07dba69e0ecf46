package waitline

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// No take is for before the last promised turn, whatever room was made: first come, first served.
func TestNoTakeIsForBeforeTheLastPromisedTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHall[string](t, 10, 10), newDesk(funnel(10, 1, time.Millisecond))
		require.True(t, d.take(10))
		line := []*ends{h.send(t.Context(), "key", d, 8, Forever)}
		d.refund(18)
		for _, n := range []int64{2, 1, 1} {
			line = append(line, h.send(t.Context(), "key", d, n, Forever))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		first := 8 * time.Millisecond
		for i, e := range line {
			assert.Equal(t, first, e.after, "%d", i)
		}
		turn := int64(first) + 1
		assert.Equal(t, []int64{turn, turn, turn, turn}, d.starts)
		assert.Zero(t, d.notBefore[0])
		assert.Equal(t, turn, d.notBefore[1])
	})
}

// A clock that jumps ahead has room for the calls behind the head. These calls are served behind
// the head, and a call that comes too late for that is told at once.
func TestClockThatJumpsKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHall[string](t, 10, 10), newDesk(funnel(10, 1, time.Millisecond))
		require.True(t, d.take(10))
		line := []*ends{h.send(t.Context(), "key", d, 8, Forever)}
		for _, jump := range []time.Duration{time.Hour, -2 * time.Hour, time.Minute, 3 * time.Hour} {
			d.skew.Add(int64(jump))
			assert.ErrorIs(t, h.send(t.Context(), "key", d, 1, time.Millisecond).err, ErrDeadline)
			line = append(line, h.send(t.Context(), "key", d, 1, Forever))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 8*time.Millisecond, line[0].after)
		for i, e := range line[1:] {
			assert.LessOrEqual(t, line[i].after, e.after)
		}
	})
}

// A call that leaves costs the others nothing: promised calls behind it give back and take again.
//
// Promise: Calls that give up cost no other call its turn.
func TestLeavingMovesTheOthersUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHall[string](t, 10, 10), newDesk(funnel(10, 1, time.Millisecond))
		require.True(t, d.take(10))
		ctx, leave := context.WithCancelCause(t.Context())
		gone := h.send(ctx, "key", d, 8, Forever)
		var line []*ends
		for range 4 {
			line = append(line, h.send(t.Context(), "key", d, 2, Forever))
		}
		why := errors.New("enough")
		leave(why)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.ErrorIs(t, gone.err, ErrCancelled)
		assert.ErrorIs(t, gone.err, why)
		for i, e := range line {
			assert.Equal(t, time.Duration(2*(i+1))*time.Millisecond, e.after)
		}
	})
}

// Each refusal comes at once, names its reason, and leaves nothing behind.
func TestRefusalsComeAtOnceWithTheirReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHall[string](t, 3, 4), newDesk(funnel(2, 1, time.Second))
		require.True(t, d.take(2))
		refused := func(key string, n int64, patience time.Duration, want error, text string) {
			t.Helper()
			e := h.send(t.Context(), key, d, n, patience)
			require.True(t, e.over)
			assert.ErrorIs(t, e.err, want)
			assert.ErrorContains(t, e.err, text)
			assert.Zero(t, e.waited)
		}
		refused("key", 3, Forever, errNever, "never")
		refused("key", 2, 2*time.Second-1, ErrDeadline, "2s to wait, 1.999999999s at the most")
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		late := h.send(soon, "key", d, 2, Forever)
		assert.ErrorIs(t, late.err, ErrDeadline)
		assert.ErrorIs(t, late.err, context.DeadlineExceeded)
		ctx, leave := context.WithCancel(t.Context())
		for range 3 {
			h.send(ctx, "key", d, 1, Forever)
		}
		refused("key", 1, Forever, ErrCrowded, "3 for this key, of at most 3")
		require.True(t, h.Has("key"))
		other := newDesk(funnel(1, 1, time.Second))
		require.True(t, other.take(1))
		h.send(ctx, "other", other, 1, Forever)
		refused("third", 1, Forever, ErrCrowded, "4 for all keys, of at most 4")
		leave()
		synctest.Wait()
		h.empty(t)

		// A turn that moves while the call waits.
		first := h.send(t.Context(), "key", d, 1, time.Second)
		second := h.send(t.Context(), "key", d, 1, 2*time.Second)
		d.refund(-5)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.NoError(t, first.err)
		assert.ErrorIs(t, second.err, ErrDeadline)
		assert.Equal(t, 2*time.Second, second.waited)
	})
}

// The bound over all keys always holds, and each call that leaves makes room for another.
//
// Promise: At most `MaxWaitingTotal` calls wait over all keys.
func TestMaxTotalIsNeverExceeded(t *testing.T) {
	const most, callers, keys = 5, 32, 7
	h := newHall[int](t, callers, most)
	for range most {
		require.True(t, h.enter())
	}
	require.False(t, h.enter())
	h.waiting.Add(-most)
	desks := make([]*desk, keys)
	for i := range desks {
		desks[i] = newDesk(funnel(1, 1, time.Millisecond))
	}
	var over atomic.Bool
	var watch, all sync.WaitGroup
	watch.Go(func() {
		for !over.Load() {
			assert.LessOrEqual(t, h.waiting.Load(), int64(most))
		}
	})
	var served, crowded atomic.Int64
	givesUp := make(chan context.CancelFunc, callers*50)
	for i := range callers {
		all.Go(func() {
			for round := range 50 {
				key := (i + round) % keys
				ctx, cancel := context.WithCancel(t.Context())
				if round%3 == 0 {
					// Another caller has the call give up, if the call still waits then.
					givesUp <- cancel
				}
				_, err := h.Wait(ctx, key, &customer{desk: desks[key], n: 1}, Forever)
				cancel()
				select {
				case leave := <-givesUp:
					leave()
				default:
				}
				switch {
				case err == nil:
					served.Add(1)
				case errors.Is(err, ErrCrowded):
					crowded.Add(1)
				default:
					assert.ErrorIs(t, err, ErrCancelled)
				}
			}
		})
	}
	all.Wait()
	over.Store(true)
	watch.Wait()
	assert.Positive(t, served.Load())
	assert.Positive(t, crowded.Load())
}

// Promise: A call that panics leaves its line to the others.
func TestCallThatPanicsLeavesTheLine(t *testing.T) {
	for _, method := range []string{"State", "Forecast", "Take", "GiveBack"} {
		for index := range 3 {
			synctest.Test(t, func(t *testing.T) {
				h, d := newHall[string](t, 10, 10), newDesk(funnel(10, 1, time.Millisecond))
				require.True(t, d.take(10))
				first, leave := context.WithCancel(t.Context())
				defer leave()
				var all []*ends
				for i, ctx := range []context.Context{first, t.Context(), t.Context()} {
					if i == index && method != "GiveBack" {
						d.panics = method
					}
					all = append(all, h.send(ctx, "key", d, 2, Forever))
				}
				if method == "GiveBack" {
					d.panics = method
					leave()
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				panicked := 0
				for _, e := range all {
					assert.True(t, e.over, "%s: it waits for ever", method)
					if e.panicked != nil {
						panicked++
					} else {
						assert.LessOrEqual(t, e.after, 10*time.Millisecond)
					}
				}
				assert.Equal(t, 1, panicked, "%s at %d", method, index)
				h.empty(t)
			})
		}
	}
}

// A new limit never admits the waiting calls: all get an error and leave the line.
func TestCallsThatFailTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHall[string](t, 10, 10), newDesk(funnel(10, 1, time.Second))
		require.True(t, d.take(10))
		var all []*ends
		for range 4 {
			all = append(all, h.send(t.Context(), "key", d, 6, Forever))
		}
		resume := h.Pause()
		d.change(t, funnel(5, 1, time.Second))
		resume()
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		for _, e := range all {
			assert.ErrorIs(t, e.err, errNever)
		}
		h.empty(t)
	})
}

func TestNoCallJoinsALineThatIsGone(t *testing.T) {
	h := newHall[string](t, 10, 10)
	for range 2000 {
		l := h.join("key")
		looks, joined := make(chan struct{}), make(chan bool)
		go func() {
			close(looks)
			l := h.join("key")
			now, _ := h.lines.Load("key")
			l.release()
			joined <- l == now
		}()
		<-looks
		runtime.Gosched()
		l.release()
		require.True(t, <-joined)
	}
}

// Pause revokes turns and lets no call take until it is over, unless a Call panics under it.
func TestPauseRevokesTurnsUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHall[int](t, 10, 10), newDesk(funnel(1, 1, time.Second))
		require.True(t, d.take(1))
		word := d.word
		waiting := h.send(t.Context(), 1, d, 1, Forever)
		assert.NotEqual(t, word, d.word, "the waiting call did not take its units ahead")
		resume := h.Pause()
		assert.Equal(t, word, d.word, "the pause did not revoke the turn")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.False(t, waiting.over)
		late := h.send(t.Context(), 2, newDesk(funnel(1, 1, time.Second)), 1, Forever)
		assert.False(t, late.over, "a call during the pause did not wait")
		resume()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.NoError(t, waiting.err)
		assert.NoError(t, late.err)
		assert.LessOrEqual(t, waiting.after, 10*time.Second+2*time.Millisecond)

		require.False(t, d.take(2))
		d.refund(-1)
		waiting = h.send(t.Context(), 1, d, 1, Forever)
		d.panics = "GiveBack"
		assert.Panics(t, func() { h.Pause() })
		assert.Zero(t, h.paused.Load())
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.NoError(t, waiting.err)
		assert.True(t, waiting.over)
	})
}

// After Pause no line keeps a state from being collected.
func TestPauseForgetsStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHall[int](t, 10, 10), newDesk(funnel(1, 1, time.Second))
		require.True(t, d.take(1))
		ctx, leave := context.WithCancel(t.Context())
		for range 3 {
			h.send(ctx, 1, d, 1, Forever)
		}
		l, _ := h.lines.Load(1)
		assert.NotEmpty(t, l.fromNow.steps)
		resume := h.Pause()
		assert.Empty(t, l.fromNow.steps)
		h.send(ctx, 1, d, 1, Forever)
		assert.NotEmpty(t, l.fromNow.steps)
		// There is no turn to be revoked.
		h.Pause()()
		resume()
		assert.Equal(t, outlook[state]{}, l.fromNow)
		assert.Equal(t, outlook[state]{}, l.fromTurn)
		leave()
		synctest.Wait()
	})
}

func TestDoneEndsAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall[int](t, 10, 30)
		var all []*ends
		for key := range 3 {
			d := newDesk(funnel(1, 1, time.Second))
			require.True(t, d.take(1))
			for range 10 {
				all = append(all, h.send(t.Context(), key, d, 1, Forever))
			}
		}
		close(h.done)
		synctest.Wait()
		for _, e := range all {
			assert.ErrorIs(t, e.err, ErrClosed)
		}
	})
}

func TestKeysThatCannotBeFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall[any](t, 10, 10)
		for _, key := range []any{[]int{1}, math.NaN(), func() {}, map[string]int{}} {
			d := newDesk(funnel(1, 1, time.Second))
			require.True(t, d.take(1))
			e := h.send(t.Context(), key, d, 1, Forever)
			assert.False(t, h.Has(key))
			time.Sleep(time.Second)
			synctest.Wait()
			assert.Equal(t, &ends{after: time.Second, waited: time.Second, over: true}, e)
			h.empty(t)
		}
	})
}

// blocking is a Call that stands still in Forecast until it is let go.
type blocking struct {
	customer
	entered, release chan struct{}
}

func (b *blocking) Forecast(s state, instant int64) (state, time.Duration, Verdict) {
	close(b.entered)
	<-b.release
	return b.customer.Forecast(s, instant)
}

// A call that stands still in a key's line holds up calls for that key alone.
//
// Promise: A key's line delays no other key's calls.
func TestLinesDoNotHoldUpEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// These are many times as many keys as a map has buckets, or locks.
		const keys = 200
		h := newHall[int](t, 10, 1000)
		b := &blocking{customer{desk: newDesk(funnel(1, 1, time.Second)), n: 1}, make(chan struct{}), make(chan struct{})}
		done := make(chan error, 1)
		go func() {
			_, err := h.Wait(t.Context(), -1, b, Forever)
			done <- err
		}()
		<-b.entered
		for key := range keys {
			d := newDesk(funnel(1, 1, time.Second))
			require.True(t, d.take(1))
			began := time.Now()
			_, err := h.Wait(t.Context(), key, &customer{desk: d, n: 1}, Forever)
			require.NoError(t, err)
			require.Equal(t, time.Second, time.Since(began))
		}
		close(b.release)
		require.NoError(t, <-done)
	})
}

// Another limit gives all calls new turns in order, and wakes those with an earlier turn. Calls
// that the other limit never admits leave.
func TestChangeGivesTurnsAnew(t *testing.T) {
	slow, fast, small := funnel(10, 1, time.Second), funnel(10, 10, time.Second), funnel(4, 1, time.Second)
	for _, c := range []struct {
		name     string
		from, to policy.Policy
		// An end of 0 is never.
		ends []time.Duration
	}{
		// At the change 1 of 10 units has drained, or 3 under the faster limit.
		{"faster", slow, fast, []time.Duration{1400 * time.Millisecond, 1600 * time.Millisecond, 1700 * time.Millisecond}},
		{"slower", fast, slow, []time.Duration{2300 * time.Millisecond, 4300 * time.Millisecond, 5300 * time.Millisecond}},
		{"smaller", slow, small, []time.Duration{0, 3 * time.Second, 4 * time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, d := newHall[string](t, 10, 10), newDesk(c.from)
			require.True(t, d.take(10))
			var line []*ends
			for _, n := range []int64{5, 2, 1} {
				line = append(line, h.sendUnder(t.Context(), "key", d, n, Forever, c.from))
			}
			pause := time.Second
			if c.from == fast {
				pause = 300 * time.Millisecond
			}
			time.Sleep(pause)
			var renewed []int64
			h.Change("key", func() { d.change(t, c.to) }, func(call Call[state]) {
				w := call.(*customer)
				w.limit, renewed = c.to, append(renewed, w.n)
			})
			synctest.Wait()
			assert.Equal(t, []int64{5, 2, 1}, renewed, c.name)
			time.Sleep(time.Minute)
			synctest.Wait()
			for i, want := range c.ends {
				if want == 0 {
					assert.ErrorIs(t, line[i].err, errNever)
					assert.Equal(t, pause, line[i].after, "it leaves at the change")
					continue
				}
				assert.NoError(t, line[i].err)
				assert.InDelta(t, want, line[i].after, 10, "%s, call %d", c.name, i)
			}
		})
	}
}

// A call that comes after a change needs a new forecast.
func TestChangeForgetsForecasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		narrow, wide := funnel(10, 10, time.Second), funnel(1000, 10, time.Second)
		h, d := newHall[string](t, 10, 10), newDesk(narrow)
		require.True(t, d.take(10))
		// The pause keeps each call from holding a turn.
		resume := h.Pause()
		var line []*ends
		for range 3 {
			line = append(line, h.sendUnder(t.Context(), "key", d, 10, Forever, narrow))
		}
		for range 2 {
			late := h.sendUnder(t.Context(), "key", d, 1, time.Second, narrow)
			require.ErrorIs(t, late.err, ErrDeadline)
		}
		// Another limit for the calls need not change the word.
		h.Change("key", func() {}, func(call Call[state]) { call.(*customer).limit = wide })
		soon := h.sendUnder(t.Context(), "key", d, 1, time.Second, wide)
		require.False(t, soon.over, "it joins the line: %v", soon.err)
		resume()
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, e := range append(line, soon) {
			assert.NoError(t, e.err)
			assert.LessOrEqual(t, e.after, time.Second)
		}
	})
}

func TestChangeWithoutALine(t *testing.T) {
	h, changed := newHall[string](t, 1, 1), 0
	h.Change("key", func() { changed++ }, func(Call[state]) { changed-- })
	assert.Equal(t, 1, changed)
}

// blockedCall is a call with a key that must not be used before an instant.
type blockedCall struct {
	*customer
	// until is guarded by the desk.
	until *time.Time
}

func (b blockedCall) BlockedFor() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(time.Until(*b.until), 0)
}

func (b blockedCall) Alike(other Call[state]) bool {
	return b.customer.Alike(other.(blockedCall).customer)
}

// A held call waits past its turn, with the calls behind it in order, until the time is over or it
// is woken. The call may be woken too early. A call that gives up gives back.
func TestHeldCallsWaitPastTheirTurn(t *testing.T) {
	for _, wake := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h, d := newHall[string](t, 10, 10), newDesk(funnel(10, 1, time.Second))
			require.True(t, d.take(10))
			until := d.began.Add(time.Minute)
			var line []*ends
			for _, patience := range []time.Duration{Forever, 10 * time.Second, Forever} {
				line = append(line, h.sendCall(t.Context(), "k", d, blockedCall{&customer{desk: d, n: 1}, &until}, patience))
			}
			time.Sleep(20 * time.Second)
			synctest.Wait()
			assert.Equal(t, 10*time.Second, line[1].after)
			require.ErrorIs(t, line[1].err, ErrDeadline)
			h.Wake("k")
			h.Wake("no line")
			synctest.Wait()
			want := time.Minute
			if wake {
				time.Sleep(10 * time.Second)
				d.mu.Lock()
				until = time.Now()
				d.mu.Unlock()
				h.Wake("k")
				want = 30 * time.Second
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			assert.Equal(t, &ends{after: want, waited: want, over: true}, line[0])
			assert.True(t, line[2].over)
			assert.Equal(t, want, line[2].after)
		})
	}
}

type chooser struct {
	customer
	to policy.Policy
}

func (c *chooser) Renew() { c.limit = c.to }

// The limit changed after the call was made, before it joined.
func TestLimitIsChosenAgainInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, h := newDesk(funnel(2, 1, time.Second)), newHall[string](t, 1, 1)
		d.take(1)
		waited, err := h.Wait(t.Context(), "key", &chooser{customer{desk: d, n: 2, limit: funnel(1, 1, time.Second)}, d.policy}, Forever)
		assert.NoError(t, err)
		assert.Equal(t, time.Second, waited)
	})
}
