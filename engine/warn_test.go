package engine

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/core/warn"
	"github.com/ral-limiter/ral/internal/testkit/limitstest"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

// warningsOf returns such as ["k 0.5", "k 0.8"], the oldest first.
func warningsOf(e *Engine[string]) (all []string) {
	for _, w := range e.LatestWarnings(warn.MaxLatest) {
		all = append([]string{fmt.Sprintf("%s %g", w.Key, w.Share)}, all...)
	}
	return all
}

// Promise: The call of any verb that passes a share of the limit warns, and no other.
func TestEveryVerbWarns(t *testing.T) {
	forEachVerb(t, Config{Policy: funnel(10, 1, time.Hour), WarnAt: []float64{0.5, 0.8}}, func(t *testing.T, e *Engine[string], call func(string, int64) (policy.Decision, bool)) {
		for _, known := range []bool{false, true} {
			key := fmt.Sprint(known)
			if known {
				require.True(t, e.Choke(key))
				settled(t, e)
				e.Refund(key, 1)
			}
			for used := 1; used <= 10; used++ {
				_, allowed := call(key, 1)
				require.True(t, allowed)
				want := 0
				if used >= 5 {
					want++
				}
				if used >= 8 {
					want++
				}
				require.Equal(t, want, strings.Count(fmt.Sprint(warningsOf(e)), key), "after %d units", used)
			}
			_, allowed := call(key, 1)
			require.False(t, allowed)
			require.Equal(t, []string{key + " 0.5", key + " 0.8"}, warningsOf(e)[max(0, len(warningsOf(e))-2):])
		}
		require.EqualValues(t, 4, e.Stats().Warnings)
	})
}

// stepsOf returns calls on a key that take a unit each, in ways that meet its word differently.
func stepsOf(e *Engine[string], key string) map[string]func() bool {
	return map[string]func() bool{
		"Choke":    func() bool { return e.Choke(key) },
		"Take":     func() bool { return e.Take(key, 1).Allowed },
		"TakeWith": func() bool { return e.TakeWith(e.Limit(), key, 1).Allowed },
		"Wait": func() bool {
			ctx, cancel := context.WithTimeout(background, time.Minute)
			defer cancel()
			return e.Wait(ctx, key, 1) == nil
		},
	}
}

// A call warns of a share if more remained before it than the share leaves, and not after it.
//
// Promise: Under every limit a key is warned of when it passes a share, once.
func TestEveryLimitWarnsOnce(t *testing.T) {
	shares := []float64{0.3, 0.7, 0.95}
	families := limitstest.Families()
	for _, limit := range append(limitstest.Policies(), families[len(families)-2][0], families[len(families)-1][0]) {
		for way := range stepsOf(nil, "") {
			if way == "Wait" && limit.Delays() {
				// The call waits until the queue is empty.
				continue
			}
			t.Run(limit.String()+"/"+way, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := open[string](t, Config{Policy: limit, WarnAt: shares, MaxKeys: 64})
					most := shape.AtOnce(limit)
					var want []string
					for range most + 1 {
						if way == "Wait" && !e.Peek("k", 1).Allowed {
							break
						}
						before := e.Peek("k", 0).Remaining
						stepsOf(e, "k")[way]()
						after := e.Peek("k", 0).Remaining
						for _, share := range shares {
							bound := most - int64(math.Ceil(share*float64(most)))
							name := fmt.Sprint("k ", share)
							if before > bound && after <= bound && !strings.Contains(fmt.Sprint(want), name) {
								want = append(want, name)
							}
						}
					}
					require.Equal(t, want, warningsOf(e))

					time.Sleep(2 * e.Peek("k", 0).ResetAfter)
					for range most {
						stepsOf(e, "k")[way]()
					}
					again := warningsOf(e)[len(want):]
					// A new key of a Bursty has saved nothing.
					if _, credit := limit.(shape.OnCredit); !credit {
						require.Equal(t, []string{"k 0.3", "k 0.7", "k 0.95"}, want)
						require.Equal(t, want, again)
					}
					require.Len(t, slices.Compact(again), len(again), "once in each period")
					require.Contains(t, again, "k 0.95")
				})
			})
		}
	}
}

// Promise: A waiting call warns when it takes its units, unless it gives up.
func TestWaitingCallWarns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(10, 1, time.Second), WarnAt: []float64{0.9}})
		for _, patience := range []time.Duration{time.Second, time.Minute} {
			require.True(t, e.Take("k", 8).Allowed)
			ctx, cancel := context.WithTimeout(background, time.Minute)
			if patience == time.Second {
				ctx, cancel = context.WithCancel(background)
				time.AfterFunc(patience, cancel)
			}
			err := e.Wait(ctx, "k", 5)
			cancel()
			require.Equal(t, patience == time.Minute, err == nil)
			require.Equal(t, err == nil, len(warningsOf(e)) == 1)
			e.Reset("k")
		}
	})
}

// Promise: A key that passes a share again within the period is not warned of again.
func TestGivenBackUnitsWarnOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[string](t, Config{Policy: funnel(10, 1, time.Hour), WarnAt: []float64{0.8}})
		for range 3 {
			r := e.Reserve("cancelled", 8, 0)
			r.Cancel()
			e.Take("refunded", 8)
			e.Refund("refunded", 8)
			e.Take("reset", 8)
			e.Reset("reset")
		}
		require.Equal(t, []string{"cancelled 0.8", "refunded 0.8", "reset 0.8"}, warningsOf(e))
		e.Refund("charged", -9)
		require.Equal(t, "charged 0.8", warningsOf(e)[3])
		// The table counts 2,048 ns.
		time.Sleep(8*time.Hour - 4096)
		e.Take("refunded", 8)
		require.Len(t, warningsOf(e), 4)
		e.Reset("refunded")
		time.Sleep(4096)
		e.Take("refunded", 8)
		require.Len(t, warningsOf(e), 5, "a period later")
		require.NoError(t, e.SetPolicy(funnel(20, 1, time.Hour)))
		e.Take("refunded", 8)
		require.Len(t, warningsOf(e), 6, "by another limit")
	})
}

// Promise: Of 64 callers that use up a limit at once, exactly one is warned for each share.
func TestCrowdWarnsOnce(t *testing.T) {
	for _, limit := range []policy.Policy{
		funnel(1000, 1, time.Hour), policy.Must(policy.FixedWindow(1000, time.Hour)), policy.Must(policy.SlidingWindow(1000, time.Hour)),
	} {
		for _, way := range []string{"Choke", "Take", "TakeWith", "TakeAll", "Tiered"} {
			config := Config{Policy: limit, WarnAt: []float64{0.5, 0.8, 0.95}}
			tiered, err := NewTiered[string](config)
			require.NoError(t, err)
			e := tiered.Engines()[0]
			t.Cleanup(func() { require.NoError(t, tiered.Close()) })
			var callers sync.WaitGroup
			for range 64 {
				callers.Go(func() {
					for range 20 {
						switch way {
						case "TakeAll":
							TakeAll(e.Claim("k", 1))
						case "Tiered":
							tiered.Choke("k")
						default:
							stepsOf(e, "k")[way]()
						}
					}
				})
			}
			callers.Wait()
			require.Equal(t, []string{"k 0.5", "k 0.8", "k 0.95"}, slices.Sorted(slices.Values(warningsOf(e))), "%v, %s", limit, way)
			require.EqualValues(t, 280, e.Stats().Refused)
		}
	}
}

// Promise: A call that one of several limits refuses warns of none, and otherwise each limit warns.
func TestSeveralLimitsWarnEach(t *testing.T) {
	tiered, err := NewTiered[string](Config{Policy: funnel(10, 1, time.Hour), WarnAt: []float64{0.5}}, funnel(20, 1, time.Hour))
	require.NoError(t, err)
	defer tiered.Close()
	minute, hour := tiered.Engines()[0], tiered.Engines()[1]
	all := func(key string, n int64) bool { return TakeAll(minute.Claim(key, n), hour.Claim(key, n)).Allowed }
	for _, take := range []func(key string, n int64) bool{all, func(key string, n int64) bool { return tiered.Take(key, n).Allowed }} {
		for _, known := range []bool{false, true} {
			first, second := len(warningsOf(minute)), len(warningsOf(hour))
			key := fmt.Sprint(first, known)
			if known {
				require.True(t, take(key, 1))
				settled(t, minute)
				settled(t, hour)
				minute.Refund(key, 1)
				hour.Refund(key, 1)
			}
			require.True(t, minute.Take(key, 4).Allowed)
			require.False(t, take(key, 10), "the hour would pass its share")
			require.Equal(t, []int{first, second}, []int{len(warningsOf(minute)), len(warningsOf(hour))})
			require.True(t, take(key, 6))
			require.Equal(t, []int{first + 1, second}, []int{len(warningsOf(minute)), len(warningsOf(hour))})
			minute.Reset(key)
			require.True(t, take(key, 4))
			require.Equal(t, []int{first + 1, second + 1}, []int{len(warningsOf(minute)), len(warningsOf(hour))})
		}
	}
}

// Promise: A limit of `PolicyFor` warns by its own shares.
func TestChosenLimitWarns(t *testing.T) {
	large := funnel(100, 1, time.Hour)
	config := Config{Policy: funnel(10, 1, time.Hour), WarnAt: []float64{0.5}}
	e, err := New(config, PolicyFor(func(key string) policy.Policy {
		if strings.HasPrefix(key, "large") {
			return large
		}
		return nil
	}))
	require.NoError(t, err)
	defer e.Close()
	for range 49 {
		require.True(t, e.Choke("large"))
	}
	require.Empty(t, warningsOf(e))
	require.True(t, e.Choke("large"))
	require.True(t, e.Take("small", 5).Allowed)
	require.True(t, e.TakeWith(large, "small", 40).Allowed)
	require.Equal(t, []string{"large 0.5", "small 0.5"}, warningsOf(e))
	require.True(t, TakeAll(e.Claim("large too", 50)).Allowed)
	require.Equal(t, "large too 0.5", warningsOf(e)[2])
	require.Equal(t, policy.Decision{Allowed: true, Limit: 100, Remaining: 50}, func() policy.Decision {
		d := e.LatestWarnings(1)[0].Decision
		d.ResetAfter = 0
		return d
	}())
}

func TestUnrecordedCallsWarnOfNone(t *testing.T) {
	e := open[any](t, Config{Policy: funnel(10, 1, time.Hour), WarnAt: []float64{0.5}, MaxKeys: 1, WhenFull: AdmitNew})
	require.True(t, e.Take("k", 1).Allowed)
	require.True(t, e.Take("new", 9).Allowed)
	require.True(t, e.Take(math.NaN(), 9).Allowed)
	require.True(t, e.Take([]int{}, 9).Allowed)
	require.False(t, e.Take("k", 10).Allowed)
	require.True(t, e.Peek("k", 9).Allowed)
	require.Empty(t, e.LatestWarnings(9))
	require.Zero(t, e.Stats().Warnings)
}

// Promise: A hook that panics or blocks stops no call, and an event tells of the panic. Warnings that it missed are counted.
func TestWarningsReachHookAndEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notices, faults atomic.Int64
		var kept []Warning[string]
		block := make(chan struct{})
		e, err := New(Config{
			Name: "api", Policy: funnel(10, 1, time.Hour), WarnAt: []float64{0.5, 0.9},
			OnEvent: func(event Event) {
				switch event.Kind {
				case supervisor.Notice:
					notices.Add(1)
					assert.Regexp(t, "^api: notice: key [0-9a-f]{16} has passed (50|90)% of its limit, [0-9] of 10 left", event.String())
				case supervisor.HookFault:
					faults.Add(1)
				}
			},
		}, OnWarn(func(w Warning[string]) {
			switch w.Key {
			case "panic":
				panic(w.Key)
			case "block":
				<-block
			}
			kept = append(kept, w)
		}))
		require.NoError(t, err)
		require.True(t, e.Take("panic", 5).Allowed)
		require.True(t, e.Take("secret", 6).Allowed)
		synctest.Wait()
		require.EqualValues(t, 1, faults.Load())
		require.EqualValues(t, 2, notices.Load())
		require.Equal(t, "secret", kept[0].Key)
		require.Equal(t, policy.Decision{Allowed: true, Limit: 10, Remaining: 4, ResetAfter: 6 * time.Hour}, kept[0].Decision)
		require.True(t, e.Take("block", 5).Allowed)
		synctest.Wait()
		for i := range 1100 {
			require.True(t, e.Take(fmt.Sprint(i), 5).Allowed)
		}
		close(block)
		synctest.Wait()
		require.Len(t, kept, 2+1024)
		// Some of so many keys may not be warned of, as others' hashes are too alike.
		require.InDelta(t, 1103, e.Stats().Warnings, 20)
		missed := int(e.Stats().Warnings) - 1 - len(kept)
		for i := 0; len(kept) == 2+1024; i++ {
			require.True(t, e.Take(fmt.Sprint("last ", i), 5).Allowed)
			synctest.Wait()
		}
		require.Equal(t, missed, kept[len(kept)-1].Missed)
		require.EqualValues(t, 1+len(kept)+missed, e.Stats().Warnings)
		require.NoError(t, e.Close())
	})
}

func TestWarnAtIsChecked(t *testing.T) {
	for _, c := range []struct {
		at   []float64
		want string
	}{
		{[]float64{0}, "WarnAt[0] is 0,"}, {[]float64{1}, "WarnAt[0] is 1,"}, {[]float64{math.NaN()}, "WarnAt[0] is NaN,"},
		{[]float64{0.8, 0.8}, "WarnAt[1] is 0.8,"}, {[]float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}, "WarnAt is 9, want at most 8"},
	} {
		_, err := New[string](Config{Policy: funnel(1, 1, time.Second), WarnAt: c.at})
		require.ErrorContains(t, err, "engine.Config: "+c.want)
	}
	_, err := New(Config{Policy: funnel(1, 1, time.Second)}, OnWarn(func(Warning[string]) {}))
	require.ErrorContains(t, err, "WarnAt is empty")
	_, err = New(Config{Policy: funnel(1, 1, time.Second), WarnAt: []float64{0.5}}, OnWarn[string](nil))
	require.ErrorContains(t, err, "hook is nil")
}

// Promise: With warnings, calls on known keys allocate nothing.
func TestWarningsAllocateNothing(t *testing.T) {
	for _, limit := range []policy.Policy{
		funnel(1000, 1, time.Hour), policy.Must(policy.FixedWindow(1000, time.Hour)), policy.Must(policy.SlidingWindow(1000, time.Hour)),
		policy.Must(policy.AtMost(1000, time.Hour)), policy.Must(policy.Bursty(1000, time.Hour, 1000)),
	} {
		e := open[string](t, Config{Policy: limit, WarnAt: []float64{0.5, 0.9}})
		e.Choke("k")
		settled(t, e)
		require.Zero(t, testing.AllocsPerRun(100, func() { e.Choke("k") }), limit)
		require.Zero(t, testing.AllocsPerRun(100, func() { e.Take("k", 1) }), limit)
		claim := e.Claim("k", 1)
		require.LessOrEqual(t, testing.AllocsPerRun(100, func() { TakeAll(claim) }), 1.0, limit)
	}
}
