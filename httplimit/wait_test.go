package httplimit

import (
	"context"
	"math"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// timed is the status of a request that began at 0, and the time of the answer.
type timed struct {
	code int
	at   time.Duration
}

// atOnce sends requests at the same instant, in line.
func atOnce(h http.Handler, requests ...*http.Request) []timed {
	began := time.Now()
	all := make([]timed, len(requests))
	var wg sync.WaitGroup
	for i, r := range requests {
		wg.Go(func() { all[i] = timed{ask(h, r).Code, time.Since(began)} })
		synctest.Wait() // until it has its place
	}
	wg.Wait()
	return all
}

func repeat(n int, addr string) (all []*http.Request) {
	for range n {
		all = append(all, from(addr))
	}
	return all
}

func TestWaitUpTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := Must(New(open[netip.Addr](t, policy.Must(policy.Funnel(2, 1, time.Second))), ByAddr, Options{WaitUpTo: 2500 * time.Millisecond}))
		got := atOnce(m.Handler(done), repeat(6, alice)...)
		assert.Equal(t, []timed{{200, 0}, {200, 0}, {200, time.Second}, {200, 2 * time.Second}, {429, 0}, {429, 0}}, got)
		s := m.Stats()
		assert.Equal(t, []uint64{4, 2, 2}, []uint64{s.Admitted, s.OverLimit, s.Delayed})
		assert.Equal(t, 3*time.Second, s.DelayTime)
	})
}

func TestWaitUpToTellsTheRemainingTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := Must(New(open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, time.Second))), ByAddr, Options{WaitUpTo: time.Minute}))
		h := m.Handler(done)
		ask(h, from(alice))
		w := ask(h, from(alice))
		assert.Equal(t, `"default";r=0;t=1`, w.Header().Get("RateLimit"))
		assert.Empty(t, w.Header().Get("Retry-After"))
	})
}

// Promise: Waits end with the request's context.
func TestWaitEndsWithTheRequest(t *testing.T) {
	limits := func(t *testing.T, p policy.Policy, o Options) map[string]*Middleware {
		one := open[netip.Addr](t, p)
		two, err := NewAll(o, Limit[netip.Addr]{Name: "a", Limiter: open[netip.Addr](t, p), Key: ByAddr},
			Limit[netip.Addr]{Name: "b", Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(100, 100, time.Second))), Key: ByAddr})
		require.NoError(t, err)
		return map[string]*Middleware{"one limit": Must(New(one, ByAddr, o)), "several": two}
	}
	synctest.Test(t, func(t *testing.T) {
		for name, m := range limits(t, policy.Must(policy.Funnel(1, 1, time.Minute)), Options{WaitUpTo: time.Hour}) {
			served := 0
			h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
			ask(h, from(alice))
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			time.AfterFunc(10*time.Second, cancel)
			got := atOnce(h, from(alice).WithContext(ctx))
			assert.Equal(t, []timed{{503, 10 * time.Second}}, got, name)
			assert.Equal(t, 1, served, name)
			assert.Equal(t, uint64(1), m.Stats().Cancelled, name)
			time.Sleep(50 * time.Second)
			assert.Equal(t, []timed{{200, 0}}, atOnce(h, from(alice)), "%s: the cancelled request has taken nothing", name)
		}
	})
	// A turn after the deadline is refused at once.
	synctest.Test(t, func(t *testing.T) {
		m := limits(t, policy.Must(policy.Funnel(1, 1, time.Minute)), Options{WaitUpTo: time.Hour})["one limit"]
		h := m.Handler(done)
		ask(h, from(alice))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		assert.Equal(t, []timed{{429, 0}}, atOnce(h, from(alice).WithContext(ctx)))
	})
}

func TestWaitUpToWithSeveralLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := NewAll(Options{WaitUpTo: 5 * time.Second},
			Limit[netip.Addr]{Name: "a", Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, time.Second))), Key: ByAddr},
			Limit[netip.Addr]{Name: "b", Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(3, 1, 4*time.Second))), Key: ByAddr},
		)
		require.NoError(t, err)
		h := m.Handler(done)
		for _, want := range []timed{{200, 0}, {200, time.Second}, {200, time.Second}, {200, 2 * time.Second}, {200, 4 * time.Second}} {
			assert.Equal(t, []timed{want}, atOnce(h, from(alice)))
		}
		// Of two at once, the second would wait too long and is refused at once.
		got := atOnce(h, repeat(2, alice)...)
		assert.Equal(t, []timed{{200, 4 * time.Second}, {429, 0}}, got)
		s := m.Stats()
		assert.Equal(t, []uint64{6, 1, 5}, []uint64{s.Admitted, s.OverLimit, s.Delayed})
	})
}

func TestSeveralLimitsWaitInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := Must(NewAll(Options{WaitUpTo: time.Hour},
			Limit[netip.Addr]{Name: "a", Limiter: crowded(t, 3), Key: ByAddr},
			Limit[netip.Addr]{Name: "b", Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(100, 100, time.Second))), Key: ByAddr},
		))
		got := atOnce(m.Handler(done), repeat(50, alice)...)
		for i, one := range got {
			if i < 4 {
				assert.Equal(t, timed{200, time.Duration(i) * time.Second}, one)
			} else {
				assert.Equal(t, timed{429, 0}, one)
			}
		}
	})
}

// Promise: Waiting requests are served in order of arrival.
func TestLateArrivalsDoNotOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := open[netip.Addr](t, policy.Must(policy.Funnel(10, 1, time.Second)))
		o := Options{WaitUpTo: time.Hour, Cost: costField}
		one := Must(New(limiter, ByAddr, o))
		two := Must(NewAll(o, Limit[netip.Addr]{Name: "a", Limiter: limiter, Key: ByAddr},
			Limit[netip.Addr]{Name: "b", Limiter: open[netip.Addr](t, policy.Must(policy.Funnel(100, 100, time.Second))), Key: ByAddr}))
		for name, m := range map[string]*Middleware{"one limit": one, "several": two} {
			h := m.Handler(done)
			require.True(t, limiter.Take(aliceKey, 10).Allowed)
			time.AfterFunc(time.Second, func() { limiter.Refund(aliceKey, 9) })
			var ends [3]time.Duration
			began := time.Now()
			var wg sync.WaitGroup
			for i, cost := range []string{"5", "10", "1"} {
				if i == 2 {
					time.Sleep(2 * time.Second)
					require.Positive(t, limiter.Peek(aliceKey, 0).Remaining)
				}
				wg.Go(func() {
					assert.Equal(t, 200, ask(h, from(alice, "Cost", cost)).Code)
					ends[i] = time.Since(began)
				})
				synctest.Wait()
			}
			wg.Wait()
			assert.Equal(t, [3]time.Duration{5 * time.Second, 6 * time.Second, 7 * time.Second}, ends, name)
			time.Sleep(time.Hour)
		}
	})
}

func TestClosedEngineAnswersAtOnce(t *testing.T) {
	for when, want := range map[engine.WhenUnavailable]timed{engine.Admit: {200, 0}, engine.Refuse: {429, 0}} {
		synctest.Test(t, func(t *testing.T) {
			closed, err := engine.New[netip.Addr](engine.Config{Policy: policy.Must(policy.Funnel(1, 1, time.Second)), WhenUnavailable: when})
			require.NoError(t, err)
			good := open[netip.Addr](t, policy.Must(policy.Funnel(100, 1, time.Second)))
			verdicts := make(chan limits.Verdict, 10)
			o := Options{WaitUpTo: time.Hour, OnVerdict: func(_ *http.Request, v limits.Verdict) { verdicts <- v }}
			all := []*Middleware{
				Must(New(closed, ByAddr, o)),
				Must(NewAll(o, Limit[netip.Addr]{Name: "a", Limiter: good, Key: ByAddr}, Limit[netip.Addr]{Name: "b", Limiter: closed, Key: ByAddr})),
			}
			// A request waits while the engine is closed.
			require.True(t, closed.Choke(aliceKey))
			time.AfterFunc(100*time.Millisecond, func() { assert.NoError(t, closed.Close()) })
			began := time.Now()
			var wg sync.WaitGroup
			for _, m := range all {
				wg.Go(func() {
					// The engine may still know the key.
					assert.Contains(t, []int{want.code, 429}, ask(m.Handler(done), from(alice)).Code, "%v", when)
					assert.Equal(t, 100*time.Millisecond, time.Since(began))
				})
			}
			wg.Wait()
			for range all {
				assert.Equal(t, 100*time.Millisecond, (<-verdicts).Waited)
			}
			synctest.Wait() // until Close has returned
			for _, m := range all {
				assert.Equal(t, []timed{want, want}, atOnce(m.Handler(done), repeat(2, alice)...), "%v", when)
			}
		})
	}
}

func TestQueueDelays(t *testing.T) {
	queue := policy.Must(policy.Queue(2, 1, time.Second))
	for upTo, want := range map[time.Duration][]timed{
		0:                       {{200, 0}, {200, time.Second}, {200, 2 * time.Second}, {429, 0}},
		1500 * time.Millisecond: {{200, 0}, {200, time.Second}, {429, 0}, {429, 0}},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := Must(New(open[netip.Addr](t, queue), ByAddr, Options{WaitUpTo: upTo}))
			assert.Equal(t, want, atOnce(m.Handler(done), repeat(4, alice)...), "up to %v", upTo)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		m := Must(New(open[netip.Addr](t, queue), ByAddr, Options{}))
		h := m.Handler(done)
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(100*time.Millisecond, cancel)
		got := atOnce(h, from(alice), from(alice), from(alice).WithContext(ctx))
		assert.Equal(t, []timed{{200, 0}, {200, time.Second}, {503, 100 * time.Millisecond}}, got)
		assert.Equal(t, []timed{{200, time.Second}}, atOnce(h, from(alice)), "the cancelled request gives its place back")
	})
	synctest.Test(t, func(t *testing.T) {
		m := Must(New(open[netip.Addr](t, queue), ByAddr, Options{Shadow: true}))
		assert.Equal(t, []timed{{200, 0}, {200, 0}, {200, 0}, {200, 0}}, atOnce(m.Handler(done), repeat(4, alice)...))
	})
}

// Promise: A panicking `PolicyFor` takes nothing.
func TestPanicOfPolicyForTakesNothing(t *testing.T) {
	funnel := policy.Must(policy.Funnel(1, 1, time.Second/2)) // the engine counts its keys after a second
	for name, c := range map[string]struct {
		o     Options
		waits bool
	}{
		"at once":         {Options{}, false},
		"charged":         {Options{Charge: func(*http.Request, Served) int64 { return 1 }}, false},
		"need not wait":   {Options{WaitUpTo: time.Hour}, false},
		"after a wait":    {Options{WaitUpTo: time.Hour}, true},
		"wait and charge": {Options{WaitUpTo: time.Hour, Charge: func(*http.Request, Served) int64 { return 1 }}, true},
	} {
		for _, several := range []bool{false, true} {
			panics := 0
			for passed := false; !passed; {
				synctest.Test(t, func(t *testing.T) {
					left := math.MaxInt // calls until a panic
					limiter, err := engine.New(engine.Config{Policy: funnel}, engine.PolicyFor(func(netip.Addr) policy.Policy {
						if left--; left < 0 {
							panic("plans are not loaded yet")
						}
						return funnel
					}))
					require.NoError(t, err)
					defer limiter.Close()
					limits := []AnyLimit{Limit[netip.Addr]{Name: "a", Limiter: limiter, Key: ByAddr}}
					if several {
						roomy := open[netip.Addr](t, policy.Must(policy.Funnel(100, 100, time.Second)))
						limits = append(limits, Limit[netip.Addr]{Name: "b", Limiter: roomy, Key: ByAddr})
					}
					h := Must(NewAll(c.o, limits...)).Handler(done)
					if c.waits {
						require.True(t, limiter.Choke(aliceKey))
					}
					left = panics
					began := time.Now()
					func() {
						defer func() { passed = recover() == nil }()
						ask(h, from(alice))
					}()
					left = math.MaxInt
					if passed {
						assert.Zero(t, limiter.Peek(aliceKey, 0).Remaining)
						return
					}
					panics++
					if c.waits {
						time.Sleep(time.Second/2 - time.Since(began))
					}
					assert.EqualValues(t, 1, limiter.Peek(aliceKey, 0).Remaining, "%s, several %v, call %d", name, several, panics)
				})
			}
			assert.Greater(t, panics, 1, "%s, several %v", name, several)
			t.Logf("%s, several %v: each of %d calls", name, several, panics)
		}
	}
}
