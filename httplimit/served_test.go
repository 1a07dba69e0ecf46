package httplimit

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

func TestHeadResponseIsChargedNoBytes(t *testing.T) {
	for method, want := range map[string]int64{http.MethodGet: 11, http.MethodHead: 0} {
		var got Served
		s := serve(t, plenty(t, Options{Charge: func(_ *http.Request, served Served) int64 { got = served; return 1 }}).
			Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "hello ")
				_, _ = io.Copy(w, strings.NewReader("world"))
			})), false)
		r, err := http.NewRequest(method, s.URL, nil)
		require.NoError(t, err)
		resp, err := s.Client().Do(r)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		// Close waits for the handler.
		s.Close()
		assert.Equal(t, Served{Status: 200, Bytes: want}, got, method)
	}
}

func TestServedTellsStatusBytesAndPanic(t *testing.T) {
	failure := errors.New("failure")
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    Served
		panics  any
	}{
		"nothing written": {func(http.ResponseWriter, *http.Request) {}, Served{Status: 200}, nil},
		"a status":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, Served{Status: 404}, nil},
		"two statuses": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			w.WriteHeader(http.StatusInternalServerError)
		}, Served{Status: 404}, nil},
		"early hints": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusNotFound)
		}, Served{Status: 404}, nil},
		"switching": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusSwitchingProtocols) }, Served{Status: 101}, nil},
		"a body":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("body")) }, Served{Status: 200, Bytes: 4}, nil},
		"a status late": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("body"))
			w.WriteHeader(http.StatusInternalServerError)
		}, Served{Status: 200, Bytes: 4}, nil},
		"flushed": {func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			w.WriteHeader(http.StatusInternalServerError)
		}, Served{Status: 200}, nil},
		"copied": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, io.LimitReader(strings.NewReader("content"), 5))
		}, Served{Status: 200, Bytes: 5}, nil},
		"panic":            {func(http.ResponseWriter, *http.Request) { panic(failure) }, Served{Panicked: true}, failure},
		"panic, written":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated); panic(failure) }, Served{Status: 201, Panicked: true}, failure},
		"http.ErrAbort":    {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Served{Panicked: true}, http.ErrAbortHandler},
		"panic, no reason": {func(http.ResponseWriter, *http.Request) { panic(nil) }, Served{Panicked: true}, "any"},
	} {
		t.Run(name, func(t *testing.T) {
			limiter := open[netip.Addr](t, policy.Must(policy.Funnel(10, 1, time.Hour)))
			charged := 0
			var got Served
			h := Must(New(limiter, ByAddr, Options{Charge: func(_ *http.Request, served Served) int64 {
				charged++
				got = served
				return 3
			}})).Handler(c.handler)
			switch c.panics {
			case nil:
				ask(h, from(alice))
			case "any":
				assert.Panics(t, func() { ask(h, from(alice)) })
			default:
				assert.PanicsWithValue(t, c.panics, func() { ask(h, from(alice)) })
			}
			assert.Equal(t, 1, charged)
			assert.Equal(t, c.want, got)
			assert.Equal(t, int64(7), limiter.Peek(aliceKey, 0).Remaining)
		})
	}
}

func TestNothingIsWrappedWithoutNeed(t *testing.T) {
	limiter := open[netip.Addr](t, policy.Must(policy.Funnel(10, 1, time.Hour)))
	w := httptest.NewRecorder()
	Must(New(limiter, ByAddr, Options{})).Handler(http.HandlerFunc(func(got http.ResponseWriter, _ *http.Request) {
		assert.Same(t, w, got)
	})).ServeHTTP(w, from(alice))
}

// bare implements ResponseWriter only; the types below add an interface each.
type bare struct{ http.ResponseWriter }

type flushes1 struct{ flushed *int }

func (f flushes1) Flush() { *f.flushed++ }

type hijacks1 struct{}

func (hijacks1) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

type pushes1 struct{}

func (pushes1) Push(string, *http.PushOptions) error { return nil }

// Promise: Streaming, hijacking, deadlines and panics are the handler's own.
func TestWrapperImplementsTheWrappedInterfaces(t *testing.T) {
	flushed := 0
	b, f, h, p := bare{httptest.NewRecorder()}, flushes1{&flushed}, hijacks1{}, pushes1{}
	for _, w := range []http.ResponseWriter{
		b,
		struct {
			bare
			flushes1
		}{b, f},
		struct {
			bare
			hijacks1
		}{b, h},
		struct {
			bare
			pushes1
		}{b, p},
		struct {
			bare
			flushes1
			hijacks1
		}{b, f, h},
		struct {
			bare
			flushes1
			pushes1
		}{b, f, p},
		struct {
			bare
			hijacks1
			pushes1
		}{b, h, p},
		struct {
			bare
			flushes1
			hijacks1
			pushes1
		}{b, f, h, p},
	} {
		c := &recorder{ResponseWriter: w}
		got := c.writer()
		_, want := w.(http.Flusher)
		flusher, is := got.(http.Flusher)
		assert.Equal(t, want, is, "%T: Flusher", w)
		if is {
			before := flushed
			flusher.Flush()
			assert.NoError(t, http.NewResponseController(got).Flush())
			assert.Equal(t, before+2, flushed)
			assert.Equal(t, 200, c.served.Status)
		}
		_, want = w.(http.Hijacker)
		hijacker, is := got.(http.Hijacker)
		assert.Equal(t, want, is, "%T: Hijacker", w)
		if is {
			_, _, err := hijacker.Hijack()
			assert.NoError(t, err)
			assert.True(t, c.served.Hijacked)
		}
		_, want = w.(http.Pusher)
		pusher, is := got.(http.Pusher)
		assert.Equal(t, want, is, "%T: Pusher", w)
		if is {
			assert.NoError(t, pusher.Push("/", nil))
		}
		assert.Implements(t, (*io.ReaderFrom)(nil), got)
		assert.Implements(t, (*io.StringWriter)(nil), got)
		unwrap, is := got.(interface{ Unwrap() http.ResponseWriter })
		if assert.True(t, is) {
			assert.Equal(t, w, unwrap.Unwrap())
		}
	}
}

// Promise: An answer that Charge did not see is told in the log, once.
func TestUnseenAnswerIsLoggedOnce(t *testing.T) {
	var logged bytes.Buffer
	e := open[netip.Addr](t, policy.Must(policy.FixedWindow(100, time.Hour)))
	m := Must(New(e, ByAddr, Options{
		Charge: func(_ *http.Request, served Served) int64 { return int64(served.Status) / 200 },
		Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	}))
	serve := func(h http.HandlerFunc) {
		defer func() { _ = recover() }()
		m.Handler(h).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/later", nil))
	}
	serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	serve(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "seen") })
	serve(func(http.ResponseWriter, *http.Request) { panic("no answer either") })
	assert.Empty(t, logged.String())
	for range 3 {
		serve(func(http.ResponseWriter, *http.Request) {})
	}
	assert.Equal(t, 1, strings.Count(logged.String(), "level=WARN"), logged.String())
	assert.Contains(t, logged.String(), "Charge")
	assert.Contains(t, logged.String(), "path=/later")
}
