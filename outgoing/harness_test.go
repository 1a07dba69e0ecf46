package outgoing

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/policy"
)

func newLine(t testing.TB, config Config) *Line[string] {
	t.Helper()
	l, err := New[string](config)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	return l
}

// away sends requests to a handler, each with a random travel time.
type away struct {
	handler http.Handler
	// rtt is the longest round trip.
	rtt time.Duration
	// slow is the mean time from the decision to the answer, beside the round trip.
	slow time.Duration

	mu    sync.Mutex
	began time.Time
	// answered is set once the first answer is back.
	answered bool
	sent     int
	admitted []time.Duration
	// refused counts the refused requests sent after the first answer.
	refused int
	// early counts the refused requests sent before it.
	early int
}

func (a *away) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	if a.sent++; a.sent == 1 {
		a.began = time.Now()
	}
	late := a.answered
	a.mu.Unlock()
	pause := func(least, more time.Duration) { time.Sleep(least + rand.N(more+1)) }
	pause(0, a.rtt/2)
	w := httptest.NewRecorder()
	in := httptest.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, r.URL.Path, nil)
	now := time.Now()
	a.handler.ServeHTTP(w, in)
	pause(a.slow/2, a.slow+a.rtt/2)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answered = true
	switch {
	case w.Code == http.StatusOK:
		a.admitted = append(a.admitted, now.Sub(a.began))
	case late:
		a.refused++
	default:
		a.early++
	}
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// crowd sends requests from 100 goroutines of each process.
func crowd(t *testing.T, during time.Duration, processes ...http.RoundTripper) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(during, cancel).Stop()
	var all sync.WaitGroup
	for i := range 100 * len(processes) {
		all.Go(func() {
			for ctx.Err() == nil {
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://there/", nil)
				resp, err := processes[i/100].RoundTrip(r)
				if err != nil {
					assert.Error(t, ctx.Err(), err)
					return
				}
				_ = resp.Body.Close()
			}
		})
	}
	all.Wait()
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })

// server returns a handler with the given limits.
func server(t testing.TB, headers httplimit.HeaderSet, limits ...policy.Policy) http.Handler {
	t.Helper()
	var all []httplimit.AnyLimit
	for i, p := range limits {
		e, err := engine.New[string](engine.Config{Policy: p})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, e.Close()) })
		all = append(all, httplimit.Limit[string]{Name: strconv.Itoa(i), Limiter: e, Key: func(*http.Request) string { return "all" }})
	}
	m, err := httplimit.NewAll(httplimit.Options{Headers: headers}, all...)
	require.NoError(t, err)
	return m.Handler(ok)
}

func headerOf(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		h.Add(name, value[1:])
	}
	return h
}
