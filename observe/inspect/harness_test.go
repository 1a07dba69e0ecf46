package inspect_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/adapter/pagejson"
	"github.com/ral-limiter/ral/internal/testkit/logbuffer"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/observe/inspect"
	"github.com/ral-limiter/ral/policy"
)

// hourly has 10 units, and a unit an hour comes back.
var hourly = policy.Must(policy.Funnel(10, 1, time.Hour))

const anna, bert = "anna-0123456789abcdef", "bert-0123456789abcdef"

func newEngine[K comparable](t testing.TB, config engine.Config, more ...engine.Option[K]) *engine.Engine[K] {
	t.Helper()
	if config.Policy == nil {
		config.Policy = hourly
	}
	e := must.Get(engine.New(config, more...))
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func newHandler(t testing.TB, config inspect.Config, limits ...inspect.AnyLimit) *inspect.Handler {
	t.Helper()
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	config.AcceptNone = len(limits) == 0
	h := must.Get(inspect.New(config, limits...))
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h
}

type client struct {
	t testing.TB
	// url ends with a slash.
	url   string
	token string
}

func serve(t testing.TB, h *inspect.Handler) *client {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/debug/ral/", h)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return &client{t: t, url: s.URL + "/debug/ral/"}
}

// operated returns a client with a token of a handler that shows keys, and the handler's log.
func operated(t testing.TB, limits ...inspect.AnyLimit) (*client, *logbuffer.Buffer) {
	t.Helper()
	log := &logbuffer.Buffer{}
	c := serve(t, newHandler(t, inspect.Config{ShowKeys: true, Tokens: map[string]string{"anna": anna}, Logger: log.Logger()}, limits...))
	c.token = anna
	return c, log
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) fault(t testing.TB) string {
	t.Helper()
	var f pagejson.Fault
	require.NoError(t, json.Unmarshal(a.body, &f), "%s", a.body)
	return f.Error
}

// send sends a request with pairs of a name and a value as fields; Host is the host.
func (c *client) send(method, path, body string, fields ...string) answer {
	c.t.Helper()
	r := must.Get(http.NewRequest(method, c.url+path, strings.NewReader(body)))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == "Host" {
			r.Host = fields[i+1]
		} else {
			r.Header.Set(fields[i], fields[i+1])
		}
	}
	resp := must.Get(http.DefaultTransport.RoundTrip(r))
	defer resp.Body.Close()
	return answer{resp.StatusCode, resp.Header, must.Get(io.ReadAll(resp.Body))}
}

// get asks for JSON, again while a list is pending.
func get[T any](c *client, path string) (v T) {
	c.t.Helper()
	for {
		a := c.send(http.MethodGet, path, "")
		require.Equal(c.t, http.StatusOK, a.status, "%s: %s", path, a.body)
		v = *new(T)
		require.NoError(c.t, json.Unmarshal(a.body, &v))
		if list, ok := any(v).(pagejson.List); !ok || !list.Pending {
			return v
		}
		time.Sleep(10 * time.Millisecond) // wall: between two requests, of any number
	}
}

func (c *client) post(path string, body any) answer {
	c.t.Helper()
	return c.send(http.MethodPost, path, string(must.Get(json.Marshal(body))))
}

func (c *client) explains(path string, body any) (x pagejson.Explanation) {
	c.t.Helper()
	a := c.post(path, body)
	require.Equal(c.t, http.StatusOK, a.status, "%s", a.body)
	require.NoError(c.t, json.Unmarshal(a.body, &x))
	return x
}

func key(limit, key string) pagejson.KeyRequest { return pagejson.KeyRequest{Limit: limit, Key: key} }

func charge(limit, of string, n int64) pagejson.ChangeRequest {
	return pagejson.ChangeRequest{KeyRequest: key(limit, of), Do: "charge", Units: n}
}

func assertFault(t testing.TB, a answer, status int, says string) {
	t.Helper()
	assert.Equal(t, status, a.status, "%s", a.body)
	assert.Contains(t, a.fault(t), says)
}
