package fleet

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
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
	const capacity, before, after = 100, 5, 7
	p := policy.Must(policy.FixedWindow(capacity, 24*time.Hour))
	c := at(shared.Addr(), p)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %d", mixedJob, shared.Addr(), c.Name, before, after))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	lines := bufio.NewScanner(out)
	for n := 0; n < before+after; n++ {
		if !assert.True(t, lines.Scan(), "the process ended after %d calls", n) {
			break
		}
	}
	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
	l := open(t, c)
	assert.Equal(t, int64(capacity-after), take(t, l, "tenant", 0).Remaining)
}

const mixedJob = "RAL_FLEET_TEST_MIXED"

// stuck is a limiter whose calls never return, before or after Redis. It prints a line for each.
type stuck struct {
	*Limiter
	before atomic.Int64
}

func (s *stuck) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	if s.before.Add(-1) < 0 {
		if g, err := s.Limiter.Hold(ctx, call); err != nil || !g.Allowed || g.Source() != limits.SourceRedis {
			panic(fmt.Sprint(g, err))
		}
	}
	fmt.Println("stuck")
	select {}
}

func serveMixed() error {
	var addr, name string
	var before, after int64
	if _, err := fmt.Sscan(os.Getenv(mixedJob), &addr, &name, &before, &after); err != nil {
		return err
	}
	c := at(addr, policy.Must(policy.FixedWindow(100, 24*time.Hour)))
	c.Name = strings.TrimSpace(name)
	tenants, err := New(c)
	if err != nil {
		return err
	}
	addresses, err := engine.New[string](engine.Config{Policy: c.Policy})
	if err != nil {
		return err
	}
	far := &stuck{Limiter: tenants}
	far.before.Store(before)
	for range before + after {
		go func() {
			_, _ = limits.AskAll(context.Background(), 0,
				limits.NewClaim(far, limits.Call[string]{Key: "tenant", N: 1}),
				limits.NewClaim(addresses, limits.Call[string]{Key: "address", N: 1}))
		}()
	}
	time.Sleep(time.Hour) // wall: it is killed long before
	return nil
}
