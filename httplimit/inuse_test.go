package httplimit

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// atOnce is a limit of one request at once, and a server behind it.
type atOnce struct {
	*engine.Engine[string]
	server *httptest.Server
	limit  *Middleware
	// returned has a value once the limit's handler has returned.
	returned chan bool
	given    http.ResponseWriter
}

func oneAtOnce(t *testing.T, o Options) *atOnce {
	e := open[string](t, policy.Must(policy.InFlight(1, time.Hour)))
	return &atOnce{Engine: e, limit: Must(New(e, func(*http.Request) string { return "all" }, o)), returned: make(chan bool, 10)}
}

// serve serves the limit around next. around may wrap the limit again.
func (a *atOnce) serve(t *testing.T, http2 bool, next http.Handler, around func(limited http.Handler) http.Handler) {
	limited := a.limit.Handler(next)
	outer := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { a.returned <- true }()
		a.given = w
		limited.ServeHTTP(w, r)
	}))
	if around != nil {
		outer = around(outer)
	}
	a.server = serve(t, outer, http2)
}

func (a *atOnce) left() int64 { return a.Peek("all", 0).Remaining }

func (a *atOnce) get(ctx context.Context) (*http.Response, error) {
	return a.server.Client().Do(must.Get(http.NewRequestWithContext(ctx, http.MethodGet, a.server.URL, nil)))
}

// Promise: A panic of a handler or of the options gives back units in use.
func TestPanicReleasesUnitsInUse(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		bothWays(t, func(t *testing.T, o Options, _ func() []Served) {
			a := oneAtOnce(t, o)
			a.serve(t, http2, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				assert.Zero(t, a.left())
				panic(http.ErrAbortHandler)
			}), nil)
			_, err := a.get(t.Context())
			assert.Error(t, err)
			<-a.returned
			assert.EqualValues(t, 1, a.left())
		})
	}
	for name, o := range map[string]Options{
		"OnVerdict": {OnVerdict: func(*http.Request, limits.Verdict) { panic("as asked") }},
		"Header":    {Header: func(http.Header, limits.Verdict) { panic("as asked") }},
	} {
		bothWays(t, func(t *testing.T, charges Options, _ func() []Served) {
			charges.OnVerdict, charges.Header = o.OnVerdict, o.Header
			a := oneAtOnce(t, charges)
			assert.PanicsWithValue(t, "as asked", func() { ask(a.limit.Handler(done), from(alice)) })
			assert.EqualValues(t, 1, a.left(), name)
		})
	}
}

// Promise: A stream is one request at once until its handler returns, and its `ResponseWriter` is not wrapped.
func TestStreamIsInUseUntilItsEnd(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		a, next := oneAtOnce(t, Options{Headers: RateLimitHeaders | RetryHeaders, Spread: time.Minute}), make(chan bool)
		a.serve(t, http2, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			assert.Equal(t, a.given, w)
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 3 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				assert.NoError(t, http.NewResponseController(w).Flush())
				<-next
			}
		}), nil)
		resp, err := a.get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, `"default";q=1;qu="concurrent-requests"`, resp.Header.Get("RateLimit-Policy"))
		assert.Equal(t, `"default";r=0;t=1`, resp.Header.Get("RateLimit"))
		events := bufio.NewReader(resp.Body)
		for i := range 3 {
			event, err := events.ReadString('\n')
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprintf("data: %d\n", i), event)
			_, _ = events.ReadString('\n')
			assert.Zero(t, a.left())
			refused, err := a.get(t.Context())
			require.NoError(t, err)
			assert.Equal(t, http.StatusTooManyRequests, refused.StatusCode)
			assert.Equal(t, "1", refused.Header.Get("Retry-After"))
			assert.Regexp(t, `^([5-9]\d\d|1000)$`, refused.Header.Get("Retry-After-Ms"))
			refused.Body.Close()
			<-a.returned
			next <- true
		}
		_, _ = io.Copy(io.Discard, events)
		resp.Body.Close()
		<-a.returned
		assert.EqualValues(t, 1, a.left())
	}
}

// vanish has the client of a request go, by the end of the request's context or by a cut of its connections. Over
// HTTP/1 the context's end cuts the connection, and over HTTP/2 it resets the stream.
type vanish func(end context.CancelFunc, cut func())

var vanishing = map[string]vanish{
	"the request ends":      func(end context.CancelFunc, _ func()) { end() },
	"the connection is cut": func(_ context.CancelFunc, cut func()) { cut() },
}

// cutter returns a function that cuts the connections of the server's client, which has made no request.
func (a *atOnce) cutter() (cut func()) {
	var mu sync.Mutex
	var conns []net.Conn
	a.server.Client().Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, conn)
		return conn, err
	}
	return func() {
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
}

// Promise: A request whose client vanished is in use until its handler returns.
func TestVanishedClientIsInUseUntilItsHandlerReturns(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, vanish := range vanishing {
			bothWays(t, func(t *testing.T, o Options, _ func() []Served) {
				a, gone, goOn := oneAtOnce(t, o), make(chan bool), make(chan bool)
				a.serve(t, http2, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					// The client may have gone before the flush returns.
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
					gone <- true
					<-goOn
				}), nil)
				cut := a.cutter()
				ctx, cancel := context.WithCancel(t.Context())
				resp, err := a.get(ctx)
				require.NoError(t, err)
				vanish(cancel, cut)
				<-gone
				assert.Zero(t, a.left(), "its handler goes on")
				goOn <- true
				<-a.returned
				assert.EqualValues(t, 1, a.left())
				resp.Body.Close()
			})
		}
	}
}

// Promise: A request is in use until its handler returns, also if the handler took over the connection.
func TestHijackedRequestIsInUseUntilItsHandlerReturns(t *testing.T) {
	bothWays(t, func(t *testing.T, o Options, _ func() []Served) {
		a, taken, goOn := oneAtOnce(t, o), make(chan bool), make(chan bool)
		a.serve(t, false, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			assert.NoError(t, err)
			// The connection outlives the handler.
			go func() {
				<-goOn
				_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
				_ = conn.Close()
			}()
			assert.Zero(t, a.left())
			taken <- true
		}), nil)
		answered := make(chan error, 1)
		go func() {
			resp, err := a.get(context.Background())
			if err == nil {
				err = resp.Body.Close()
			}
			answered <- err
		}()
		<-taken
		<-a.returned
		assert.EqualValues(t, 1, a.left())
		close(goOn)
		assert.NoError(t, <-answered)
	})
}

// Inside, the limit counts the handler as long as it runs. Outside, it counts the request as long as its client
// waits.
//
// Promise: Inside `http.TimeoutHandler` a request is in use until its handler returns; outside, until the timeout or until its client vanishes.
func TestUnitsInUseAndTimeoutHandler(t *testing.T) {
	ends := map[string]vanish{"a timeout": nil}
	maps.Copy(ends, vanishing)
	for name, vanish := range ends {
		for _, http2 := range []bool{false, true} {
			for _, inside := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, HTTP/2 %v, inside %v", name, http2, inside), func(t *testing.T) {
					a, runs, goOn, ended := oneAtOnce(t, Options{}), make(chan bool), make(chan bool), make(chan bool, 1)
					over := make(chan bool, 1)
					handler := http.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
						runs <- true
						<-goOn
						ended <- true
					}))
					timeouts := make(chan context.CancelFunc, 1)
					timeout := func(next http.Handler) http.Handler {
						limited := http.TimeoutHandler(next, time.Hour, "")
						return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							ctx, cancel := context.WithCancel(r.Context())
							timeouts <- cancel
							limited.ServeHTTP(w, r.WithContext(ctx))
							over <- true
						})
					}
					if inside {
						a.serve(t, http2, handler, timeout)
					} else {
						a.serve(t, http2, timeout(handler), nil)
					}
					cut := a.cutter()
					ctx, end := context.WithCancel(t.Context())
					defer end()
					go func() {
						<-runs
						// A timeout comes once the handler runs.
						if cancel := <-timeouts; vanish == nil {
							cancel()
						} else {
							vanish(end, cut)
						}
					}()
					resp, err := a.get(ctx)
					if vanish == nil {
						require.NoError(t, err)
						assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
						resp.Body.Close()
					} else {
						require.Error(t, err)
					}
					<-over
					if !inside {
						<-a.returned
					}
					want := map[bool]int64{true: 0, false: 1}[inside]
					assert.Equal(t, want, a.left(), "the handler still runs")
					goOn <- true
					<-ended
					if inside {
						<-a.returned
					}
					assert.EqualValues(t, 1, a.left())
				})
			}
		}
	}
}

// Promise: A request that one limit refuses holds no unit in use of another, in whatever order the limits are listed.
func TestRefusedRequestHoldsNoUnitInUse(t *testing.T) {
	for first := range 2 {
		a := oneAtOnce(t, Options{})
		key := func(*http.Request) string { return "all" }
		all := []AnyLimit{
			Limit[string]{Name: "streams", Limiter: a.Engine, Key: key},
			Limit[string]{Name: "requests", Limiter: open[string](t, policy.Must(policy.FixedWindow(1, time.Hour))), Key: key},
		}
		all[0], all[first] = all[first], all[0]
		h := Must(NewAll(Options{}, all...)).Handler(done)
		assert.Equal(t, http.StatusOK, ask(h, from(alice)).Code)
		assert.Equal(t, http.StatusTooManyRequests, ask(h, from(alice)).Code)
		assert.EqualValues(t, 1, a.left())
	}
}

func TestLostUnitsEndNoRequestInShadow(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		l, lost := admissiontest.NewLosing(t), make(chan struct{})
		l.Lose(lost)
		limit := Must(New(l, func(*http.Request) string { return "all" }, Options{Shadow: shadow}))
		ask(limit.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(lost)
			if !shadow {
				<-r.Context().Done()
				assert.ErrorIs(t, context.Cause(r.Context()), limits.ErrLost)
			}
		})), from(alice))
		assert.Equal(t, !shadow, l.Asked() > 0)
		assert.EqualValues(t, 1, l.Peek("all", 0).Remaining)
	}
}

func TestRetryGuessSetsRetryAfter(t *testing.T) {
	for guess, want := range map[time.Duration]string{0: "1", time.Millisecond: "1", 90 * time.Second: ""} {
		a := oneAtOnce(t, Options{RetryGuess: guess})
		held := a.Reserve("all", 1, 0)
		require.True(t, held.Allowed)
		retry := ask(a.limit.Handler(done), from(alice)).Header().Get("Retry-After")
		if want != "" {
			assert.Equal(t, want, retry)
			continue
		}
		seconds := must.Get(time.ParseDuration(retry + "s"))
		assert.True(t, 45*time.Second <= seconds && seconds <= 90*time.Second, retry)
	}
	_, err := New(hourly(t, 1), ByAddr, Options{RetryGuess: -1})
	refusedBy(t, err, "httplimit.Options", "RetryGuess")
}

// Each of the others has its usual fields.
func TestFieldsOfUnitsInUseBesideOthers(t *testing.T) {
	a := oneAtOnce(t, Options{})
	m := Must(NewAll(Options{Headers: RateLimitHeaders | LegacyHeaders},
		Limit[string]{Name: "streams", Limiter: a.Engine, Key: func(*http.Request) string { return "all" }},
		Limit[string]{Name: "requests", Limiter: open[string](t, policy.Must(policy.FixedWindow(9, time.Hour))), Key: func(*http.Request) string { return "all" }},
	))
	var answers []*httptest.ResponseRecorder
	h := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if len(answers) == 0 {
			answers = append(answers, httptest.NewRecorder())
			m.Handler(done).ServeHTTP(answers[0], r)
		}
	}))
	w := ask(h, from(alice))
	assert.Equal(t, `"streams";q=1;qu="concurrent-requests", "requests";q=9;w=3600`, w.Header().Get("RateLimit-Policy"))
	assert.Equal(t, http.StatusTooManyRequests, answers[0].Code)
	assert.Equal(t, `"streams";r=0;t=1`, answers[0].Header().Get("RateLimit"))
	assert.Equal(t, "1", answers[0].Header().Get("RateLimit-Reset"))
	assert.True(t, strings.Contains(answers[0].Body.String(), `"violated-policies":["streams"]`), answers[0].Body.String())
	assert.EqualValues(t, 1, a.left())
}
