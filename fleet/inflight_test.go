package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/slots"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func inFlightOf(n int64, longest time.Duration) policy.Policy {
	return policy.Must(policy.InFlight(n, longest))
}

// openInFlight starts limiters of one Name, and waits until units may enter.
func openInFlight(t *testing.T, c Config, servers int) (all []*Limiter) {
	t.Helper()
	for range servers {
		all = append(all, open(t, c))
	}
	// Redis has no mark at first.
	time.Sleep(all[0].config.Term)
	return all
}

func reserve(t *testing.T, l *Limiter, key string, n int64) Reservation {
	t.Helper()
	return must.Get(l.Reserve(t.Context(), key, n, 0))
}

func isLost(r *Reservation) bool {
	select {
	case <-r.Lost():
		return true
	default:
		return false
	}
}

// Promise: Over a fleet, at most the limit of calls of a key are in flight at once, and a released call makes room at once.
func TestServersShareOneLimitInFlight(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, inFlightOf(3, time.Minute))
		all := openInFlight(t, c, 2)
		first, second := reserve(t, all[0], "a", 2), reserve(t, all[1], "a", 1)
		require.True(t, first.Allowed && second.Allowed)
		require.EqualValues(t, 0, second.Remaining)
		refused := reserve(t, all[1], "a", 1)
		require.False(t, refused.Allowed)
		require.Equal(t, limits.SourceRedis, refused.Source())
		require.False(t, refused.Exact(), "the refusal must not be exact, as the return of units is unknown")
		require.Empty(t, refused.ID())
		require.Nil(t, refused.Lost())
		require.True(t, reserve(t, all[1], "b", 1).Allowed)

		// The units stay in use.
		time.Sleep(5 * c.withDefaults().Term)
		require.False(t, reserve(t, all[1], "a", 1).Allowed)
		require.NoError(t, first.Release(t.Context()))
		require.NoError(t, first.Release(t.Context()), "a second Release is an error")
		last := reserve(t, all[1], "a", 2)
		require.True(t, last.Allowed)
		require.NoError(t, last.Keep(t.Context(), 2), "Keep must end the call, whatever the call used")
		require.NoError(t, second.Cancel(t.Context()))
		require.EqualValues(t, 3, take(t, all[0], "a", 0).Remaining)
		require.False(t, isLost(&first) || isLost(&second))
	})
}

// Promise: Of 16 callers at once on several servers, exactly one passes a limit of one in flight.
func TestOneOf16CallersPassesALimitOfOneInFlight(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		all := openInFlight(t, on(redis, inFlightOf(1, time.Minute)), 4)
		for range 20 {
			var mu sync.Mutex
			var passed []Reservation
			var callers sync.WaitGroup
			for i := range 16 {
				callers.Go(func() {
					r, err := all[i%len(all)].Reserve(t.Context(), "a", 1, 0)
					assert.NoError(t, err)
					mu.Lock()
					defer mu.Unlock()
					if r.Allowed {
						passed = append(passed, r)
					}
				})
			}
			callers.Wait()
			require.Len(t, passed, 1)
			require.NoError(t, passed[0].Release(t.Context()))
		}
	})
}

// severable is a store that can be cut off from its Redis, alone.
type severable struct {
	decider
	cut *atomic.Bool
}

func (s severable) away() error {
	if s.cut.Load() {
		return fmt.Errorf("%w: cut off", store.ErrAsking)
	}
	return nil
}

func (s severable) TakeEach(ctx context.Context, asks []store.TakeAsk, reply func(i int, t store.Taken, err error)) {
	if err := s.away(); err != nil {
		for i := range asks {
			reply(i, store.Taken{}, err)
		}
		return
	}
	s.decider.TakeEach(ctx, asks, reply)
}

func (s severable) TakeAll(ctx context.Context, asks []store.Ask) ([]store.Taken, error) {
	if err := s.away(); err != nil {
		return nil, err
	}
	return s.decider.TakeAll(ctx, asks)
}

func (s severable) Confirm(ctx context.Context, l *store.Limit, slots []store.Confirm) (store.Confirmed, error) {
	if err := s.away(); err != nil {
		return store.Confirmed{}, err
	}
	return s.decider.Confirm(ctx, l, slots)
}

func (s severable) Release(ctx context.Context, l *store.Limit, key, id string, n int64) (int64, error) {
	if err := s.away(); err != nil {
		return 0, err
	}
	return s.decider.Release(ctx, l, key, id, n)
}

func (s severable) Heartbeat(ctx context.Context, b store.Beat) (store.Roll, error) {
	if err := s.away(); err != nil {
		return store.Roll{}, err
	}
	return s.decider.Heartbeat(ctx, b)
}

// openSeverable is openInFlight for servers that can be cut off one by one.
func openSeverable(t *testing.T, redis *storetest.Redis, c Config, servers int) (all []*Limiter, cut []*atomic.Bool) {
	t.Helper()
	for range servers {
		off := &atomic.Bool{}
		c.fake = func(o store.Options) decider { return severable{redis.Store(o), off} }
		all, cut = append(all, open(t, c)), append(cut, off)
	}
	time.Sleep(all[0].config.Term)
	return all, cut
}

// Promise: A server that is cut off gives up its units in flight, and closes Lost, before Redis gives their places away.
func TestCutOffServerGivesUpItsUnits(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, inFlightOf(3, time.Hour))
		c.Outage = FallbackClosed
		all, cut := openSeverable(t, redis, c, 2)
		term := all[0].config.Term
		held := []Reservation{reserve(t, all[0], "a", 2), reserve(t, all[1], "a", 1)}
		cut[0].Store(true)
		begun := time.Now()
		for range 40 {
			time.Sleep(term / 20)
			if more := reserve(t, all[1], "a", 1); more.Allowed {
				held = append(held, more)
			}
			notLost := int64(0)
			for i := range held {
				if !isLost(&held[i]) {
					notLost += held[i].ask.n
				}
			}
			require.LessOrEqual(t, notLost, int64(3), "after %v too many units count as in use", time.Since(begun))
			require.False(t, isLost(&held[1]), "a unit of a server that is not cut off is lost")
			require.False(t, reserve(t, all[0], "a", 1).Allowed, "a server that is cut off admits a call")
			if time.Since(begun) < term/2 {
				require.False(t, isLost(&held[0]), "a unit is lost although the last beat still holds")
			}
		}
		require.True(t, isLost(&held[0]))
		require.Len(t, held, 4, "Redis must give the places to the other server")
		require.EqualValues(t, 2, all[0].Stats().LostUnits)

		cut[0].Store(false)
		eventually(t, func() bool { return all[0].Health() == nil }, "it is back")
		require.False(t, reserve(t, all[0], "a", 1).Allowed)
		require.NoError(t, held[0].Release(t.Context()))
		for i := range held[1:] {
			require.NoError(t, held[1+i].Release(t.Context()))
		}
		require.EqualValues(t, 3, take(t, all[0], "a", 0).Remaining)
	})
}

// Promise: The context of an HTTP request ends with limits.ErrLost if its server loses the request's units in flight.
func TestLostUnitsEndARequest(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, inFlightOf(1, time.Hour))
		c.Outage = FallbackClosed
		all, cut := openSeverable(t, redis, c, 1)
		rate := open(t, via(all[0], funnel(9, 1, time.Hour)))
		trial := must.Get(limits.NewTrial(limits.TrialConfig[string]{Live: all[0], Candidate: rate}))
		key := func(r *http.Request) string { return r.URL.Path }
		slot, rated := httplimit.Limit[string]{Name: "slot", Limiter: all[0], Key: key}, httplimit.Limit[string]{Name: "rate", Limiter: rate, Key: key}
		tried := httplimit.Limit[string]{Name: "tried", Limiter: trial, Key: key}
		for name, by := range map[string][]httplimit.AnyLimit{"alone": {slot}, "beside a rate": {slot, rated}, "tried": {tried}} {
			ended := make(chan error, 1)
			handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				ended <- context.Cause(r.Context())
			})
			served := must.Get(httplimit.NewAll(httplimit.Options{}, by...)).Handler(handler)
			ctx, cancel := context.WithCancel(t.Context())
			serve := func() {
				served.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/"+name[:1], nil))
			}
			go serve()
			synctest.Wait()
			time.Sleep(3 * all[0].config.Term)
			require.Empty(t, ended, name)
			cut[0].Store(true)
			require.ErrorIs(t, <-ended, limits.ErrLost, name)
			cut[0].Store(false)
			eventually(t, func() bool { return all[0].Health() == nil }, "it is back")
			// The unit leaves Redis.
			time.Sleep(all[0].config.Term)
			go serve()
			synctest.Wait()
			require.EqualValues(t, 1, all[0].Stats().HeldUnits, name)
			cancel()
			require.ErrorIs(t, <-ended, context.Canceled, "%s: a call whose client went must end", name)
			synctest.Wait()
			require.Zero(t, all[0].Stats().HeldUnits, name)
		}
	})
}

// A server that was stopped, so that none of its goroutines ran, closes Lost before it admits another call.
func TestStoppedServerGivesUpItsUnitsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The keeper is not started.
		s := newSlotKeeper(&access{}, &catalog{config: Config{Term: time.Second}}, &waiters{})
		a := ask{terms: &terms{maxUse: time.Hour}, key: "a", id: "1", n: 1}
		s.do(func(book *slots.Book, now slots.Time) {
			a.receipt = s.mu.book.Enter("a", "0", 1, book.Ask(now), now, time.Hour)
		})
		time.Sleep(time.Minute)
		admitted, held := s.enterLocally(&a, 1, 2)
		require.NotNil(t, admitted)
		require.EqualValues(t, 2, held)
		require.True(t, isLost(&Reservation{ask: a}))
		require.EqualValues(t, 1, s.lost.Load())
	})
}

// A server that is cut off alone adds its share to the limit, less what it has.
// Promise: Under FallbackShare a server without Redis admits as many calls in flight as its share has beyond those that it has already, lost or not.
func TestShareInFlightIsLessUnitsHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, inFlightOf(9, time.Hour))
		c.Servers = 2
		all, cut := openSeverable(t, redis, c, 2)
		term := all[0].config.Term
		mine := reserve(t, all[0], "a", 3)
		require.True(t, mine.Allowed)
		cut[0].Store(true)
		// First the unit is not lost, and then it is.
		for _, wait := range []time.Duration{0, 2 * term} {
			time.Sleep(wait)
			require.Equal(t, wait > 0, isLost(&mine))
			one := reserve(t, all[0], "a", 1)
			require.True(t, one.Allowed)
			require.Equal(t, limits.SourceShare, one.Source())
			require.EqualValues(t, 4, one.Limit, "a share must have floor(9 / 2) units")
			require.EqualValues(t, 0, one.Remaining)
			refused := reserve(t, all[0], "a", 1)
			require.False(t, refused.Allowed)
			require.ErrorIs(t, refused.Err(), ErrOutage)
			require.NoError(t, one.Release(t.Context()))
		}
		require.False(t, reserve(t, all[0], "b", 5).Allowed, "a call for more than the share must be refused")
		require.ErrorIs(t, mine.Release(t.Context()), ErrOutage)
		share := reserve(t, all[0], "a", 4)
		require.True(t, share.Allowed)
		others := reserve(t, all[1], "a", 9)
		require.True(t, others.Allowed, "the share must come on top of the limit")

		cut[0].Store(false)
		eventually(t, func() bool { return all[0].Health() == nil }, "it is back")
		require.False(t, isLost(&share))
		require.Equal(t, 13, inFlightInRedis(redis, all[0], "a"), "the units of the share must enter, even above the limit")
		require.False(t, reserve(t, all[0], "a", 1).Allowed)
		require.NoError(t, others.Release(t.Context()))
		require.EqualValues(t, 5, take(t, all[1], "a", 0).Remaining)
		require.NoError(t, share.Release(t.Context()))
		require.EqualValues(t, 9, take(t, all[1], "a", 0).Remaining)
	})
}

// Promise: Calls in flight that pass without Redis under FallbackOpen hold no units, and are counted in Stats.Open.
func TestOpenFallbackInFlight(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, inFlightOf(2, time.Hour))
		c.Outage = FallbackOpen
		all, cut := openSeverable(t, redis, c, 2)
		mine := reserve(t, all[0], "a", 2)
		cut[0].Store(true)
		passed := reserve(t, all[0], "a", 1)
		require.True(t, passed.Allowed)
		require.Equal(t, limits.SourceOpen, passed.Source())
		require.Empty(t, passed.ID())
		require.Nil(t, passed.Lost())
		extended, err := passed.Extend(t.Context())
		require.NoError(t, err)
		require.False(t, extended)
		require.EqualValues(t, 1, all[0].Stats().Open)
		require.EqualValues(t, 2, all[0].Stats().HeldUnits)
		time.Sleep(2 * all[0].config.Term)
		require.True(t, isLost(&mine))
		require.True(t, reserve(t, all[1], "a", 2).Allowed)
		cut[0].Store(false)
		eventually(t, func() bool { return all[0].Health() == nil }, "it is back")
		require.Equal(t, 2, inFlightInRedis(redis, all[0], "a"), "calls that passed without units must never enter")
		require.NoError(t, passed.Release(t.Context()))
		require.Equal(t, 2, inFlightInRedis(redis, all[0], "a"))
	})
}

func inFlightInRedis(redis *storetest.Redis, l *Limiter, key string) int {
	return redis.InFlight(redis.Store(l.storeOptions()), l.own.Load().limit, key)
}

// Promise: A server whose units in flight are missing in a Redis that restarted enters them before it asks for more.
func TestRedisComesBackWithOlderUnits(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, inFlightOf(3, time.Hour))
		c.Outage = FallbackClosed
		l := openInFlight(t, c, 1)[0]
		held := reserve(t, l, "a", 3)
		redis.Set(gone)
		eventually(t, func() bool { return l.Health() != nil }, "it notices")
		redis.Restart(false)
		redis.LoseUnits(l.own.Load().limit, "a")
		redis.Set(well)
		for l.Health() != nil {
			require.False(t, reserve(t, l, "a", 1).Allowed)
			time.Sleep(time.Millisecond)
		}
		require.False(t, isLost(&held), "the unit is lost although the outage was short")
		require.Equal(t, 3, inFlightInRedis(redis, l, "a"))
		require.False(t, reserve(t, l, "a", 1).Allowed)
		require.NoError(t, held.Release(t.Context()))
		require.True(t, reserve(t, l, "a", 3).Allowed)
	})
}

// Promise: On a new connection a server enters its units in flight before it asks for more: there may be another Redis.
func TestNewConnectionEntersUnitsFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, inFlightOf(3, time.Hour))
		c.Outage = FallbackClosed
		l := openInFlight(t, c, 1)[0]
		held := reserve(t, l, "a", 3)
		synctest.Wait()
		redis.Restart(false)
		redis.LoseUnits(l.own.Load().limit, "a")
		l.conn.dials.Add(1)
		refused := reserve(t, l, "a", 1)
		require.False(t, refused.Allowed)
		require.Equal(t, limits.SourceClosed, refused.Source())
		synctest.Wait()
		require.NoError(t, l.Health(), "the refused call must have caused a beat at once")
		require.Equal(t, 3, inFlightInRedis(redis, l, "a"))
		require.False(t, isLost(&held))
	})
}

// Promise: A Redis that comes back empty admits no call in flight for one term, in which every server enters its own.
func TestRedisComesBackEmpty(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, inFlightOf(5, time.Hour))
		c.Outage = FallbackClosed
		all := openInFlight(t, c, 2)
		term := all[0].config.Term
		held := []Reservation{reserve(t, all[0], "a", 2), reserve(t, all[1], "a", 2)}
		require.True(t, held[0].Allowed && held[1].Allowed, "%v %v", held[0].Err(), held[1].Err())
		redis.Restart(true)
		begun := time.Now()
		for time.Since(begun) < term {
			x := must.Get(all[0].Explain(t.Context(), "a"))
			require.False(t, x.Allowed)
			require.Zero(t, x.Of, "how many are in use is not known")
			require.GreaterOrEqual(t, x.RetryAfter, term-time.Since(begun), "the true reason lasts so long")
			require.Contains(t, x.String(), "Redis had no record of units in flight, and admits no call")
			require.NotContains(t, x.String(), "in use")
			a := reserve(t, all[0], "a", 1)
			require.False(t, a.Allowed)
			require.ErrorIs(t, a.Err(), ErrEmptied)
			require.Positive(t, a.RetryAfter)
			require.LessOrEqual(t, a.RetryAfter, term)
			time.Sleep(term / 40)
		}
		require.Equal(t, 4, inFlightInRedis(redis, all[0], "a"), "all units must have entered")
		require.True(t, reserve(t, all[0], "a", 1).Allowed)
		require.False(t, reserve(t, all[0], "a", 1).Allowed)
		for i := range held {
			require.False(t, isLost(&held[i]))
		}
	})
}

// delayed is a store whose next beat is on its way while something else happens.
type delayed struct {
	decider
	next *atomic.Pointer[func()]
}

func (d delayed) Confirm(ctx context.Context, l *store.Limit, slots []store.Confirm) (store.Confirmed, error) {
	if meanwhile := d.next.Swap(nil); meanwhile != nil {
		(*meanwhile)()
	}
	return d.decider.Confirm(ctx, l, slots)
}

// A beat is on its way while a call enters and Redis restarts empty. The beat's answer names the new Redis,
// but does not tell of the call's unit: the next beat must not take it as given back by another server.
func TestBeatOverlapsAnEmptyRestart(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		c := on(redis, inFlightOf(2, time.Hour))
		next := &atomic.Pointer[func()]{}
		c.fake = func(o store.Options) decider { return delayed{redis.Store(o), next} }
		l := openInFlight(t, c, 1)[0]
		first, entered := reserve(t, l, "a", 1), make(chan Reservation, 1)
		meanwhile := func() {
			entered <- reserve(t, l, "a", 1)
			redis.Restart(true)
		}
		next.Store(&meanwhile)
		second := <-entered
		require.True(t, second.Allowed)
		time.Sleep(l.config.Term)
		require.False(t, isLost(&first) || isLost(&second))
		require.Equal(t, 2, inFlightInRedis(redis, l, "a"), "both units must have entered again")
		require.False(t, reserve(t, l, "a", 1).Allowed)
	})
}

// Promise: A worker on another server ends a call in flight by its ID.
func TestReleaseByID(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		all := openInFlight(t, on(redis, inFlightOf(2, time.Hour)), 2)
		begun := reserve(t, all[0], "a", 2)
		require.True(t, must.Get(all[1].Release(t.Context(), "a", begun.ID())))
		require.False(t, must.Get(all[1].Release(t.Context(), "a", begun.ID())), "a second Release must report that nothing was released")
		require.True(t, reserve(t, all[1], "a", 2).Allowed)
		time.Sleep(2 * all[0].config.Term)
		require.False(t, isLost(&begun), "the call has ended by its release, so its unit must not be lost")
		require.Equal(t, 2, inFlightInRedis(redis, all[0], "a"), "a beat brought the released unit back")
		require.NoError(t, begun.Release(t.Context()))
		require.Equal(t, 2, inFlightInRedis(redis, all[0], "a"), "the end of the call took units of others")
		ok, err := begun.Extend(t.Context())
		require.False(t, ok)
		require.NoError(t, err)
		for _, bad := range []string{"", "x", "x.0", "x.y", "x.10001"} {
			_, err := all[0].Release(t.Context(), "a", bad)
			require.ErrorContains(t, err, "Release: id is")
		}
	})
}

// Promise: A call in flight that nothing ends leaves after its longest time, over a fleet, too.
func TestInFlightEndsByItself(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := openInFlight(t, on(redis, inFlightOf(2, time.Minute)), 1)[0]
		require.True(t, take(t, l, "a", 1).Allowed, "a call without a handle must be admitted")
		kept := reserve(t, l, "a", 1)
		time.Sleep(50 * time.Second)
		require.False(t, take(t, l, "a", 1).Allowed)
		ok, err := kept.Extend(t.Context())
		require.True(t, ok)
		require.NoError(t, err)
		time.Sleep(11 * time.Second)
		require.EqualValues(t, 1, take(t, l, "a", 0).Remaining, "only the extended unit must still be in use")
		time.Sleep(50 * time.Second)
		require.EqualValues(t, 2, take(t, l, "a", 0).Remaining)
		require.False(t, isLost(&kept), "a unit that ended by itself must not be lost")
		require.NoError(t, kept.Release(t.Context()))
		require.EqualValues(t, 1, l.Stats().OverstayedUnits)

		other := reserve(t, l, "a", 1)
		same := other
		require.NoError(t, other.Release(t.Context()))
		require.NoError(t, same.Release(t.Context()))
		require.EqualValues(t, 1, l.Stats().OverstayedUnits, "only the unit that was not released in time must count as overstayed")
		require.EqualValues(t, 2, take(t, l, "a", 0).Remaining)
	})
}

// Promise: TakeAll takes units of a rate and of a limit in flight in one step, and its Outcome gives them back.
func TestTakeAllInFlight(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := openInFlight(t, on(redis, inFlightOf(2, time.Hour)), 1)[0]
		rate := open(t, via(l, funnel(5, 1, time.Hour)))
		all := func(n int64) limits.Outcome {
			// The share learns a later word.
			time.Sleep(time.Millisecond)
			return must.Get(TakeAll(t.Context(), rate.Claim("a", n), l.Claim("a", 1), l.Claim("a", 1)))
		}
		// Beats are over.
		synctest.Wait()
		before := redis.Calls()
		out := must.Get(TakeAll(t.Context(), rate.Claim("a", 3), l.Claim("a", 1), l.Claim("a", 1)))
		require.True(t, out.Allowed)
		require.Equal(t, before+1, redis.Calls(), "both claims must take one exchange")
		require.False(t, take(t, l, "a", 1).Allowed)
		require.NoError(t, out.Settle(t.Context(), 2, 1, 1))
		require.EqualValues(t, 3, take(t, rate, "a", 0).Remaining)
		require.EqualValues(t, 2, take(t, l, "a", 0).Remaining)

		out = all(1)
		require.True(t, out.Allowed)
		require.NoError(t, out.Release(t.Context()))
		require.EqualValues(t, 2, take(t, rate, "a", 0).Remaining, "units of the rate must stay spent")
		require.EqualValues(t, 2, take(t, l, "a", 0).Remaining)
		require.True(t, must.Get(rate.Refund(t.Context(), "a", 1)).Allowed)

		out = all(3)
		require.True(t, out.Allowed)
		require.NoError(t, out.Cancel(t.Context()))
		require.EqualValues(t, 3, take(t, rate, "a", 0).Remaining, "Cancel must leave the rate as if the call had never been")
		require.EqualValues(t, 2, take(t, l, "a", 0).Remaining)

		require.False(t, all(4).Allowed)
		require.EqualValues(t, 2, take(t, l, "a", 0).Remaining, "a call that the rate refuses must have no slot")
		held := reserve(t, l, "a", 1)
		require.False(t, all(1).Allowed)
		require.EqualValues(t, 3, take(t, rate, "a", 0).Remaining)
		require.NoError(t, held.Release(t.Context()))
		time.Sleep(time.Millisecond)
		require.EqualValues(t, 3, take(t, rate, "a", 0).Remaining)

		redis.Set(gone)
		out = all(1)
		require.True(t, out.Allowed)
		require.Equal(t, limits.SourceShare, out.Answers[1].Source())
		require.False(t, all(1).Allowed, "a call must be refused while the share is in use")
		require.NoError(t, out.Cancel(t.Context()))
		require.False(t, all(6).Allowed)
		require.True(t, all(1).Allowed, "a refused call must have no slot of the share")
	})
}

// Promise: Calls that wait for room in flight on a server start in the order in which they came, as soon as one is released there.
func TestCallsWaitingForRoomStartInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		all := openInFlight(t, on(redis, inFlightOf(2, time.Hour)), 2)
		l := all[0]
		held := reserve(t, l, "a", 2)
		type served struct {
			number int
			Reservation
		}
		started := make(chan served, 4)
		for i := range 4 {
			n := int64(1)
			if i == 0 {
				// The call for two units does not starve.
				n = 2
			}
			go func() { started <- served{i, must.Get(l.Acquire(t.Context(), "a", n, policy.Never))} }()
			synctest.Wait()
		}
		require.Equal(t, 4, l.Stats().Waiting)
		time.Sleep(time.Minute)
		require.Empty(t, started)
		require.NoError(t, held.Release(t.Context()))
		begun := time.Now()
		first := <-started
		require.Equal(t, 0, first.number)
		require.Zero(t, time.Since(begun), "a call must start at once after a release on its server")
		require.GreaterOrEqual(t, first.Waited, time.Minute)

		require.True(t, must.Get(all[1].Release(t.Context(), "a", first.ID())), "a release on another server must end the call")
		begun = time.Now()
		second := <-started
		require.Equal(t, 1, second.number)
		require.LessOrEqual(t, time.Since(begun), askAgain*3/2)
		third := <-started
		require.Equal(t, 2, third.number)

		require.NoError(t, second.Release(t.Context()))
		last := <-started
		require.Equal(t, 3, last.number)
		require.Zero(t, l.Stats().Waiting)
	})
}

func TestWaitInFlightEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := openInFlight(t, on(redis, inFlightOf(2, time.Hour)), 1)[0]
		held := reserve(t, l, "a", 1)
		begun := time.Now()
		_, err := l.Acquire(t.Context(), "a", 2, 10*time.Second)
		require.ErrorIs(t, err, engine.ErrDeadline)
		require.Equal(t, 10*time.Second, time.Since(begun), "RetryAfter must refuse no call that has patience left")
		_, err = l.Acquire(t.Context(), "a", 3, time.Hour)
		require.ErrorIs(t, err, engine.ErrNever)

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 3)
		for range 2 {
			go func() {
				_, err := l.Acquire(ctx, "a", 2, policy.Never)
				ended <- err
			}()
			synctest.Wait()
		}
		refused := reserve(t, l, "a", 1)
		require.False(t, refused.Allowed, "a call that does not wait must be refused while others wait")
		require.EqualValues(t, 1, refused.Remaining)
		cancel()
		require.ErrorIs(t, <-ended, engine.ErrCancelled)
		require.ErrorIs(t, <-ended, engine.ErrCancelled)
		require.True(t, reserve(t, l, "a", 1).Allowed, "a call must pass when none waits any more")

		go func() { ended <- l.Wait(t.Context(), "a", 1) }()
		synctest.Wait()
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, <-ended)

		g := must.Get(l.Hold(t.Context(), limits.Call[string]{Key: "b", N: 2, Patience: time.Second}))
		require.True(t, g.Allowed)
		require.NoError(t, g.Settle(t.Context(), 5), "Settle must end the call, whatever the call used")
		require.EqualValues(t, 2, take(t, l, "b", 0).Remaining)
		g = must.Get(l.Hold(t.Context(), limits.Call[string]{Key: "b", N: 2}))
		require.True(t, g.Allowed)
		require.NoError(t, g.Release(t.Context()))
		require.EqualValues(t, 2, take(t, l, "b", 0).Remaining)
	})
}

// Promise: A lower limit in flight clips no unit in use, over a fleet, too, and each unit ends after the longest time under which it was taken.
func TestSetPolicyInFlight(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := openInFlight(t, on(redis, inFlightOf(4, time.Hour)), 1)[0]
		held := []Reservation{reserve(t, l, "a", 1), reserve(t, l, "a", 3)}
		require.NoError(t, l.SetPolicy(inFlightOf(2, time.Minute)))
		time.Sleep(5 * time.Minute)
		require.False(t, reserve(t, l, "a", 1).Allowed)
		require.NoError(t, held[0].Release(t.Context()))
		require.False(t, reserve(t, l, "a", 1).Allowed, "a call must be refused while three units are in use")
		require.NoError(t, held[1].Release(t.Context()))
		require.True(t, reserve(t, l, "a", 2).Allowed)
		require.NoError(t, l.SetPolicy(inFlightOf(2, time.Hour)))
		require.True(t, must.Get(l.TakeWith(t.Context(), inFlightOf(3, time.Minute), "a", 1)).Allowed)
		time.Sleep(2 * time.Minute)
		require.EqualValues(t, 2, take(t, l, "a", 0).Remaining)
	})
}

func TestOtherVerbsInFlight(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := openInFlight(t, on(redis, inFlightOf(3, time.Hour)), 1)[0]
		held := reserve(t, l, "a", 2)
		for _, n := range []int64{1, -1} {
			require.False(t, must.Get(l.Refund(t.Context(), "a", n)).Allowed)
		}
		require.EqualValues(t, 1, take(t, l, "a", 0).Remaining)
		require.True(t, must.Get(l.Peek(t.Context(), "a", 1)).Allowed)
		require.False(t, must.Get(l.Peek(t.Context(), "a", 2)).Allowed)
		x := must.Get(l.Explain(t.Context(), "a"))
		require.EqualValues(t, 2, x.Used)
		require.EqualValues(t, 3, x.Of)
		require.True(t, x.Known)
		require.EqualValues(t, 2, l.Stats().HeldUnits)
		units, _, err := l.TakeUpTo(t.Context(), "a", 5)
		require.NoError(t, err)
		require.EqualValues(t, 1, units)
		require.NoError(t, l.ChangeLimit(t.Context(), "a", nil, inFlightOf(6, time.Hour), engine.KeepShare))
		require.EqualValues(t, 3, must.Get(l.TakeWith(t.Context(), inFlightOf(6, time.Hour), "a", 0)).Remaining)

		require.True(t, must.Get(l.Reset(t.Context(), "a")))
		require.True(t, reserve(t, l, "a", 3).Allowed)
		time.Sleep(2 * l.config.Term)
		require.NoError(t, held.Release(t.Context()), "a release of a slot from before Reset must free nothing")
		require.False(t, reserve(t, l, "a", 1).Allowed)

		require.NoError(t, l.Block(t.Context(), "b", time.Hour))
		a := take(t, l, "b", 1)
		require.ErrorIs(t, a.Err(), limits.ErrBlocked)
		require.Zero(t, inFlightInRedis(redis, l, "b"))
	})
}

// After Close nothing confirms a call's units, so that they are lost.
func TestClosedServerLosesItsUnitsInFlight(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		all := openInFlight(t, on(redis, inFlightOf(2, time.Hour)), 2)
		held := reserve(t, all[0], "a", 2)
		require.NoError(t, all[0].Close())
		require.True(t, isLost(&held))
		require.False(t, reserve(t, all[1], "a", 1).Allowed)
		time.Sleep(all[1].config.Term)
		require.True(t, reserve(t, all[1], "a", 2).Allowed)
	})
}

// TestUnitsInFlightKeepTheLimitUnderFaults has servers enter, release, extend and forget units at random, also by the ID elsewhere,
// while they are cut off one by one, and Redis goes, restarts, loses some units or all, and comes back.
//
//  1. Units not lost that Redis admitted are at most the limit at any time, except for those of a Redis
//     that came back with older data.
//  2. The units of a server's share are at most that share.
//  3. In the end no unit is left.
func TestUnitsInFlightKeepTheLimitUnderFaults(t *testing.T) {
	seed := testenv.Seed(t)
	for i := range uint64(20) {
		inBubble(t, func(t *testing.T, redis *storetest.Redis) { auditInFlight(t, redis, rand.New(rand.NewPCG(seed, i))) })
	}
}

func auditInFlight(t *testing.T, redis *storetest.Redis, random *rand.Rand) {
	const servers, limit = 3, 7
	c := on(redis, inFlightOf(limit, time.Minute))
	c.Servers, c.Term = servers, time.Second
	all, cut := openSeverable(t, redis, c, servers)
	type held struct {
		Reservation
		server int
		ends   time.Time
	}
	var slots []held
	// older is until when other servers may not have entered units that Redis lost.
	older := time.Time{}
	for step := range 3000 {
		time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
		now := time.Now()
		byRedis, byShare := int64(0), [servers]int64{}
		kept := slots[:0]
		for _, s := range slots {
			if now.Before(s.ends) {
				kept = append(kept, s)
			}
			switch {
			case !now.Before(s.ends) || isLost(&s.Reservation):
			case s.Source() == limits.SourceShare:
				byShare[s.server] += s.ask.n
			default:
				byRedis += s.ask.n
			}
		}
		slots = kept
		if now.After(older) {
			require.LessOrEqual(t, byRedis, int64(limit), "step %d", step)
		}
		for _, n := range byShare {
			require.LessOrEqual(t, n, int64(limit/servers), "step %d", step)
		}
		index := random.IntN(servers)
		l := all[index]
		switch random.IntN(100) {
		case 0:
			cut[index].Store(true)
		case 1, 2, 3:
			cut[index].Store(false)
		case 4:
			if random.IntN(4) == 0 {
				redis.Set(gone)
			}
		case 5, 6, 7:
			redis.Set(well)
		case 8:
			if random.IntN(4) == 0 {
				redis.Set(gone)
				time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
				redis.Restart(true)
				redis.Set(well)
			}
		case 9:
			if random.IntN(4) == 0 {
				redis.Set(gone)
				time.Sleep(200 * time.Millisecond)
				redis.Restart(false)
				redis.LoseUnits(l.own.Load().limit, "a")
				redis.Set(well)
				older = time.Now().Add(10 * c.Term)
			}
		default:
			switch n := random.IntN(10); {
			case n < 5:
				if r := reserve(t, l, "a", 1+random.Int64N(3)); r.Allowed {
					slots = append(slots, held{r, index, time.Now().Add(time.Minute)})
				}
			case len(slots) == 0:
			default:
				chosen := random.IntN(len(slots))
				s := &slots[chosen]
				switch {
				case n < 8:
					// Without Redis the units leave later.
					_ = s.Release(t.Context())
				case n < 9:
					if ok, err := s.Extend(t.Context()); ok && err == nil {
						s.ends = time.Now().Add(time.Minute)
					}
					continue
				default:
					if done, err := all[random.IntN(servers)].Release(t.Context(), "a", s.ID()); err != nil || !done {
						continue
					}
				}
				slots = append(slots[:chosen], slots[chosen+1:]...)
			}
		}
	}
	redis.Set(well)
	for i := range cut {
		cut[i].Store(false)
	}
	for i := range slots {
		_ = slots[i].Release(t.Context())
	}
	time.Sleep(3 * time.Minute)
	require.Zero(t, inFlightInRedis(redis, all[0], "a"))
	for _, l := range all {
		require.NoError(t, l.Health())
		require.Zero(t, l.Stats().HeldUnits)
	}
	require.True(t, reserve(t, all[0], "a", limit).Allowed)
}

func TestNewRefusesBadSettingsInFlight(t *testing.T) {
	base := Config{Name: "x", Policy: inFlightOf(1, time.Minute), fake: func(store.Options) decider { return nil }}
	for _, bad := range []struct {
		change func(c *Config)
		says   string
	}{
		{func(c *Config) { c.Mode = Leased }, "fleet.Config: Mode is Leased, want Exact"},
		{func(c *Config) { c.Term = time.Millisecond }, "fleet.Config: Term is 1ms, want between 100ms and 1m"},
		{func(c *Config) { c.Term = time.Hour }, "fleet.Config: Term is 1h0m0s"},
		{func(c *Config) { c.StateFile = "x" }, "fleet.Config: StateFile"},
		{func(c *Config) { c.Policy = inFlightOf(10_001, time.Minute) }, "want at most 10000 in flight"},
	} {
		c := base
		bad.change(&c)
		_, err := New(c)
		require.ErrorContains(t, err, bad.says)
	}
}

// Promise: A call that waits for units in flight tells its whole wait, also if it was behind another call and
// admitted as soon as it was the first.
func TestWaitBehindAnotherCallCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := openInFlight(t, on(redis, inFlightOf(3, time.Minute)), 1)[0]
		held := reserve(t, l, "k", 3)
		ended := make(chan Reservation)
		for range 2 {
			go func() { ended <- must.Get(l.Acquire(t.Context(), "k", 1, time.Minute)) }()
			synctest.Wait()
		}
		time.Sleep(10 * time.Second)
		require.NoError(t, held.Release(t.Context()))
		for range 2 {
			r := <-ended
			require.GreaterOrEqual(t, r.Waited, 10*time.Second)
		}
		require.EqualValues(t, 2, l.Stats().Waits)
	})
}
