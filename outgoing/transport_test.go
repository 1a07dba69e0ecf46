package outgoing

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
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

// base answers by a function, and counts closings of idle connections.
type base struct {
	answer func(r *http.Request) (*http.Response, error)
	closed int
}

func (b *base) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	return b.answer(r)
}

func (b *base) CloseIdleConnections() { b.closed++ }

type body struct {
	io.Reader
	closed atomic.Int64
}

func (b *body) Close() error {
	b.closed.Add(1)
	return nil
}

func response(status int, content io.Reader, fields ...string) *http.Response {
	return &http.Response{StatusCode: status, Header: headerOf(fields...), Body: &body{Reader: content}}
}

func request(t testing.TB, method string, content io.Reader, fields ...string) *http.Request {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), method, "http://there/", content))
	r.Header = headerOf(fields...)
	return r
}

func transport(t testing.TB, c Config, o Options) *Transport[string] {
	t.Helper()
	rt := must.Get(NewTransport(newLine(t, c), ByHost, o))
	return rt
}

// Promise: Retries are off by default and repeat only repeatable requests.
func TestOnlyRequestsThatMayBeRepeatedAreRetried(t *testing.T) {
	// The body has no GetBody.
	once := func() io.Reader { return io.MultiReader(strings.NewReader("body")) }
	for name, c := range map[string]struct {
		method  string
		content io.Reader
		fields  []string
		options Options
		refuse  int
		sent    int
		status  int
	}{
		"off by default":        {"GET", nil, nil, Options{}, 1, 1, 429},
		"GET":                   {"GET", nil, nil, Options{Retries: 2}, 1, 2, 200},
		"as often as it may":    {"GET", nil, nil, Options{Retries: 2}, 9, 3, 429},
		"PUT with GetBody":      {"PUT", strings.NewReader("body"), nil, Options{Retries: 2}, 2, 3, 200},
		"PUT without":           {"PUT", once(), nil, Options{Retries: 2}, 1, 1, 429},
		"POST":                  {"POST", strings.NewReader("body"), nil, Options{Retries: 2}, 1, 1, 429},
		"POST of a key":         {"POST", strings.NewReader("body"), []string{"Idempotency-Key: 1"}, Options{Retries: 2}, 1, 2, 200},
		"POST as the caller is": {"POST", strings.NewReader("body"), nil, Options{Retries: 2, Repeatable: func(*http.Request) bool { return true }}, 1, 2, 200},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				var last *body
				began := time.Now()
				c.options.Base = &base{answer: func(r *http.Request) (*http.Response, error) {
					if c.content != nil {
						content, err := io.ReadAll(r.Body)
						assert.NoError(t, err)
						assert.Equal(t, "body", string(content))
					}
					if last != nil {
						assert.Equal(t, int64(1), last.closed.Load(), "the body of the refusal must be closed before the request is repeated")
						assert.GreaterOrEqual(t, time.Since(began), time.Duration(sent)*5*time.Second)
					}
					if sent++; sent <= c.refuse {
						resp := response(429, strings.NewReader("slow down"), "Retry-After: 5")
						last = resp.Body.(*body)
						return resp, nil
					}
					return response(200, strings.NewReader("served")), nil
				}}
				rt := transport(t, Config{}, c.options)
				r := request(t, c.method, c.content, c.fields...)
				before := *r
				resp, err := rt.RoundTrip(r)
				require.NoError(t, err)
				assert.Equal(t, c.status, resp.StatusCode)
				assert.Equal(t, c.sent, sent)
				assert.Equal(t, uint64(c.sent-1), rt.line.Stats().Retries)
				content := must.Get(io.ReadAll(resp.Body))
				assert.NoError(t, resp.Body.Close())
				assert.Equal(t, map[int]string{200: "served", 429: "slow down"}[c.status], string(content))
				assert.Equal(t, before.Header, r.Header)
				assert.Equal(t, before.Body, r.Body, "the request must not be changed")
			})
		})
	}
}

// Promise: A refusal is returned if its turn is too late.
func TestRefusalIsReturnedIfItsTurnIsTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := transport(t, Config{Patience: time.Second}, Options{Retries: 3, Base: &base{answer: func(*http.Request) (*http.Response, error) {
			return response(429, strings.NewReader("slow down"), "Retry-After: 5"), nil
		}}})
		began := time.Now()
		resp, err := rt.RoundTrip(request(t, "GET", nil))
		require.NoError(t, err)
		assert.Equal(t, 429, resp.StatusCode)
		content := must.Get(io.ReadAll(resp.Body))
		assert.Equal(t, "slow down", string(content))
		assert.NoError(t, resp.Body.Close())
		assert.Zero(t, time.Since(began))
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// drip is a body of some bytes, a second apart.
type drip struct{ left int }

func (d *drip) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	if d.left--; d.left < 0 {
		return 0, io.EOF
	}
	p[0] = 'x'
	return 1, nil
}

// It has all of its body.
func TestSlowRefusalIsReturned(t *testing.T) {
	for name, c := range map[string]struct{ context, most time.Duration }{
		"a second":    {time.Hour, time.Second},
		"its context": {10 * time.Millisecond, 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refusal := response(429, &drip{left: 100}, "Retry-After: 5")
				sent := refusal.Body.(*body)
				rt := transport(t, Config{}, Options{Retries: 1, Base: &base{answer: func(*http.Request) (*http.Response, error) { return refusal, nil }}})
				ctx, cancel := context.WithTimeout(t.Context(), c.context)
				defer cancel()
				began := time.Now()
				resp, err := rt.RoundTrip(request(t, "GET", nil).WithContext(ctx))
				require.NoError(t, err)
				assert.Equal(t, c.most, time.Since(began))
				assert.Equal(t, 429, resp.StatusCode)
				content := must.Get(io.ReadAll(resp.Body))
				assert.Len(t, content, 100)
				assert.NoError(t, resp.Body.Close())
				assert.Equal(t, int64(1), sent.closed.Load())
				assert.Zero(t, rt.line.Stats().Retries)
			})
		})
	}
}

// It is not read for a retry and reaches the caller whole; a failing body keeps its error.
func TestLongRefusalIsReturned(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		content io.Reader
		length  int
		err     error
	}{
		"long":   {strings.NewReader(strings.Repeat("x", 192<<10)), 192 << 10, nil},
		"broken": {io.MultiReader(strings.NewReader("xx"), failing{broken}), 2, broken},
	} {
		t.Run(name, func(t *testing.T) {
			var sent *http.Response
			rt := transport(t, Config{}, Options{Retries: 3, Base: &base{answer: func(*http.Request) (*http.Response, error) {
				sent = response(429, c.content, "Retry-After: 5")
				return sent, nil
			}}})
			resp, err := rt.RoundTrip(request(t, "GET", nil))
			require.NoError(t, err)
			content, err := io.ReadAll(resp.Body)
			assert.ErrorIs(t, err, c.err)
			assert.Len(t, content, c.length)
			assert.Zero(t, rt.line.Stats().Retries)
			assert.NoError(t, resp.Body.Close())
		})
	}
}

// One whose body cannot be read again also gives its turn back.
//
// Promise: A `Transport` closes unsent requests' bodies.
func TestBodyIsClosedWithoutATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := transport(t, Config{Policy: policy.Must(policy.Funnel(1, 1, time.Minute))}, Options{Retries: 1, Base: &base{answer: func(*http.Request) (*http.Response, error) {
			return response(429, http.NoBody, "Retry-After: 5"), nil
		}}})
		r := request(t, "PUT", strings.NewReader("x"))
		r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
		resp, err := rt.RoundTrip(r)
		require.NoError(t, err)
		assert.Equal(t, 429, resp.StatusCode)
		assert.NoError(t, resp.Body.Close())
		assert.Equal(t, int64(1), rt.line.Engine().Peek("there", 0).Remaining)

		turn, err := rt.line.Wait(t.Context(), "there")
		require.NoError(t, err)
		turn.Obey(Answer{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		content := &body{Reader: strings.NewReader("x")}
		r = request(t, "PUT", content).WithContext(ctx)
		_, err = rt.RoundTrip(r) //nolint:bodyclose // there is none
		require.ErrorIs(t, err, engine.ErrDeadline)
		assert.Equal(t, int64(1), content.closed.Load())
	})
}

func TestBaseIsPassedThrough(t *testing.T) {
	broken := errors.New("broken")
	b := &base{answer: func(*http.Request) (*http.Response, error) { return nil, broken }}
	rt := transport(t, Config{}, Options{Base: b})
	_, err := rt.RoundTrip(request(t, "GET", nil)) //nolint:bodyclose // there is none
	assert.Equal(t, broken, err)
	(&http.Client{Transport: rt}).CloseIdleConnections()
	assert.Equal(t, 1, b.closed)
	rt.options.Base = struct{ http.RoundTripper }{b}
	rt.CloseIdleConnections()
	assert.Equal(t, 1, b.closed)
}

func TestHostKeyDropsTheDefaultPort(t *testing.T) {
	for url, want := range map[string]string{
		"http://Example.COM/a":       "example.com",
		"http://example.com:80/":     "example.com",
		"https://example.com:443/":   "example.com",
		"https://example.com:80/":    "example.com:80",
		"http://example.com:8080/":   "example.com:8080",
		"http://[::1]:80/":           "[::1]",
		"https://user:pw@a.example/": "a.example",
	} {
		r := must.Get(http.NewRequest(http.MethodGet, url, nil))
		assert.Equal(t, want, ByHost(r), url)
	}
}

func TestNewTransportNamesTheBadField(t *testing.T) {
	l := newLine(t, Config{})
	for field, err := range map[string]error{
		"line":            second(NewTransport(nil, ByHost, Options{})),
		"key":             second(NewTransport(l, nil, Options{})),
		"options.Retries": second(NewTransport(l, ByHost, Options{Retries: -1})),
		"options.Used":    second(NewTransport(l, ByHost, Options{Used: [][]string{nil, {"total_tokens"}}})),
	} {
		var fault *policy.FieldError
		if assert.ErrorAs(t, err, &fault, field) {
			assert.Equal(t, field, fault.Field)
		}
	}
}

func second(_ *Transport[string], err error) error { return err }
