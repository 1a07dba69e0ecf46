package engine

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/policy"
)

var background = context.Background()

// What Acquire has taken can be given back, at once or after a wait, to where it came
// from.
func TestAcquireHandsOutWhatItTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: policy.Must(policy.FixedWindow(10, 10*time.Second))})
		r, err := e.Acquire(background, "key", 8, 0)
		require.NoError(t, err)
		assert.Equal(t, policy.Decision{Allowed: true, Limit: 10, Remaining: 2, ResetAfter: r.ResetAfter}, r.Decision)

		began := time.Now()
		waited, err := e.Acquire(background, "key", 5, time.Minute)
		require.NoError(t, err)
		assert.Equal(t, time.Since(began), waited.Waited)
		assert.Zero(t, r.Waited)
		assert.InDelta(t, 10*time.Second, time.Since(began), float64(100*time.Microsecond))
		assert.EqualValues(t, 5, e.Peek("key").Remaining)
		r.Keep(1)
		assert.EqualValues(t, 5, e.Peek("key").Remaining, "the window of the first is over")
		require.True(t, e.Take("key", 3).Allowed)
		waited.Keep(1)
		assert.EqualValues(t, 6, e.Peek("key").Remaining)
		waited.Cancel()
		assert.EqualValues(t, 6, e.Peek("key").Remaining)
		time.Sleep(20 * time.Second)
		late, err := e.Acquire(background, "key", 2, 0)
		require.NoError(t, err)
		time.Sleep(20 * time.Second)
		e.Take("key", 7)
		late.Cancel()
		assert.EqualValues(t, 3, e.Peek("key").Remaining, "nothing goes to another window")
		s := e.Stats()
		assert.EqualValues(t, []uint64{5, 0}, []uint64{s.Admitted, s.Refused}, "each call once")
		noLines(t, e)
	})
}

// A call that would have to wait for longer than it has patience is refused at once, and
// told when it might come back; one that is overtaken in line when that is over.
func TestAcquireIsPatientForSoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(2, 1, time.Second)})
		began := time.Now()
		since := func() time.Duration { return time.Since(began) }
		require.True(t, e.Take("key", 2).Allowed)
		for _, patience := range []time.Duration{-time.Hour, 0, time.Second - 1} {
			r, err := e.Acquire(background, "key", 1, patience)
			assert.ErrorIs(t, err, cell.ErrDeadline)
			assert.NotErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, policy.Decision{Limit: 2, RetryAfter: time.Second, ResetAfter: 2 * time.Second}, r.Decision)
			r.Cancel()
		}
		assert.Zero(t, since())
		_, err := e.Acquire(background, "key", 1, time.Second)
		require.NoError(t, err)
		assert.Equal(t, time.Second, since())

		// In a line of two, one after the other; the third is too late and knows at once.
		var line sync.WaitGroup
		var ended [2]time.Duration
		for i := range ended {
			line.Go(func() {
				_, err := e.Acquire(background, "key", 1, 2*time.Second)
				assert.NoError(t, err)
				ended[i] = since()
			})
			synctest.Wait()
		}
		r, err := e.Acquire(background, "key", 1, 3*time.Second-1)
		assert.ErrorIs(t, err, cell.ErrDeadline)
		assert.False(t, r.Allowed)
		assert.Positive(t, r.RetryAfter)
		assert.Equal(t, time.Second, since())
		line.Wait()
		assert.Equal(t, [2]time.Duration{2 * time.Second, 3 * time.Second}, ended)

		// Charged while it waits, its turn does not come in time: the first has taken
		// already, the second has not.
		began = time.Now()
		for i := range ended {
			line.Go(func() {
				r, err := e.Acquire(background, "key", 1, 2*time.Second)
				assert.Equal(t, i == 1, err != nil)
				if err != nil {
					assert.ErrorIs(t, err, cell.ErrDeadline)
				}
				assert.Equal(t, time.Since(began), r.Waited)
				ended[i] = since()
			})
			synctest.Wait()
		}
		e.Refund("key", -5)
		line.Wait()
		assert.Equal(t, [2]time.Duration{time.Second, 2 * time.Second}, ended)
		assert.Equal(t, 6*time.Second, e.Peek("key").ResetAfter, "who gave up has taken nothing")
		noLines(t, e)
	})
}

// Who comes just as a window opens is served behind those who wait for it.
func TestAcquireDoesNotOvertakeTheLine(t *testing.T) {
	for _, p := range []policy.Policy{
		policy.Must(policy.FixedWindow(3, time.Second)), policy.Must(policy.AtMost(3, time.Second)), funnel(3, 3, time.Second),
	} {
		synctest.Test(t, func(t *testing.T) {
			e := open[string](t, Config{Policy: p})
			require.True(t, e.Take("key", 3).Allowed)
			var mu sync.Mutex
			var order []int
			var line sync.WaitGroup
			for i := range 6 {
				line.Go(func() {
					if i >= 3 { // these come when the first turn is there, as late as can be
						time.Sleep(e.Take("key", 1).RetryAfter)
						for range 50 {
							runtime.Gosched()
						}
					}
					if _, err := e.Acquire(background, "key", 1, time.Minute); assert.NoError(t, err) {
						mu.Lock()
						order = append(order, i/3) // those of one turn wake in any order
						mu.Unlock()
					}
				})
				if i < 3 {
					synctest.Wait()
				}
			}
			line.Wait()
			assert.Equal(t, []int{0, 0, 0, 1, 1, 1}, order, "%v", p)
		})
	}
}

// Each error of Acquire comes at once, with a refusal.
func TestAcquireErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{Policy: funnel(2, 1, time.Second), MaxWaiting: 1, WhenUnavailable: Refuse}
		e := open[any](t, config)
		closed := open[any](t, config)
		require.NoError(t, closed.Close())
		full := config
		full.MaxKeys, full.WhenFull = 1, RefuseNew
		crowded := open[any](t, full)
		require.True(t, crowded.Choke("only"))
		require.True(t, e.Take("line", 2).Allowed)
		synctest.Wait()
		go func() { _, _ = e.Acquire(background, "line", 1, time.Minute) }()
		synctest.Wait()
		ended, cancel := context.WithCancel(background)
		cancel()
		began := time.Now()
		for _, c := range []struct {
			e     *Engine[any]
			ctx   context.Context
			key   any
			n     int64
			want  error
			retry time.Duration
		}{
			{e, background, "line", 1, cell.ErrCrowded, 2 * time.Second},
			{e, background, "key", 3, cell.ErrNever, policy.Never},
			{e, background, "key", -1, cell.ErrNever, policy.Never},
			{e, ended, "key", 1, cell.ErrCancelled, 1},
			{e, background, []int{}, 1, cell.ErrUnavailable, DefaultOpenTimeout},
			{closed, background, "key", 1, cell.ErrClosed, DefaultOpenTimeout},
			{closed, background, "key", 3, cell.ErrClosed, policy.Never},
			{crowded, background, "new", 1, cell.ErrDeadline, 1}, // room comes later than in a second
		} {
			before := c.e.Stats()
			r, err := c.e.Acquire(c.ctx, c.key, c.n, time.Second)
			assert.ErrorIs(t, err, c.want)
			assert.False(t, r.Allowed)
			assert.Equal(t, c.retry, r.RetryAfter, "%v", c.want)
			stands := c.e.Peek(c.key) // as before
			if c.want == cell.ErrUnavailable || c.want == cell.ErrClosed && c.retry < policy.Never {
				stands = policy.Decision{Limit: 2} // nobody knows
			}
			stands.Allowed, stands.RetryAfter = false, c.retry
			assert.Equal(t, stands, r.Decision, "%v", c.want)
			after := c.e.Stats()
			assert.Equal(t, before.Refused+1, after.Refused, "%v", c.want)
			r.Cancel()
		}
		assert.Equal(t, began, time.Now())
		time.Sleep(time.Minute)
	})
}

// Several keys at once: their order, how long, and that it is all or none.
func TestAcquireAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{MaxWaiting: 3}
		config.Policy = funnel(1, 1, time.Second)
		fast := open[string](t, config)
		config.Policy = funnel(100, 1, time.Second)
		wide := open[int](t, config)
		began := time.Now()
		type end struct {
			err error
			at  time.Duration
		}
		var ends [6]end
		var line sync.WaitGroup
		for i := range ends {
			line.Go(func() {
				out, err := cell.AcquireAll(background, 1, 2500*time.Millisecond, wide.Claim(1), fast.Claim("key"))
				ends[i] = end{err, time.Since(began)}
				assert.Equal(t, time.Since(began), out.Waited)
				assert.Equal(t, err == nil, out.Allowed)
				assert.Len(t, out.Decisions, 2)
				if err != nil {
					assert.Equal(t, 1, out.Binding)
					assert.Positive(t, out.RetryAfter)
					assert.True(t, out.Decisions[0].Allowed)
				}
			})
			synctest.Wait() // it has its place
		}
		line.Wait()
		for i, want := range []time.Duration{0, time.Second, 2 * time.Second} {
			assert.Equal(t, end{nil, want}, ends[i])
		}
		for _, late := range ends[3:] {
			assert.ErrorIs(t, late.err, cell.ErrDeadline)
			assert.Zero(t, late.at, "it was refused at once")
		}
		assert.Equal(t, time.Second, wide.Peek(1).ResetAfter, "three, of which two have drained")
		assert.Equal(t, []uint64{3, 3}, []uint64{fast.Stats().Admitted, fast.Stats().Refused})
		assert.Equal(t, []uint64{3, 0}, []uint64{wide.Stats().Admitted, wide.Stats().Refused})
		noLines(t, fast)
		noLines(t, wide)
	})
}

// As many wait as may; and who looks or asks for nothing never does.
func TestAcquireAllIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{MaxWaiting: 3, Policy: funnel(1, 1, time.Second)}
		e, other := open[string](t, config), open[string](t, Config{Policy: funnel(100, 1, time.Second)})
		claims := []cell.Claim{e.Claim("key"), other.Claim("key")}
		require.True(t, cell.TakeAll(1, claims...).Allowed)
		errs := make(chan error, 100)
		for range 100 {
			go func() {
				_, err := cell.AcquireAll(background, 1, time.Hour, claims...)
				errs <- err
			}()
		}
		synctest.Wait()
		assert.Len(t, errs, 97)
		out, err := cell.AcquireAll(background, 0, time.Hour, claims...)
		assert.NoError(t, err)
		assert.True(t, out.Allowed)
		for i := range 100 {
			if err := <-errs; i < 97 {
				assert.ErrorIs(t, err, cell.ErrCrowded)
			} else {
				assert.NoError(t, err)
			}
		}
		for _, n := range []int64{-1, 2} {
			out, err = cell.AcquireAll(background, n, time.Hour, claims...)
			assert.ErrorIs(t, err, cell.ErrNever)
			assert.Equal(t, policy.Never, out.RetryAfter)
		}
		out, err = cell.AcquireAll(background, 5, 0)
		assert.NoError(t, err)
		assert.True(t, out.Allowed, "there is nothing to wait for")
	})
}

// A turn that comes while another limit has no room is given back, and the wait goes on
// there; if that takes too long nothing is taken, and nobody waits in vain.
func TestAcquireAllGoesFromLineToLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := open[string](t, Config{Policy: funnel(10, 1, time.Second)}), open[string](t, Config{Policy: funnel(10, 1, time.Second)})
		claims := []cell.Claim{a.Claim("key"), b.Claim("key")}
		require.True(t, cell.TakeAll(10, claims...).Allowed)
		began := time.Now()
		time.AfterFunc(4*time.Second, func() { b.Refund("key", -2) })
		out, err := cell.AcquireAll(background, 5, time.Minute, claims...)
		require.NoError(t, err)
		assert.True(t, out.Allowed)
		assert.Equal(t, 7*time.Second, time.Since(began))
		assert.Equal(t, 7*time.Second, out.Waited, "in both lines")
		assert.Equal(t, []policy.Decision{a.Peek("key"), b.Peek("key")}, out.Decisions, "now, not when it took")
		assert.Equal(t, 8*time.Second, a.Peek("key").ResetAfter, "it waited for both, and took once")
		assert.Equal(t, 10*time.Second, b.Peek("key").ResetAfter)

		// Too long for one: it is not waited for the other.
		b.Refund("key", -10)
		began = time.Now()
		out, err = cell.AcquireAll(background, 5, 10*time.Second, claims...)
		assert.ErrorIs(t, err, cell.ErrDeadline)
		assert.Equal(t, 1, out.Binding)
		assert.Equal(t, 15*time.Second, out.RetryAfter)
		assert.Zero(t, time.Since(began))
		assert.Equal(t, 8*time.Second, a.Peek("key").ResetAfter)

		// It gives up in the second line, and has given back what it had of the first.
		time.Sleep(time.Minute)
		require.True(t, cell.TakeAll(10, claims...).Allowed)
		time.AfterFunc(4*time.Second, func() { b.Refund("key", -7) }) // 12 s in all
		began = time.Now()
		_, err = cell.AcquireAll(background, 5, 10*time.Second, claims...)
		assert.ErrorIs(t, err, cell.ErrDeadline)
		assert.Equal(t, 5*time.Second, time.Since(began))
		assert.Equal(t, 5*time.Second, a.Peek("key").ResetAfter)

		// The context ends while it waits, or has before.
		b.Reset("key")
		ctx, cancel := context.WithTimeout(background, time.Minute)
		time.AfterFunc(3*time.Second, cancel)
		require.True(t, a.Take("key", 4).Allowed)
		began = time.Now()
		_, err = cell.AcquireAll(ctx, 5, 10*time.Minute, claims...)
		assert.ErrorIs(t, err, cell.ErrCancelled)
		assert.Equal(t, 3*time.Second, time.Since(began))
		assert.Equal(t, 6*time.Second, a.Peek("key").ResetAfter)
		out, err = cell.AcquireAll(ctx, 1, time.Minute, a.Claim("new"))
		assert.ErrorIs(t, err, cell.ErrCancelled)
		assert.False(t, out.Allowed)
		assert.Zero(t, a.Peek("new").ResetAfter)
		noLines(t, a)
		noLines(t, b)
	})
}

// Who comes later stands behind those in line, also where there is room for him; and in no
// line if another limit has none for longer than he would wait.
func TestAcquireAllStandsInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := open[string](t, Config{Policy: funnel(10, 1, time.Second)}), open[string](t, Config{Policy: funnel(10, 1, time.Second)})
		claims := []cell.Claim{a.Claim("key"), b.Claim("key")}
		require.True(t, cell.TakeAll(10, claims...).Allowed)
		began := time.Now()
		var line sync.WaitGroup
		wait := func(n int64, want time.Duration) {
			line.Go(func() {
				_, err := cell.AcquireAll(background, n, time.Minute, claims...)
				assert.NoError(t, err)
				assert.Equal(t, want, time.Since(began), "%d", n)
			})
			synctest.Wait()
		}
		wait(5, 5*time.Second)
		wait(10, 10*time.Second)
		a.Refund("key", 10)
		b.Refund("key", 10)
		wait(1, 11*time.Second) // there are five, but others came before
		b.Refund("key", -100)
		out, err := cell.AcquireAll(background, 1, 50*time.Second, claims...)
		assert.ErrorIs(t, err, cell.ErrDeadline)
		assert.Equal(t, 1, out.Binding)
		assert.Zero(t, time.Since(began))
		b.Refund("key", 100)
		line.Wait()

		// It waits in vain for one: the other, which had no room, has by then.
		require.True(t, b.Take("key", b.Peek("key").Remaining).Allowed)
		began = time.Now()
		line.Go(func() { assert.NoError(t, a.Wait(background, "key", 10)) })
		synctest.Wait()
		line.Go(func() {
			out, err := cell.AcquireAll(background, 1, 20*time.Second, claims...)
			assert.ErrorIs(t, err, cell.ErrDeadline)
			assert.Equal(t, 20*time.Second, time.Since(began))
			assert.True(t, out.Decisions[1].Allowed)
			assert.Equal(t, 0, out.Binding)
		})
		synctest.Wait()
		a.Refund("key", -100)
		line.Wait()
	})
}

// Nobody waits for an engine that is closed, whatever it answers to those who do not wait.
func TestAcquireAllOfAClosedEngine(t *testing.T) {
	for _, when := range []cell.WhenUnavailable{Admit, Refuse} {
		synctest.Test(t, func(t *testing.T) {
			config := Config{Policy: funnel(1, 1, time.Second), WhenUnavailable: when}
			good, closed, closes := open[string](t, config), open[string](t, config), open[string](t, config)
			require.NoError(t, closed.Close())
			began := time.Now()
			out, err := cell.AcquireAll(background, 1, time.Hour, good.Claim("key"), closed.Claim("key"))
			assert.ErrorIs(t, err, cell.ErrClosed)
			assert.False(t, out.Allowed)
			assert.Equal(t, 1, out.Binding)
			assert.Equal(t, DefaultOpenTimeout, out.RetryAfter)
			assert.Zero(t, good.Peek("key").ResetAfter)
			require.True(t, closes.Choke("key"))
			time.AfterFunc(100*time.Millisecond, func() { assert.NoError(t, closes.Close()) })
			var single cell.Reservation[string]
			var alone sync.WaitGroup
			alone.Go(func() { single, err = closes.Acquire(background, "key", 1, time.Hour) })
			synctest.Wait()
			out, all := cell.AcquireAll(background, 1, time.Hour, closes.Claim("key"), good.Claim("other"))
			alone.Wait()
			assert.ErrorIs(t, err, cell.ErrClosed)
			assert.ErrorIs(t, all, cell.ErrClosed)
			assert.Equal(t, 100*time.Millisecond, time.Since(began))
			assert.Equal(t, 100*time.Millisecond, single.Waited)
			assert.Equal(t, 100*time.Millisecond, out.Waited)
			assert.Zero(t, good.Peek("other").ResetAfter)
		})
	}
}

// Whose context is over already takes nothing, waits for nothing, and is told how all claims
// stand: those that refuse do, or else the first, as by Acquire.
func TestAcquireAllWhenTheContextIsOver(t *testing.T) {
	ended, cancel := context.WithCancel(background)
	cancel()
	clock := newHandClock()
	config := Config{Policy: funnel(3, 1, time.Second), Clock: clock.Now}
	a, b, c := open[string](t, config), open[string](t, config), open[string](t, config)
	require.True(t, a.Take("used", 1).Allowed)
	require.True(t, b.Take("empty", 3).Allowed)
	for _, of := range []struct {
		n        int64
		claims   []cell.Claim
		binding  int
		retry    time.Duration
		refusing int
	}{
		{1, []cell.Claim{a.Claim("used"), b.Claim("new"), a.Claim("new")}, 0, 1, 1},
		{0, []cell.Claim{a.Claim("used"), b.Claim("empty")}, 0, 1, 0},
		{1, []cell.Claim{a.Claim("used"), b.Claim("empty")}, 1, time.Second, 1},
		{2, []cell.Claim{a.Claim("used"), b.Claim("empty"), a.Claim("used")}, 0, policy.Never, 2},
		{-1, []cell.Claim{a.Claim("used"), b.Claim("empty")}, 0, policy.Never, 2},
		{1, nil, -1, 0, 0},
	} {
		before := a.Stats().Refused + b.Stats().Refused
		out, err := cell.AcquireAll(ended, of.n, time.Hour, of.claims...)
		assert.ErrorIs(t, err, cell.ErrCancelled)
		assert.Equal(t, of.binding, out.Binding, "%+v", of)
		assert.Equal(t, of.retry, out.RetryAfter, "%+v", of)
		assert.False(t, out.Allowed)
		require.Len(t, out.Decisions, len(of.claims))
		for i, claim := range of.claims {
			d := cell.TakeAll(0, claim).Decisions[0]
			assert.Equal(t, d.Remaining, out.Decisions[i].Remaining)
			assert.Equal(t, d.ResetAfter, out.Decisions[i].ResetAfter)
			assert.Equal(t, out.Decisions[i].Allowed, out.Decisions[i].RetryAfter == 0)
		}
		assert.EqualValues(t, of.refusing, a.Stats().Refused+b.Stats().Refused-before, "%+v", of)
		out.Keep(0)
	}
	assert.Equal(t, 2, a.Len()+b.Len())

	// Nobody asks a closed engine for nothing without being told.
	require.NoError(t, c.Close())
	for _, n := range []int64{0, 1} {
		_, err := cell.AcquireAll(background, n, time.Hour, a.Claim("used"), c.Claim("key"))
		assert.ErrorIs(t, err, cell.ErrClosed)
	}
}

// refuses is a limit that has no room when it is asked again, and notes that.
type refuses struct {
	policy.Policy
	asked int
	noted func()
}

func (r *refuses) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	if n > 0 {
		if r.asked++; r.asked == 2 {
			r.noted()
			return word, policy.Decision{Limit: 5, RetryAfter: time.Second}
		}
	}
	return r.Policy.Take(word, now, n, patience)
}

// A key that could not be recorded was let pass, and is refused when another limit had no room
// and its own was changed. That is no answer without the key's word.
func TestTakeAllCountsWhatIsRefusedInTheEnd(t *testing.T) {
	chosen := funnel(5, 1, time.Second)
	odd := openFor(t, Config{Policy: chosen}, func(float64) policy.Policy { return chosen })
	other := open[string](t, Config{Policy: &refuses{Policy: chosen, noted: func() { chosen = funnel(1, 1, time.Second) }}})
	out := cell.TakeAll(2, odd.Claim(math.NaN()), other.Claim("key"))
	assert.False(t, out.Allowed)
	assert.Equal(t, policy.Never, out.Decisions[0].RetryAfter)
	assert.Equal(t, time.Second, out.Decisions[1].RetryAfter)
	s := odd.Stats()
	assert.EqualValues(t, []uint64{0, 1, 0}, []uint64{s.Admitted, s.Refused, s.Unavailable})
	assert.EqualValues(t, 1, other.Stats().Refused)
}

// Many calls wait for overlapping keys, some give up. Those that are let pass keep to
// each limit in every window, nothing is left in line, and in the end all has drained.
func TestAcquireAllKeepsToTheLimits(t *testing.T) {
	const interval, capacity = 10 * time.Millisecond, 4
	for round := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			var engines [3]*Engine[int]
			for i := range engines {
				engines[i] = open[int](t, Config{Policy: funnel(capacity, 1, interval)})
			}
			began := time.Now()
			var mu sync.Mutex
			var passed [3][2][]row
			admitted, refused := 0, 0
			var all sync.WaitGroup
			for i := range uint64(60) {
				all.Go(func() {
					dice := rand.New(rand.NewPCG(71+round, i))
					time.Sleep(time.Duration(dice.Int64N(int64(300 * time.Millisecond))))
					n, key := 1+dice.Int64N(3), dice.IntN(2)
					set := dice.Perm(3)[:1+dice.IntN(3)]
					var claims []cell.Claim
					for _, at := range set {
						claims = append(claims, engines[at].Claim(key))
					}
					ctx, cancel := context.WithTimeout(background, time.Duration(dice.Int64N(int64(time.Second))))
					defer cancel()
					out, err := cell.AcquireAll(ctx, n, time.Duration(dice.Int64N(int64(time.Second))), claims...)
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						refused++
						return
					}
					admitted++
					if dice.IntN(3) == 0 {
						out.Keep(n - 1) // at once
						n--
					}
					for _, at := range set {
						passed[at][key] = append(passed[at][key], row{start: int64(time.Since(began)), n: n})
					}
				})
			}
			all.Wait()
			require.Positive(t, admitted)
			for i, e := range engines {
				for key := range 2 {
					require.Zero(t, overLimit(passed[i][key], int64(interval), capacity*int64(interval)), fmt.Sprint(i, key, passed[i][key]))
				}
				noLines(t, e)
			}
			t.Log(admitted, refused)
		})
	}
}

// Keep gives back to each claim, and counts a key that stands twice twice.
func TestOutcomeKeep(t *testing.T) {
	clock := newHandClock()
	a := open[string](t, Config{Policy: funnel(10, 1, time.Second), Clock: clock.Now})
	b := open[int](t, Config{Policy: policy.Must(policy.FixedWindow(10, time.Minute)), Clock: clock.Now})
	out := cell.TakeAll(3, a.Claim("x"), b.Claim(1), a.Claim("x"), a.Claim("y"))
	require.True(t, out.Allowed)
	out.Keep(1)
	out.Keep(0) // once is enough
	assert.EqualValues(t, []int64{8, 9, 9}, []int64{a.Peek("x").Remaining, a.Peek("y").Remaining, b.Peek(1).Remaining})

	for kept, want := range map[int64]int64{-5: 8, 0: 8, 2: 6, 3: 5, 1 << 62: 5} {
		a.Reset("z")
		a.Take("z", 2)
		out = cell.TakeAll(3, a.Claim("z"))
		out.Keep(kept)
		assert.Equal(t, want, a.Peek("z").Remaining, "%d kept", kept)
	}

	// To the window that they were taken from, or nowhere.
	out = cell.TakeAll(5, a.Claim("x"), b.Claim(1))
	require.True(t, out.Allowed)
	clock.Advance(time.Hour)
	require.True(t, cell.TakeAll(6, a.Claim("x"), b.Claim(1)).Allowed)
	out.Keep(0)
	assert.EqualValues(t, []int64{4, 4}, []int64{a.Peek("x").Remaining, b.Peek(1).Remaining})

	refused := cell.TakeAll(11, a.Claim("x"))
	refused.Keep(0)
	looked := cell.TakeAll(0, a.Claim("x"))
	looked.Keep(0)
	var nothing cell.Outcome
	nothing.Keep(0)
	assert.EqualValues(t, 4, a.Peek("x").Remaining)
}

// A call on several keys allocates what it hands out: the decisions, and a reservation for
// each key.
func TestTakeAllAllocatesWhatItHandsOut(t *testing.T) {
	a, b := open[string](t, Config{Policy: funnel(1_000_000, 1, time.Second)}), open[int](t, Config{Policy: funnel(1_000_000, 1, time.Second)})
	claims := []cell.Claim{a.Claim("key"), b.Claim(1)}
	require.True(t, cell.TakeAll(1, claims...).Allowed)
	settled(t, a)
	settled(t, b)
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { cell.TakeAll(1, claims...) }), 4.0)
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { cell.TakeAll(2_000_000, claims...) }), 1.0)
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { _, _ = cell.AcquireAll(background, 1, time.Second, claims...) }), 4.0)
}
