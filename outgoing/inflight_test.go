package outgoing

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

func atOnce(n int64) policy.Policy { return policy.Must(policy.InFlight(n, time.Minute)) }

// left returns how many calls of the key "there" may begin.
func (l *Line[K]) left(key K) int64 { return l.inFlight.Peek(key, 0).Remaining }

type answers = func(r *http.Request) (*http.Response, error)

// Promise: A request is in flight until its response is read to the end or closed, or it failed.
func TestRequestIsInFlightUntilItsEnd(t *testing.T) {
	failed := errors.New("as asked")
	always := func(status int, body string, fields ...string) answers {
		return func(*http.Request) (*http.Response, error) {
			return response(status, strings.NewReader(body), fields...), nil
		}
	}
	readAll := func(resp *http.Response) { _, _ = io.Copy(io.Discard, resp.Body) }
	for name, c := range map[string]struct {
		server answers
		during int64 // left while the response is not read
		end    func(*http.Response)
	}{
		"read":     {always(200, "four"), 0, readAll},
		"closed":   {always(200, "four"), 0, func(r *http.Response) { _ = r.Body.Close() }},
		"torn":     {func(*http.Request) (*http.Response, error) { return response(200, failing{failed}), nil }, 0, readAll},
		"refused":  {always(429, "no", "Retry-After: 1"), 0, readAll},
		"switched": {always(101, ""), 0, func(r *http.Response) { _ = r.Body.Close() }},
		"no body": {func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 204, Body: http.NoBody}, nil
		}, 1, func(*http.Response) {}},
		"nil body": {func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 204}, nil }, 1, func(*http.Response) {}},
		"failed":   {func(*http.Request) (*http.Response, error) { return nil, failed }, 1, func(*http.Response) {}},
		"unsent":   {func(*http.Request) (*http.Response, error) { return nil, engine.ErrCrowded }, 1, func(*http.Response) {}},
		"panicked": {func(*http.Request) (*http.Response, error) { panic("as asked") }, 1, func(*http.Response) {}},
	} {
		for _, used := range [][][]string{nil, {{"total"}}} {
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, Config{InFlight: atOnce(1)})
				transport := must.Get(NewTransport(l, ByHost, Options{Used: used, Base: &base{answer: func(r *http.Request) (*http.Response, error) {
					assert.Zero(t, l.left("there"), "%s: a request that is under way must count", name)
					return c.server(r)
				}}}))
				var resp *http.Response
				func() {
					defer func() { _ = recover() }()
					resp, _ = transport.RoundTrip(request(t, http.MethodGet, nil))
				}()
				assert.Equal(t, c.during, l.left("there"), name)
				c.end(resp)
				assert.EqualValues(t, 1, l.left("there"), name)
				if resp != nil && resp.Body != nil {
					_ = resp.Body.Close()
				}
				assert.EqualValues(t, 1, l.left("there"), "%s: a request must end once", name)
			})
		}
	}
}

// Promise: A response that is never closed ends by the longest time of Config.InFlight.
func TestForgottenBodyEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, Config{InFlight: atOnce(1)})
		transport := must.Get(NewTransport(l, ByHost, Options{Base: &base{answer: func(*http.Request) (*http.Response, error) {
			return response(200, strings.NewReader("four")), nil
		}}}))
		forgotten := must.Get(transport.RoundTrip(request(t, http.MethodGet, nil)))
		began := time.Now()
		resp := must.Get(transport.RoundTrip(request(t, http.MethodGet, nil)))
		assert.GreaterOrEqual(t, time.Since(began), time.Minute)
		assert.Less(t, time.Since(began), 2*time.Minute)
		_ = forgotten.Body.Close()
		assert.Zero(t, l.left("there"), "a late end must end no other request")
		assert.EqualValues(t, 1, l.Stats().Overstayed)
		_ = resp.Body.Close()
		assert.EqualValues(t, 1, l.left("there"))
	})
}

// Promise: Calls in flight never exceed Config.InFlight, and wait in order of arrival for it and their other limits.
func TestCallsInFlightAreExact(t *testing.T) {
	for name, c := range map[string]Config{
		"alone":              {},
		"with a rate":        {Policy: policy.Must(policy.Funnel(3, 1, time.Second))},
		"with units":         {Units: []string{"tokens"}},
		"longer than a unit": {Policy: policy.Must(policy.FixedWindow(4, 5*time.Minute))},
	} {
		synctest.Test(t, func(t *testing.T) {
			c.InFlight = atOnce(3)
			l := newLine(t, c)
			const calls = 40
			var present atomic.Int64
			var mu sync.Mutex
			var order []int
			var all sync.WaitGroup
			for i := range calls {
				all.Go(func() {
					turn, err := l.Wait(t.Context(), "there", 1, 5)
					if !assert.NoError(t, err, name) {
						return
					}
					assert.LessOrEqual(t, present.Add(1), int64(3), name)
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					if i == 0 {
						turn.Obey(Answer{})
					}
					time.Sleep(time.Duration(1+i%4) * 10 * time.Second)
					turn.Obey(Answer{})
					present.Add(-1)
					turn.Release()
					turn.Abandon()
				})
				synctest.Wait()
			}
			assert.EqualValues(t, calls, l.Stats().Waiting+len(order), "%s: the other calls must wait", name)
			all.Wait()
			for i := range order {
				require.InDelta(t, i, order[i], 2, "%s: only three calls may be sent at one instant", name)
			}
			assert.EqualValues(t, 3, l.left("there"), name)
		})
	}
}

// Promise: A call that ends its wait for Config.InFlight takes nothing.
func TestWhatEndsAWaitForAFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answers []string
		l := newLine(t, Config{InFlight: atOnce(1), Patience: 10 * time.Second, MaxWaiting: 1, OnTurn: func(_ context.Context, limit string, d policy.Decision) {
			if !d.Allowed {
				answers = append(answers, limit)
			}
		}})
		first, err := l.Wait(t.Context(), "there")
		require.NoError(t, err)
		began := time.Now()
		_, err = l.Wait(t.Context(), "there")
		assert.ErrorIs(t, err, engine.ErrDeadline)
		assert.Equal(t, 10*time.Second, time.Since(began))
		assert.Equal(t, []string{"outgoing in flight"}, answers)

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := l.Wait(ctx, "there")
				ended <- err
			}()
			synctest.Wait()
		}
		assert.ErrorIs(t, <-ended, engine.ErrCrowded, "one call waits for the flight and one behind it, so a third must be refused")
		cancel()
		assert.ErrorIs(t, <-ended, engine.ErrCancelled)
		assert.ErrorIs(t, <-ended, engine.ErrCancelled)
		first.Cancel()
		assert.EqualValues(t, 1, l.left("there"))

		slow := newLine(t, Config{InFlight: atOnce(1), Policy: policy.Must(policy.Funnel(1, 1, time.Minute))})
		turn, err := slow.Wait(t.Context(), "there")
		require.NoError(t, err)
		turn.Obey(Answer{})
		turn.Release()
		late, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		_, err = slow.Wait(late, "there")
		assert.ErrorIs(t, err, engine.ErrCancelled, "a call that waits for its turn must end with its context")
		assert.EqualValues(t, 1, slow.left("there"))

		other, err := l.Wait(t.Context(), "other")
		require.NoError(t, err, "another key must not share the limit")
		l.Reset("other")
		assert.Zero(t, l.left("other"), "a call in flight must count after Reset")
		other.Release()
		assert.EqualValues(t, 1, l.left("other"))
		require.NoError(t, l.Close())
		_, err = l.Wait(t.Context(), "there")
		assert.ErrorIs(t, err, engine.ErrClosed)
	})
}

// Promise: A repeated or redirected request is in flight once at a time.
func TestRepeatedRequestIsInFlightOnce(t *testing.T) {
	var present, highest, sent atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer present.Add(-1)
		highest.Store(max(highest.Load(), present.Add(1)))
		sent.Add(1)
		switch {
		case r.URL.Path == "/" && sent.Load() == 1:
			w.Header().Set("Retry-After-Ms", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, "later")
		case r.URL.Path == "/":
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		default:
			fmt.Fprint(w, "done")
		}
	}))
	defer server.Close()
	l := newLine(t, Config{InFlight: policy.Must(policy.InFlight(1, time.Hour)), Patience: time.Minute})
	client := &http.Client{Transport: must.Get(NewTransport(l, func(*http.Request) string { return "there" }, Options{Retries: 2}))}
	resp := must.Get(client.Get(server.URL))
	assert.Equal(t, "done", string(must.Get(io.ReadAll(resp.Body))))
	assert.NoError(t, resp.Body.Close())
	assert.EqualValues(t, 3, sent.Load())
	assert.EqualValues(t, 1, highest.Load())
	assert.EqualValues(t, 1, l.left("there"))

	retries := 0
	assert.NoError(t, l.Send(t.Context(), "there", 3, func(turn *Turn[string]) bool {
		assert.Zero(t, l.left("there"))
		turn.Obey(Answer{})
		retries++
		return true
	}))
	assert.Equal(t, 4, retries)
	assert.EqualValues(t, 1, l.left("there"), "Send must end the call")
}

// Promise: A server gets at most as many requests of a key at once as Config.InFlight says, over real connections.
func TestServerGetsNoMoreRequestsAtOnce(t *testing.T) {
	const most = 4
	var present, highest atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for now := present.Add(1); ; {
			if before := highest.Load(); now <= before || highest.CompareAndSwap(before, now) {
				break
			}
		}
		if r.URL.Path == "/switch" {
			conn, _, err := w.(http.Hijacker).Hijack()
			if assert.NoError(t, err) {
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
				line, _ := bufio.NewReader(conn).ReadString('\n')
				present.Add(-1)
				_, _ = io.WriteString(conn, line)
				_ = conn.Close()
			}
			return
		}
		defer present.Add(-1)
		for range 3 {
			fmt.Fprintln(w, "a part")
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer server.Close()
	l := newLine(t, Config{InFlight: atOnce(most), Probe: time.Millisecond})
	base := &http.Transport{DialContext: (&net.Dialer{}).DialContext}
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: must.Get(NewTransport(l, ByHost, Options{Base: base}))}
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			r := must.Get(http.NewRequest(http.MethodGet, server.URL, nil))
			if i%4 == 3 {
				r.URL.Path = "/switch"
				r.Header.Set("Connection", "Upgrade")
				r.Header.Set("Upgrade", "echo")
			}
			resp, err := client.Do(r)
			if !assert.NoError(t, err) {
				return
			}
			if i%4 == 3 {
				both, ok := resp.Body.(io.ReadWriter)
				if assert.True(t, ok, "%T", resp.Body) {
					_, _ = io.WriteString(both, "hello\n")
					assert.Equal(t, "hello\n", must.Get(bufio.NewReader(both).ReadString('\n')))
				}
			} else {
				assert.Equal(t, 3, strings.Count(string(must.Get(io.ReadAll(resp.Body))), "a part"))
			}
			_ = resp.Body.Close()
		})
	}
	all.Wait()
	assert.LessOrEqual(t, highest.Load(), int64(most))
	assert.EqualValues(t, most, l.left(ByHost(must.Get(http.NewRequest(http.MethodGet, server.URL, nil)))))
}

func TestCallInFlightAllocatesNothing(t *testing.T) {
	l := newLine(t, Config{InFlight: atOnce(2)})
	call := func() {
		turn, err := l.Wait(t.Context(), "there")
		require.NoError(t, err)
		turn.Obey(Answer{})
		turn.Release()
	}
	call()
	assert.Zero(t, testing.AllocsPerRun(1000, call))
}

func TestNewRefusesMisplacedInFlight(t *testing.T) {
	for field, c := range map[string]Config{
		"InFlight": {InFlight: policy.Must(policy.Funnel(1, 1, time.Second))},
		"Policy":   {Policy: atOnce(1)},
	} {
		_, err := New[string](c)
		var fault *policy.FieldError
		if assert.ErrorAs(t, err, &fault, field) {
			assert.Equal(t, field, fault.Field)
		}
	}
}
