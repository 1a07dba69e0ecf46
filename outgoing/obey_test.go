package outgoing

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/outgoing/internal/pacing"
	"github.com/ral-limiter/ral/policy"
)

// Every kind of limit, advertised in full, over 95% used. Exceptions are in docs/outgoing.md with
// these figures.
//
// Promise: 100 goroutines use 95% of a limit without a second refusal.
func TestCrowdUsesTheLimitWithoutARefusal(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name   string
		limit  policy.Policy
		rtt    time.Duration
		during time.Duration
		// rate is the rate of the limit, in a second.
		rate float64
		// percent is the least percentage of the limit that is used.
		percent float64
		second  policy.Policy
	}{
		{"bucket of 10, 10/s", policy.Must(policy.Funnel(10, 10, time.Second)), 20 * ms, time.Minute, 10, 95, nil},
		{"bucket of 100, 10/s", policy.Must(policy.Funnel(100, 10, time.Second)), 20 * ms, time.Minute, 10, 95, nil},
		{"bucket of 1, 1/s", policy.Must(policy.Funnel(1, 1, time.Second)), 20 * ms, time.Minute, 1, 95, nil},
		{"bucket of 1000, 1000/s", policy.Must(policy.Funnel(1000, 1000, time.Second)), 20 * ms, 10 * time.Second, 1000, 93, nil},
		{"fixed window 2/s", policy.Must(policy.FixedWindow(2, time.Second)), 20 * ms, time.Minute, 2, 95, nil},
		{"fixed window 10/s", policy.Must(policy.FixedWindow(10, time.Second)), 20 * ms, time.Minute, 10, 95, nil},
		{"fixed window 100/10s", policy.Must(policy.FixedWindow(100, 10*time.Second)), 20 * ms, time.Minute, 10, 95, nil},
		{"fixed window 1000/s", policy.Must(policy.FixedWindow(1000, time.Second)), 5 * ms, 10 * time.Second, 1000, 95, nil},
		{"aligned window 100/10s", policy.Must(policy.AlignedWindow(100, 10*time.Second)), 20 * ms, time.Minute, 10, 95, nil},
		{"sliding window 25/s", policy.Must(policy.SlidingWindow(25, time.Second)), 4 * ms, time.Minute, 25, 95, nil},
		{"sliding window 100/10s", policy.Must(policy.SlidingWindow(100, 10*time.Second)), 20 * ms, 3 * time.Minute, 10, 95, nil},
		{"sliding window 1000/s", policy.Must(policy.SlidingWindow(1000, time.Second)), 5 * ms, 30 * time.Second, 1000, 95, nil},
		// An even pace has room for one call less than the limit.
		{"sliding window 2/s", policy.Must(policy.SlidingWindow(2, time.Second)), 4 * ms, time.Minute, 2, 49, nil},
		{"sliding window 10/s", policy.Must(policy.SlidingWindow(10, time.Second)), 4 * ms, time.Minute, 10, 89, nil},
		// The slower of two limits sets an even pace, the smaller the burst.
		{"window 10/s, 10000/h", policy.Must(policy.FixedWindow(10, time.Second)), 20 * ms, 3 * time.Minute, 10000. / 3600, 95, policy.Must(policy.FixedWindow(10000, time.Hour))},
		{"window 10/s, bucket of 10000, 10000/24h", policy.Must(policy.FixedWindow(10, time.Second)), 20 * ms, 10 * time.Minute, 10000. / 86400, 95, policy.Must(policy.Funnel(10000, 10000, 24*time.Hour))},
		{"bucket of 10, 10/s, of 1000, 1000/h", policy.Must(policy.Funnel(10, 10, time.Second)), 20 * ms, 5 * time.Minute, 1000. / 3600, 95, policy.Must(policy.Funnel(1000, 1000, time.Hour))},
		{"window 20/s, 600/m", policy.Must(policy.FixedWindow(20, time.Second)), 20 * ms, 3 * time.Minute, 10, 95, policy.Must(policy.FixedWindow(600, time.Minute))},
		{"sliding window 3/s, 5000/h", policy.Must(policy.SlidingWindow(3, time.Second)), 4 * ms, 5 * time.Minute, 5000. / 3600, 95, policy.Must(policy.SlidingWindow(5000, time.Hour))},
		{"sliding window 2/s, 5000/h", policy.Must(policy.SlidingWindow(2, time.Second)), 4 * ms, 5 * time.Minute, 5000. / 3600, 69, policy.Must(policy.SlidingWindow(5000, time.Hour))},
	} {
		for pace, name := range map[Pace]string{Spend: "spend", Even: "even"} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				if testing.Short() && c.rate > 100 {
					t.Skip("thousands of calls")
				}
				synctest.Test(t, func(t *testing.T) {
					limits := []policy.Policy{c.limit}
					if c.second != nil {
						limits = append(limits, c.second)
					}
					far := &away{handler: server(t, httplimit.RateLimitHeaders, limits...), rtt: c.rtt}
					rt := must.Get(NewTransport(newLine(t, Config{Pace: pace}), ByHost, Options{Base: far}))
					crowd(t, c.during, rt)
					// TestLongLimitBindsWhenItsRestDoes tests this case.
					if pace == Spend && c.second != nil {
						assert.LessOrEqual(t, far.refused, far.sent/100+int(c.limit.Limit()), "calls were refused after the first answer")
					} else {
						assert.Zero(t, far.refused, "calls were refused after the first answer")
					}
					assert.Zero(t, far.early, "calls were early before the first answer")
					used := 100 * float64(len(far.admitted)) / c.during.Seconds() / c.rate
					assert.GreaterOrEqual(t, used, c.percent, "only %d calls were admitted", len(far.admitted))
					t.Logf("%d admitted, %.1f%%", len(far.admitted), used)
				})
			})
		}
	}
}

// The server's windows are too short to advertise in seconds.
func TestPolicyOfTheCallerHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &away{handler: server(t, httplimit.RateLimitHeaders, policy.Must(policy.Funnel(1, 10, time.Second))), rtt: 4 * time.Millisecond}
		line := newLine(t, Config{Policy: policy.Must(policy.Funnel(1, 10, 1040*time.Millisecond))})
		rt := must.Get(NewTransport(line, ByHost, Options{Base: far}))
		crowd(t, time.Minute, rt)
		assert.Zero(t, far.refused+far.early)
		assert.GreaterOrEqual(t, len(far.admitted), 570)
	})
}

// AtMost sustains less than it advertises.
func TestRefusalsSlowThePaceDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &away{handler: server(t, httplimit.RateLimitHeaders, policy.Must(policy.AtMost(100, 10*time.Second)))}
		line := newLine(t, Config{Pace: Even})
		rt := must.Get(NewTransport(line, ByHost, Options{Base: far}))
		crowd(t, 2*time.Minute, rt)
		assert.Positive(t, far.refused)
		assert.LessOrEqual(t, far.refused, pacing.MaxSlowed)
		early := far.refused
		crowd(t, 2*time.Minute, rt)
		assert.Equal(t, early, far.refused, "the pace that was found must hold")
		slow := line.Limit("there").(policy.Windowed).Window()
		time.Sleep(400 * time.Second)
		turn, err := line.Wait(t.Context(), "there")
		require.NoError(t, err)
		turn.Obey(Answer{Limit: 100, Window: 10 * time.Second, HasRemaining: true, Remaining: 50, Reset: time.Second})
		assert.Less(t, line.Limit("there").(policy.Windowed).Window(), slow, "the pace must rise again later")
	})
}

// turnOf returns a turn available at once.
func turnOf(t testing.TB, l *Line[string]) *Turn[string] {
	t.Helper()
	turn, err := l.Wait(t.Context(), "key")
	require.NoError(t, err)
	return &turn
}

// free returns a line whose server has described no limit.
func free(t testing.TB, c Config) *Line[string] {
	t.Helper()
	l := newLine(t, c)
	turnOf(t, l).Obey(Answer{})
	return l
}

// waiting starts n calls in order and returns when each got its turn.
func waiting(ctx context.Context, l *Line[string], n int) (got *sync.Map, all *sync.WaitGroup) {
	got, all = &sync.Map{}, &sync.WaitGroup{}
	began := time.Now()
	for i := range n {
		all.Go(func() {
			if turn, err := l.Wait(ctx, "key"); err == nil {
				got.Store(i, time.Since(began))
				turn.Obey(Answer{})
			}
		})
		synctest.Wait()
	}
	return got, all
}

// Promise: A refusal holds all its key's calls for its time.
func TestNoCallWakesEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, Config{Policy: policy.Must(policy.Funnel(1, 1, time.Second))})
		first := turnOf(t, l)
		got, all := waiting(t.Context(), l, 5)
		// The head has taken its unit already.
		time.Sleep(500 * time.Millisecond)
		first.Obey(Answer{Refused: true, RetryAfter: 10 * time.Second})
		late, lateAll := waiting(t.Context(), l, 3)
		assert.Equal(t, 10*time.Second, l.BackoffLeft("key"))
		all.Wait()
		lateAll.Wait()
		for i := range 5 {
			instant, ok := got.Load(i)
			require.True(t, ok)
			assert.GreaterOrEqual(t, instant, 10500*time.Millisecond+time.Duration(i)*time.Second)
			assert.LessOrEqual(t, instant, 12500*time.Millisecond+time.Duration(i)*time.Second)
		}
		for i := range 3 {
			at, _ := late.Load(i)
			assert.GreaterOrEqual(t, at, 15*time.Second)
		}
	})
}

func TestOneCallGoesAfterABackoff(t *testing.T) {
	for name, answer := range map[string]Answer{
		"with a limit": {Refused: true, RetryAfter: time.Minute, Limit: 1000, Window: 100 * time.Second},
		"without":      {Refused: true, RetryAfter: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := free(t, Config{})
				var turns []*Turn[string]
				for range 50 {
					turns = append(turns, turnOf(t, l))
				}
				// There is one debt, not 50.
				for _, turn := range turns {
					turn.Obey(answer)
				}
				got, all := waiting(t.Context(), l, 2)
				all.Wait()
				first, _ := got.Load(0)
				second, _ := got.Load(1)
				assert.GreaterOrEqual(t, first, time.Minute)
				assert.LessOrEqual(t, first, time.Minute+200*time.Millisecond)
				assert.True(t, second.(time.Duration) > first.(time.Duration) || second == first && answer.Limit == 0, "the second call must go once the first is answered")
				assert.LessOrEqual(t, second, time.Minute+1200*time.Millisecond)
				assert.Equal(t, uint64(50), l.Stats().Refusals)
			})
		})
	}
}

// The others go at the pace of the limit, whatever came before; in a window after its end.
func TestOneCallGoesAfterABackoffUnderAPolicy(t *testing.T) {
	const apart = 100 * time.Millisecond
	for name, c := range map[string]struct {
		limit  policy.Policy
		window bool
	}{
		"funnel":     {policy.Must(policy.Funnel(100, 10, time.Second)), false},
		"of 1":       {policy.Must(policy.Funnel(1, 10, time.Second)), false},
		"bursty":     {policy.Must(policy.Bursty(10, time.Second, 100)), false},
		"queue":      {policy.Must(policy.Queue(20, 10, time.Second)), false},
		"warming up": {policy.Must(policy.WarmingUp(10, time.Second, 10*time.Second, 3)), false},
		"fixed":      {policy.Must(policy.FixedWindow(100, time.Minute)), true},
		"sliding":    {policy.Must(policy.SlidingWindow(100, time.Minute)), true},
		"at most":    {policy.Must(policy.AtMost(100, time.Minute)), true},
	} {
		for _, before := range []int{0, 1, 30} {
			t.Run(fmt.Sprint(name, ", after ", before), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLine(t, Config{Policy: c.limit})
					turn := turnOf(t, l)
					for range before {
						turnOf(t, l)
					}
					turn.Obey(Answer{Refused: true, RetryAfter: 30 * time.Second})
					ctx, cancel := context.WithTimeout(t.Context(), 34*time.Second)
					defer cancel()
					got, all := waiting(ctx, l, 10)
					all.Wait()
					for i := range 10 {
						instant, ok := got.Load(i)
						if c.window && i > 0 {
							assert.False(t, ok, i)
							continue
						}
						require.True(t, ok, i)
						assert.GreaterOrEqual(t, instant, 30*time.Second+time.Duration(i)*apart)
						if name != "warming up" {
							assert.LessOrEqual(t, instant, 30*time.Second+time.Duration(i+1)*apart)
						}
					}
				})
			})
		}
	}
}

// Promise: No success lifts or shortens a back-off.
func TestSuccessDoesNotLiftARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, mode := range []string{"first answers", "later answers"} {
			l := newLine(t, Config{Probe: time.Millisecond})
			if mode == "later answers" {
				turnOf(t, l).Obey(Answer{Limit: 1000, Window: time.Second, HasRemaining: true, Remaining: 999, Reset: time.Second})
			}
			old, refused, newer, less := turnOf(t, l), turnOf(t, l), turnOf(t, l), turnOf(t, l)
			refused.Obey(Answer{Refused: true, RetryAfter: 30 * time.Second})
			fine := Answer{Limit: 1000, Window: time.Second, HasRemaining: true, Remaining: 999, Reset: time.Second}
			old.Obey(fine)
			newer.Obey(fine)
			less.Obey(Answer{Refused: true, RetryAfter: time.Second})
			assert.Equal(t, 30*time.Second, l.BackoffLeft("key"), mode)
			time.Sleep(29 * time.Second)
			_, err := func() (Turn[string], error) {
				ctx, cancel := context.WithTimeout(t.Context(), 999*time.Millisecond)
				defer cancel()
				return l.Wait(ctx, "key")
			}()
			assert.ErrorIs(t, err, engine.ErrDeadline, mode)
			assert.ErrorIs(t, err, context.DeadlineExceeded, mode)
		}
	})
}

// Later answers have only their refusals obeyed, and the turn does not come back.
func TestSecondAnswerMayRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, Config{Pace: Even})
		turn := turnOf(t, l)
		turn.Obey(Answer{Limit: 100, Window: time.Second})
		turn.Obey(Answer{Limit: 10, Window: time.Second})
		assert.Equal(t, "funnel 3, 100/1041666667ns", l.Limit("key").String())
		left := l.Engine().Peek("key", 0).Remaining
		turn.Obey(Answer{Refused: true, RetryAfter: time.Second})
		turn.Cancel()
		assert.Equal(t, time.Second, l.BackoffLeft("key"))
		time.Sleep(time.Second)
		assert.Equal(t, int64(1), l.Engine().Peek("key", 0).Remaining)
		assert.Equal(t, int64(2), left)
	})
}

// Promise: An answer to an older call sets no pace.
func TestOldAnswerDoesNotSetThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := free(t, Config{Pace: Even})
		old, newer := turnOf(t, l), turnOf(t, l)
		newer.Obey(Answer{Limit: 10, Window: time.Second})
		old.Obey(Answer{Limit: 1000, Window: time.Second})
		assert.Equal(t, "funnel 1, 10/1041666667ns", l.Limit("key").String())
		turnOf(t, l).Obey(Answer{Limit: 100, Window: time.Second})
		assert.Equal(t, "funnel 3, 100/1041666667ns", l.Limit("key").String())
	})
}

// Refusals of calls sent before count as one, and a success starts over.
func TestBackoffDoubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := free(t, Config{Backoff: time.Second, MaxBackoff: 5 * time.Second})
		refuse := func() (d time.Duration) {
			a, b := turnOf(t, l), turnOf(t, l)
			a.Obey(Answer{Refused: true})
			b.Obey(Answer{Refused: true})
			d = l.BackoffLeft("key")
			time.Sleep(d)
			return d
		}
		for _, want := range []time.Duration{1, 2, 4, 5, 5} {
			assert.Equal(t, want*time.Second, refuse())
		}
		turnOf(t, l).Obey(Answer{})
		assert.Equal(t, time.Second, refuse())
		turnOf(t, l).Obey(Answer{Refused: true, RetryAfter: policy.Never})
		assert.Equal(t, 2*time.Second, refuse(), "a final refusal must serve no call")
	})
}

// A refusal for ever concerns its call alone.
//
// Promise: Back-offs are bounded, whatever the server says.
func TestBackoffIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := free(t, Config{})
		turnOf(t, l).Obey(Answer{Refused: true, RetryAfter: policy.Never})
		assert.Zero(t, l.BackoffLeft("key"))
		turnOf(t, l).Obey(Answer{Refused: true, RetryAfter: 1 << 62})
		assert.Equal(t, answer.MaxTime, l.BackoffLeft("key"))
		assert.ErrorIs(t, outcome(l, Answer{}), engine.ErrDeadline)
		l.Reset("key")
		assert.Zero(t, l.BackoffLeft("key"))
		turnOf(t, l).Obey(Answer{Limit: 1, Window: 1 << 62, HasRemaining: true, Reset: 1 << 62})
		assert.LessOrEqual(t, l.BackoffLeft("key"), time.Hour)
	})
}

// No panic, and calls still get through.
func TestHostileAnswersBlockAtMostAnHour(t *testing.T) {
	numbers := []int64{-1 << 63, -1, 0, 1, 7, 1 << 40, 1<<63 - 1}
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, Config{})
		for _, limit := range numbers {
			for _, window := range numbers {
				for _, other := range numbers {
					l.Reset("key")
					turnOf(t, l).Obey(Answer{
						Limit: limit, Window: time.Duration(window), ResetsLate: other > 3,
						HasRemaining: true, Remaining: other, Reset: time.Duration(window),
					})
					l.Reset("key")
					turn := turnOf(t, l)
					turn.Obey(Answer{Refused: true, RetryAfter: time.Duration(other), Limit: limit, Window: time.Duration(window)})
					assert.LessOrEqual(t, l.BackoffLeft("key"), time.Hour)
				}
			}
		}
	})
}

// These calls used little of the limit: others did.
func TestNothingRemainsWaitsForTheReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, Config{Pace: Even})
		turnOf(t, l).Obey(Answer{Limit: 100, Window: time.Minute, HasRemaining: true, Remaining: 0, Reset: 20 * time.Second})
		assert.Equal(t, 20*time.Second, l.BackoffLeft("key"))
		l.Reset("key")
		turnOf(t, l).Obey(Answer{Limit: 1, Window: time.Minute, HasRemaining: true, Remaining: 0, Reset: time.Minute})
		assert.Zero(t, l.BackoffLeft("key"), "the key must not be held back, as the call alone used all of the limit")
		l.Reset("key")
		turnOf(t, l).Obey(Answer{HasRemaining: true, Remaining: 0, Reset: 30 * time.Second})
		assert.Equal(t, 30*time.Second, l.BackoffLeft("key"))
	})
}

// Promise: An unknown key's first call goes alone, at most for `Config.Probe`.
func TestFirstCallGoesAlone(t *testing.T) {
	for name, answered := range map[string]bool{"answered": true, "not answered": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, Config{})
				first := turnOf(t, l)
				got, all := waiting(t.Context(), l, 20)
				time.Sleep(time.Second)
				synctest.Wait()
				_, ok := got.Load(0)
				require.False(t, ok)
				want := 5 * time.Second
				if answered {
					first.Obey(Answer{})
					want = time.Second
				}
				all.Wait()
				for i := range 20 {
					instant, ok := got.Load(i)
					require.True(t, ok)
					assert.GreaterOrEqual(t, instant, want)
					assert.LessOrEqual(t, instant, want+time.Duration(i+1)*pacing.ProbePause)
				}
			})
		})
	}
}

// Probe ends with the refusal. The first call after it is served and releases the others.
func TestFirstRefusalEndsTheProbe(t *testing.T) {
	for name, c := range map[string]struct {
		retryAfter, held, others time.Duration
	}{
		"sooner than Probe": {time.Second, time.Second, time.Second},
		"later than Probe":  {2 * time.Hour, 2 * time.Hour, 2 * time.Hour},
		"not told":          {0, time.Second, time.Second},
		"never":             {policy.Never, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, Config{Probe: time.Hour, MaxBackoff: 24 * time.Hour})
				first := turnOf(t, l)
				got, all := waiting(t.Context(), l, 3)
				time.Sleep(time.Second)
				first.Obey(Answer{Refused: true, RetryAfter: c.retryAfter})
				assert.Equal(t, c.held, l.BackoffLeft("key"))
				all.Wait()
				for i := range 3 {
					at, _ := got.Load(i)
					assert.Equal(t, time.Second+c.others, at)
				}
			})
		})
	}
}

// Its deadline is after the refusal's end.
func TestFirstRefusalLeavesTheDeadlineOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, Config{})
		turnOf(t, l).Obey(Answer{Refused: true, RetryAfter: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), 1001*time.Millisecond)
		defer cancel()
		turn, err := l.Wait(ctx, "key")
		require.NoError(t, err)
		assert.Equal(t, time.Second, turn.Waited)
	})
}

// Promise: Cancelled calls leave nothing taken.
func TestCancelledCallsLeaveNothingTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, Config{Policy: policy.Must(policy.Funnel(2, 1, time.Second))})
		ctx, cancel := context.WithCancel(t.Context())
		turn := turnOf(t, l)
		turn.Cancel()
		turn.Cancel()
		// The turn has ended.
		turn.Obey(Answer{Refused: true, RetryAfter: time.Hour})
		assert.Equal(t, int64(2), l.Engine().Peek("key", 0).Remaining)
		turnOf(t, l)
		turnOf(t, l)
		got, all := waiting(ctx, l, 50)
		cancel()
		all.Wait()
		_, ok := got.Load(0)
		assert.False(t, ok)
		_, err := l.Wait(ctx, "key")
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, engine.ErrCancelled)
		time.Sleep(2 * time.Second)
		assert.Equal(t, int64(2), l.Engine().Peek("key", 0).Remaining)
		assert.Zero(t, l.Stats().Waiting)
	})
}

// Over a change of pace, and back-offs with jitter.
//
// Promise: Calls go in order of arrival.
func TestOrderIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, Config{Pace: Even, Jitter: time.Second})
		first := turnOf(t, l)
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				turn, err := l.Wait(t.Context(), "key")
				if assert.NoError(t, err) {
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					a := Answer{Limit: 10, Window: time.Second}
					if a.Refused = i%10 == 5; a.Refused {
						a.RetryAfter = time.Second
					}
					turn.Obey(a)
				}
			})
			synctest.Wait()
		}
		first.Obey(Answer{Limit: 10, Window: time.Second})
		all.Wait()
		require.Len(t, order, 50)
		assert.IsIncreasing(t, order)
	})
}

func TestJitterLengthensOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[time.Duration]bool{}
		for range 50 {
			l := free(t, Config{Jitter: time.Second})
			turnOf(t, l).Obey(Answer{Refused: true, RetryAfter: time.Minute})
			d := l.BackoffLeft("key")
			assert.GreaterOrEqual(t, d, time.Minute)
			assert.Less(t, d, time.Minute+time.Second)
			seen[d] = true
		}
		assert.Greater(t, len(seen), 10)
	})
}

// Idle keys go; calls of keys without a place pass, and refusals still hold them.
//
// Promise: A line's keys are bounded.
func TestKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line, err := New[int](Config{MaxKeys: 2000, Idle: time.Minute})
		require.NoError(t, err)
		defer line.Close()
		for key := range 3000 {
			_, err := line.Wait(t.Context(), key)
			require.NoError(t, err)
			assert.LessOrEqual(t, line.Stats().Keys, 2000)
		}
		// The key is not alone, so it is not remembered.
		turn, err := line.Wait(t.Context(), 2999)
		require.NoError(t, err)
		turn.Obey(Answer{Refused: true, RetryAfter: time.Second})
		assert.Equal(t, time.Second, line.BackoffLeft(2999))
		time.Sleep(2 * time.Minute)
		for key := range 200 {
			_, err = line.Wait(t.Context(), 5000+key)
			require.NoError(t, err)
		}
		assert.LessOrEqual(t, line.Stats().Keys, minKept)
		line.Reset(5199)
		assert.Equal(t, line.Stats().Keys, line.keys.leaving.Len())
	})
}

// Each joining key costs a constant number of steps, with and without idle keys.
func TestManyKeysCostFewSteps(t *testing.T) {
	for name, held := range map[string]bool{"served": false, "held by refusals": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const hosts, places = 100_000, 4096
				line, err := New[int](Config{MaxKeys: places, Idle: time.Minute})
				require.NoError(t, err)
				defer line.Close()
				for key := range hosts {
					turn, err := line.Wait(t.Context(), key)
					require.NoError(t, err)
					turn.Obey(Answer{Refused: held && key < places, RetryAfter: time.Hour})
					if key%places == places-1 {
						time.Sleep(90 * time.Second)
					}
				}
				if held {
					assert.LessOrEqual(t, line.keys.steps, uint64(places), "a key that is held back must be examined once")
					assert.Equal(t, places, line.Stats().Keys)
				} else {
					assert.LessOrEqual(t, line.keys.steps, uint64(hosts), "a key must be examined only when it leaves")
					assert.Less(t, line.Stats().Keys, places)
				}
			})
		})
	}
}

// Promise: A call of a further key does not wait for room while answers hold `Config.MaxKeys` keys.
func TestHeldKeysDelayNoFurtherKey(t *testing.T) {
	for name, further := range map[string]Answer{"served": {}, "refused": {Refused: true, RetryAfter: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const keys, calls = 1024, 455
				l := newLine(t, Config{MaxKeys: keys})
				call := func(key string, a Answer) (waited time.Duration) {
					began := time.Now()
					turn, err := l.Wait(t.Context(), key)
					require.NoError(t, err)
					turn.Obey(a)
					return time.Since(began)
				}
				for i := range keys {
					require.Zero(t, call(strconv.Itoa(i), Answer{Refused: true, RetryAfter: time.Hour}))
				}
				require.Equal(t, keys, l.Stats().Held)
				// The table looks for room once for a refusal.
				call("first", further)
				l.keys.steps = 0
				for i := range calls {
					// The writer may have to give up another key's word, as for any key in a full table.
					require.Less(t, call("further "+strconv.Itoa(i), further), time.Millisecond, "call %d took long", i)
				}
				require.LessOrEqual(t, l.keys.steps, uint64(calls), "too many keys were examined for leaving")
				if further.Refused {
					require.EqualValues(t, calls+1, l.Stats().Unheld)
				}
			})
		})
	}
}

// Keys in use are due again; those behind them leave.
func TestKeysInUseStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line, err := New[int](Config{MaxKeys: 2 * minKept, Idle: time.Minute})
		require.NoError(t, err)
		defer line.Close()
		for round := range 4 {
			for key := range minKept {
				turn, err := line.Wait(t.Context(), key)
				require.NoError(t, err)
				turn.Obey(Answer{})
				turn, err = line.Wait(t.Context(), (round+1)*minKept+key)
				require.NoError(t, err)
				turn.Obey(Answer{})
			}
			time.Sleep(50 * time.Second)
		}
		for key := range minKept {
			assert.NotNil(t, line.keys.states[key])
			assert.Nil(t, line.keys.states[minKept+key])
		}
	})
}

// Promise: A key that is held or has waiting calls keeps its pace.
func TestHeldKeyKeepsItsPace(t *testing.T) {
	for name, wait := range map[string]bool{"calls wait": true, "held": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, Config{Idle: time.Minute})
				turnOf(t, l).Obey(Answer{Limit: 10, Window: time.Second, Refused: !wait, RetryAfter: 10 * time.Minute})
				if wait {
					require.NoError(t, l.Engine().Block("key", 10*time.Minute))
					_, all := waiting(t.Context(), l, 1)
					defer all.Wait()
				}
				pace := l.Limit("key")
				sweep := func() {
					for i := range minKept {
						_, err := l.Wait(t.Context(), fmt.Sprint(time.Since(l.keys.began), i))
						require.NoError(t, err)
					}
				}
				time.Sleep(2 * time.Minute)
				sweep()
				time.Sleep(2 * time.Minute)
				sweep()
				assert.Equal(t, pace, l.Limit("key"))
				assert.LessOrEqual(t, l.Stats().Keys, minKept+1, "the other keys must be forgotten")
				if !wait {
					time.Sleep(9 * time.Minute)
					sweep()
					assert.NotEqual(t, pace, l.Limit("key"), "a key that was idle since the end of the back-off must be forgotten")
				}
			})
		})
	}
}

func TestNewNamesTheBadField(t *testing.T) {
	var none *fakePolicy
	for field, c := range map[string]Config{
		"Policy":     {Policy: none},
		"Patience":   {Patience: -1},
		"MaxWaiting": {MaxWaiting: -1},
		"MaxKeys":    {MaxKeys: -1},
		"Idle":       {Idle: -1},
		"Probe":      {Probe: 1},
		"Backoff":    {Backoff: -1},
		"MaxBackoff": {MaxBackoff: answer.MaxTime + 1},
		"Jitter":     {Jitter: -1},
		"Pace":       {Pace: 2},
		"Reserve":    {Reserve: 1},
		"Units":      {Units: []string{"tokens", "tokens"}},
		"Name":       {Name: "\n"},
	} {
		_, err := New[string](c)
		var fault *policy.FieldError
		if assert.ErrorAs(t, err, &fault, field) {
			assert.Equal(t, field, fault.Field)
		}
	}
}

type fakePolicy struct{ policy.Policy }

func TestCloseEndsWaitingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New[string](Config{})
		require.NoError(t, err)
		turn := turnOf(t, l)
		errs := make(chan error, 1)
		go func() {
			_, err := l.Wait(t.Context(), "key")
			errs <- err
		}()
		synctest.Wait()
		require.NoError(t, l.Close())
		assert.ErrorIs(t, <-errs, engine.ErrClosed)
		turn.Obey(Answer{Refused: true})
		_, err = l.Wait(t.Context(), "key")
		assert.ErrorIs(t, err, engine.ErrClosed)
	})
}

// Promise: Calls that need not wait allocate nothing.
func TestCallThatNeedNotWaitAllocatesNothing(t *testing.T) {
	if testenv.Race {
		t.Skip("the race detector allocates")
	}
	l := free(t, Config{})
	ctx := t.Context()
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		turn, err := l.Wait(ctx, "key")
		if err != nil {
			t.Fatal(err)
		}
		turn.Obey(Answer{})
	}))
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}}
	resp.Header.Set("RateLimit-Policy", `"default";q=100;w=10, "tenant";q=1000;w=60`)
	resp.Header.Set("RateLimit", `"default";r=97;t=1`)
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if a := AnswerOf(resp); a.Remaining != 97 {
			t.Fatal(a)
		}
	}))
}
