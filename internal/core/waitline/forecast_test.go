package waitline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// Calls that a crowded line refuses do not walk the line, counted in forecasts. This holds under
// each limit, as turns and time pass, and when units came back while the head's turn is far off.
//
// Promise: A refusal by a crowded line does not walk it.
func TestRefusalsDoNotWalkTheLine(t *testing.T) {
	const waiters, refused, perRefusal = 500, 100, 5
	for _, pair := range families() {
		t.Run(pair[0].String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, h := newDesk(pair[0]), newHall[string](t, waiters+1, waiters+1)
				for range 10 {
					d.take(1)
				}
				ctx, leave := context.WithCancel(t.Context())
				var all []*ends
				for range waiters {
					all = append(all, h.send(ctx, "key", d, 1, Forever))
				}
				waiting := int(h.waiting.Load())
				require.Positive(t, waiting)
				refuse := func() {
					t.Helper()
					d.steps()
					for i := range refused {
						_, err := h.Wait(ctx, "key", &customer{desk: d, n: 1 + int64(i%2)}, time.Millisecond)
						require.Error(t, err)
					}
					assert.LessOrEqual(t, d.steps(), refused*perRefusal+2*waiting, "walks: one, or one of each kind")
				}
				refuse()
				d.refund(2)
				refuse()
				leave()
				synctest.Wait()
				for _, e := range all {
					assert.True(t, e.over)
				}
			})
		})
	}
}

// As turns pass the forecast goes along, and refusals need no walk.
func TestForecastFollowsTheTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters = 200
		d, h := newDesk(funnel(1, 1, time.Second)), newHall[string](t, waiters+1, waiters+1)
		require.True(t, d.take(1))
		var all []*ends
		for range waiters {
			all = append(all, h.send(t.Context(), "key", d, 1, Forever))
		}
		d.steps()
		for turn := range waiters - 2 {
			time.Sleep(time.Second)
			synctest.Wait()
			_, err := h.Wait(t.Context(), "key", &customer{desk: d, n: 1}, time.Duration(waiters-turn-2)*time.Second)
			require.ErrorIs(t, err, ErrDeadline, "turn %d", turn)
		}
		assert.Less(t, d.steps(), 5*waiters, "a walk for each turn would be %d", waiters*waiters/2)
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, e := range all {
			assert.True(t, e.over && e.err == nil)
		}
	})
}

// The remembered forecast is never too late: the forecast refuses no call that a walk would let
// join. Checked under each limit, while calls come and leave, others take and give back, the policy
// changes, the clock jumps and time passes. The calls in line use the key's limit, a chosen limit
// while others use another, or random limits of a family.
func TestRememberedForecastIsNeverTooLate(t *testing.T) {
	for i, pair := range families() {
		for _, limits := range []string{"own", "chosen", "mixed"} {
			t.Run(fmt.Sprint(pair[0], limits), func(t *testing.T) {
				recalled, exact := 0, 0
				for seed := range uint64(30) {
					synctest.Test(t, func(t *testing.T) {
						dice := rand.New(rand.NewPCG(uint64(i), seed))
						d, h := newDesk(pair[0]), newHall[string](t, 100, 100)
						ctx, end := context.WithCancel(t.Context())
						for range 10 {
							d.take(1)
						}
						for range 120 {
							disturb(t, ctx, dice, d, h, pair, limits)
							r, e := compare(t, dice, d, h, pair, limits)
							recalled += r
							exact += e
						}
						end()
						synctest.Wait()
						time.Sleep(time.Minute)
					})
				}
				if limits != "mixed" {
					assert.Greater(t, recalled, 1000)
					assert.Greater(t, exact, recalled*9/10)
				}
			})
		}
	}
}

// The head may take at once, and has not yet. Its key's last unit leaves, and what follows counts in
// shorter parts, so that turns come sooner.
func TestForecastIsForgottenWithTheKeysParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, h := newDesk(policy.Must(policy.AtMost(10, time.Second))), newHall[string](t, 9, 9)
		require.True(t, d.take(1))
		d.change(t, policy.Must(policy.AtMost(4, time.Second)))
		l, w := newLine(h.Lines, "key"), &waiter[state]{call: &customer{desk: d, n: 3}}
		for range 3 {
			l.queue.PushBack(w)
		}
		time.Sleep(1200 * time.Millisecond)
		before, _, _ := l.forecast(w, false)
		l.trim()
		time.Sleep(50 * time.Millisecond)
		_, _, ok := l.forecast(w, true)
		assert.False(t, ok)
		after, _, _ := l.forecast(w, false)
		assert.Equal(t, 175*time.Millisecond, (before - after).Round(time.Millisecond))
	})
}

// compare forecasts some calls that come now, both ways. compare returns how many were remembered,
// and how many of those equal the walk.
func compare(
	t *testing.T, dice *rand.Rand, d *desk, h hall[string], pair [2]policy.Policy, limits string,
) (recalled, exact int) {
	l, ok := h.lines.Load("key")
	if !ok {
		return 0, 0
	}
	l.lock()
	defer l.unlock()
	for n := range int64(4) {
		c := &customer{desk: d, n: n + 1, limit: choose(dice, pair, limits)}
		if limits == "chosen" && n == 3 {
			// The limit is unlike those of the calls in line.
			c.limit = pair[0]
		}
		w := &waiter[state]{call: c}
		early, verdict, ok := l.forecast(w, true)
		if !ok {
			continue
		}
		recalled++
		fromNow, fromTurn := l.fromNow, l.fromTurn
		l.forget()
		wait, walked, _ := l.forecast(w, false)
		l.fromNow, l.fromTurn = fromNow, fromTurn
		if verdict == walked && early == wait {
			exact++
		}
		if verdict != Fits {
			assert.NotEqual(t, Fits, walked, "it is refused, and might join")
		} else if walked == Fits {
			assert.LessOrEqual(t, early, wait)
		}
	}
	return recalled, exact
}

func choose(dice *rand.Rand, pair [2]policy.Policy, limits string) policy.Policy {
	switch limits {
	case "chosen":
		return pair[1]
	case "mixed":
		return pair[dice.IntN(2)]
	}
	return nil
}

// disturb changes the line at random.
func disturb(
	t *testing.T, ctx context.Context, dice *rand.Rand, d *desk, h hall[string], pair [2]policy.Policy, limits string,
) {
	limit := choose(dice, pair, limits)
	switch dice.IntN(14) {
	case 0:
		d.refund(1 + dice.Int64N(5))
	case 1:
		// A negative refund is a charge.
		d.refund(-1 - dice.Int64N(2))
	case 2:
		d.take(1 + dice.Int64N(3))
	case 3:
		if limits == "own" {
			resume := h.Pause()
			d.change(t, pair[dice.IntN(2)])
			resume()
		}
	case 4, 5:
		time.Sleep(time.Duration(dice.Int64N(int64(2 * time.Second))))
	case 6:
		d.skew.Add(dice.Int64N(int64(time.Second)) - int64(time.Second)/2)
	case 7:
		time.Sleep(time.Duration(dice.Int64N(int64(20 * time.Millisecond))))
	case 8:
		var leave context.CancelFunc
		ctx, leave = context.WithCancel(ctx)
		time.AfterFunc(time.Duration(dice.Int64N(int64(2*time.Second))), leave)
		fallthrough
	default:
		h.sendUnder(ctx, "key", d, 1+dice.Int64N(3), time.Duration(dice.Int64N(int64(time.Minute))), limit)
	}
	synctest.Wait()
}
