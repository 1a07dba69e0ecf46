package sidebyside

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/httprate"
	httprateredis "github.com/go-chi/httprate-redis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
	"golang.org/x/time/rate"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/internal/core/clock"
	"github.com/ral-limiter/ral/internal/testkit/child"
	"github.com/ral-limiter/ral/policy"
)

// plenty is an hourly limit that no benchmark reaches, within a SlidingWindow's maximum of
// 8,388,607.
const (
	plenty = 8_000_000
	one    = 1
)

// setting is a limit for a contender: so many in each period, and as many at once.
type setting struct {
	limit int
	per   time.Duration
	// The address of a Redis, and the limit's name there, which servers share.
	redis, name string
}

var limits atomic.Int64

func hourly(limit int) setting { return settingOf(limit, time.Hour, "") }

func settingOf(limit int, per time.Duration, redis string) setting {
	return setting{limit, per, redis, fmt.Sprintf("limit-%d", limits.Add(1))}
}

type middleware = func(http.Handler) http.Handler

type contender struct {
	name    string
	promise promise
	shared  bool // in Redis, by several servers
	make    func(testing.TB, setting) middleware
}

var contenders = []contender{
	{"bare", nil, false, func(testing.TB, setting) middleware {
		return func(next http.Handler) http.Handler { return next }
	}},
	{"ral", bucket, false, ral(httplimit.Options{})},
	{"ral-no-headers", bucket, false, ral(httplimit.Options{Headers: httplimit.NoHeaders})},
	{"ral-sliding-window", bucket, false, ralSliding},
	{"httprate", bucket, false, func(_ testing.TB, s setting) middleware {
		return httprate.LimitBy(s.limit, s.per, httprateKey)
	}},
	{"ulule", fixedWindow, false, func(_ testing.TB, s setting) middleware { return ulule(memory.NewStore(), s) }},
	{"xtime-rate", bucket, false, xtime},
	{"httprate-redis", bucket, true, httprateRedis},
	{"ulule-redis", fixedWindow, true, ululeRedis},
	{"ral-fleet", bucket, true, ralFleet(fleet.Exact)},
	{"ral-leased", bucket, true, ralFleet(fleet.Leased)},
}

// promise returns the most that a limit admits in any stretch of this length, or in the stretch
// that begins with the first request.
type promise func(s setting, d time.Duration, first bool) int64

// bucket is the promise of a token bucket, and of an exact sliding window estimated from two fixed
// windows: see policy.SlidingWindow. An engine's clock may be late at first, and early in the end.
func bucket(s setting, d time.Duration, _ bool) int64 {
	return bench.Limit{Capacity: int64(s.limit), Count: int64(s.limit), Per: s.per}.Most(d + clock.Late + clock.Early)
}

// fixedWindow is the promise of windows that begin with the first request after the last window.
func fixedWindow(s setting, d time.Duration, first bool) int64 {
	touched := int64(d/s.per) + 2
	if first {
		touched--
	}
	return touched * int64(s.limit)
}

func ral(o httplimit.Options) func(testing.TB, setting) middleware {
	return func(tb testing.TB, s setting) middleware {
		return ralBy(tb, policy.Must(policy.Funnel(int64(s.limit), int64(s.limit), s.per)), o)
	}
}

// ralSliding estimates a sliding window from two counts, as httprate does.
func ralSliding(tb testing.TB, s setting) middleware {
	return ralBy(tb, policy.Must(policy.SlidingWindow(int64(s.limit), s.per)), httplimit.Options{})
}

func ralBy(tb testing.TB, p policy.Policy, o httplimit.Options) middleware {
	limiter, err := engine.New[netip.Addr](engine.Config{Policy: p})
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, limiter.Close()) })
	return httplimit.Must(httplimit.New(limiter, httplimit.ByAddr, o)).Handler
}

// ralFleet keeps the limit in Redis, in Exact mode, or takes leases. With its long budget Redis
// answers all calls. Leased mode has no limit of 1: of 2 it admits 1, and keeps the other back.
func ralFleet(mode fleet.Mode) func(testing.TB, setting) middleware {
	return func(tb testing.TB, s setting) middleware {
		limit := int64(s.limit)
		if mode == fleet.Leased {
			limit = max(limit, 2)
		}
		limiter, err := fleet.New(fleet.Config{
			Name: s.name, Mode: mode, Policy: policy.Must(policy.Funnel(limit, limit, s.per)),
			Redis:  rueidis.ClientOption{InitAddress: []string{s.redis}, ForceSingleClient: true},
			Budget: time.Minute, Outage: fleet.FallbackClosed,
		})
		require.NoError(tb, err)
		tb.Cleanup(func() { assert.NoError(tb, limiter.Close()) })
		require.Eventually(tb, func() bool { return limiter.Health() == nil }, time.Minute, time.Millisecond)
		return httplimit.Must(httplimit.New(limiter, httplimit.ByString(httplimit.ByAddr), httplimit.Options{})).Handler
	}
}

// httprateKey is the connection's address, as documented. httprate sets X-RateLimit-Limit,
// -Remaining and -Reset.
func httprateKey(r *http.Request) (string, error) {
	ip, _, err := net.SplitHostPort(r.RemoteAddr)
	return httprate.CanonicalizeIP(ip), err
}

// httprateRedis has the defaults of httprate-redis: it counts in memory for a while if Redis does
// not answer within 250 ms.
func httprateRedis(tb testing.TB, s setting) middleware {
	host, text, err := net.SplitHostPort(s.redis)
	require.NoError(tb, err)
	port, err := strconv.ParseUint(text, 10, 16)
	require.NoError(tb, err)
	counter := httprateredis.NewCounter(&httprateredis.Config{
		Host: host, Port: uint16(port), PrefixKey: s.name, WindowLength: s.per,
		OnFallbackChange: func(activated bool) {
			if activated { // by a request; it ends in another goroutine
				tb.Logf("httprate-redis falls back to memory")
			}
		},
	})
	tb.Cleanup(func() { _ = counter.Close() })
	return httprate.LimitBy(s.limit, s.per, httprateKey, httprate.WithLimitCounter(counter))
}

// ulule sets the same fields as httprate.
func ulule(store limiter.Store, s setting) middleware {
	return stdlib.NewMiddleware(limiter.New(store, limiter.Rate{Period: s.per, Limit: int64(s.limit)})).Handler
}

func ululeRedis(tb testing.TB, s setting) middleware {
	client := redis.NewClient(&redis.Options{Addr: s.redis})
	tb.Cleanup(func() { _ = client.Close() })
	store, err := ululeredis.NewStoreWithOptions(client, limiter.StoreOptions{Prefix: s.name})
	require.NoError(tb, err)
	return ulule(store, s)
}

// xtime is a common middleware: a limiter for each address in a sync.Map, never emptied. It tells
// clients nothing.
func xtime(_ testing.TB, s setting) middleware {
	var limiters sync.Map
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ip, _, err := net.SplitHostPort(r.RemoteAddr)
			if err != nil {
				http.Error(w, "no address", http.StatusBadRequest)
				return
			}
			l, ok := limiters.Load(ip)
			if !ok {
				every := rate.Limit(float64(s.limit) / s.per.Seconds())
				l, _ = limiters.LoadOrStore(ip, rate.NewLimiter(every, s.limit))
			}
			if !l.(*rate.Limiter).Allow() {
				http.Error(w, "Too Many Requests", http.StatusTooManyRequests)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

// startRedis starts a Redis that ends with the test, and returns its client.
func startRedis(tb testing.TB) *redis.Client {
	tb.Helper()
	server, err := child.OpenRedis(child.RedisConfig{})
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, server.Close()) })
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	tb.Cleanup(func() { _ = client.Close() })
	require.NoError(tb, client.Ping(context.Background()).Err())
	return client
}

// client sends a request and returns the status. One goroutine at a time uses it.
type client func() (status int, err error)

// quiet is a ResponseWriter that costs nothing, so that the cost of a middleware shows.
type quiet struct {
	h      http.Header
	status int
}

func (q *quiet) Header() http.Header         { return q.h }
func (q *quiet) Write(b []byte) (int, error) { return len(b), nil }
func (q *quiet) WriteHeader(status int)      { q.status = status }

// caller calls the handler with the requests in order, from first on.
func caller(h http.Handler, requests []*http.Request, first int) client {
	w, i := &quiet{h: http.Header{}}, first
	return func() (int, error) {
		clear(w.h)
		w.status = http.StatusOK
		h.ServeHTTP(w, requests[i%len(requests)])
		i++
		return w.status, nil
	}
}

func clientRequests(n int) []*http.Request {
	requests := make([]*http.Request, n)
	for i := range requests {
		requests[i] = httptest.NewRequest(http.MethodGet, "/", nil)
		requests[i].RemoteAddr = fmt.Sprintf("10.0.%d.%d:4711", i/250, i%250+1)
	}
	return requests
}

func serve(tb testing.TB, h http.Handler) (addr string) {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	tb.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// connect returns a client with its own open connection.
func connect(tb testing.TB, addr string) client {
	conn, err := net.Dial("tcp", addr)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	in := bufio.NewReader(conn)
	return func() (int, error) { return exchange(conn, in) }
}

var request = []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")

// exchange sends a request and returns the status, with as little work as possible.
func exchange(conn net.Conn, in *bufio.Reader) (status int, err error) {
	if _, err := conn.Write(request); err != nil {
		return 0, err
	}
	for length := 0; ; {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		const name, proto = "Content-Length: ", "HTTP/1.1 "
		switch {
		case status == 0:
			if len(line) < len(proto)+3 {
				return 0, fmt.Errorf("no status in %q", line)
			}
			if status, err = strconv.Atoi(string(line[len(proto) : len(proto)+3])); err != nil {
				return 0, err
			}
		case len(line) > len(name) && string(line[:len(name)]) == name:
			if length, err = strconv.Atoi(string(line[len(name) : len(line)-2])); err != nil {
				return 0, err
			}
		case len(line) <= 2:
			_, err := in.Discard(length)
			return status, err
		}
	}
}
