package fleet

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

var byAddr = httplimit.ByString(httplimit.ByAddr)

func served(t *testing.T, h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func request(fields ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	return r
}

var nothing = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// Promise: An outage that refuses is 503, not 429.
func TestOutageInWebServer(t *testing.T) {
	for outage, want := range map[Fallback][]int{
		FallbackClosed: {503, 503, 503, 503}, FallbackShare: {200, 200, 429, 429}, FallbackOpen: {200, 200, 200, 200},
	} {
		inBubble(t, func(t *testing.T, redis *storetest.Redis) {
			c := on(redis, policy.Must(policy.FixedWindow(4, 24*time.Hour)))
			c.Outage, c.Servers = outage, 2
			l := open(t, c)
			h := httplimit.Must(httplimit.New(l, byAddr, httplimit.Options{})).Handler(nothing)
			// The share of a key that this server does not know may be used up.
			require.True(t, take(t, l, "192.0.2.1", 0).Allowed)
			redis.Set(gone)
			for i, code := range want {
				w := served(t, h, request())
				assert.Equal(t, code, w.Code, "%v, %d", outage, i)
				assert.NotContains(t, w.Header(), "Ratelimit")
				assert.NotContains(t, w.Header(), "Retry-After")
				if code == 503 {
					assert.Contains(t, w.Body.String(), "#temporary-reduced-capacity")
				}
			}
		})
	}
}

// A request waits for Redis for its budget, and for another if it is settled.
// Promise: Web servers keep time budgets while Redis dies and returns.
func TestRequestsWaitNoLongerThanTheirBudgets(t *testing.T) {
	for _, mode := range []Mode{Exact, Leased} {
		for _, f := range fallbacks {
			t.Run(fmt.Sprint(mode, f.source), func(t *testing.T) {
				inBubble(t, func(t *testing.T, redis *storetest.Redis) {
					c := on(redis, policy.Must(policy.FixedWindow(1_000_000, 24*time.Hour)))
					c.Mode, c.Outage, c.Servers = mode, f.outage, 2
					l := open(t, c)
					h := httplimit.Must(httplimit.New(l, byAddr, httplimit.Options{Charge: func(*http.Request, httplimit.Served) int64 { return 0 }})).Handler(nothing)
					for _, fault := range faults {
						answered := func() bool { return l.Health() == nil && served(t, h, request()).Code == http.StatusOK }
						eventually(t, answered, "well")
						for _, w := range fault.weather {
							redis.Set(w)
						}
						for range 100 {
							begun := time.Now()
							served(t, h, request())
							require.LessOrEqual(t, time.Since(begun), 2*defaultBudget, fault.name)
						}
						redis.Set(well)
					}
				})
			})
		}
	}
}

// Promise: A process dying between claims leaves at most units of unfinished calls.
func TestProcessDiesBetweenClaims(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		const capacity, before, after = 100, 5, 7
		c := on(redis, policy.Must(policy.FixedWindow(capacity, 24*time.Hour)))
		first, second := open(t, c), open(t, on(redis, c.Policy))
		dies := make(chan struct{})
		var all sync.WaitGroup
		for i := range before + after {
			all.Go(func() {
				_, _ = limits.AskAll(t.Context(), 0,
					limits.NewClaim(stuck{first, i < before, dies}, limits.Call[string]{Key: "tenant", N: 1}),
					limits.NewClaim(stuck{second, true, dies}, limits.Call[string]{Key: "address", N: 1}))
			})
		}
		synctest.Wait()
		assert.Equal(t, int64(capacity-after), take(t, open(t, c), "tenant", 0).Remaining)
		close(dies)
		all.Wait()
	})
}

// stuck is a limiter whose calls stop before or after they asked Redis.
type stuck struct {
	*Limiter
	before bool
	dies   <-chan struct{}
}

func (s stuck) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	if s.before {
		<-s.dies
	}
	g, err := s.Limiter.Hold(ctx, call)
	<-s.dies
	return g, err
}
