package fleet

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/observe/eventlog"
	"github.com/ral-limiter/ral/observe/inspect"
)

// Redis fails in all ways that name a key, under every verb. Errors, answers, Health, events, logs and
// the page name the key by its hash alone, as httplimit does.
// Promise: No log, event, error or page of a fleet has a key.
func TestNoKeyIsTold(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	config := func(names ...string) (all [][]string) {
		for _, name := range names {
			all = append(all, append([]string{"CONFIG", "SET"}, strings.Fields(name)...))
		}
		return all
	}
	for _, fault := range []struct {
		name        string
		begin, ends [][]string
	}{
		{"foreign values", [][]string{{"SET", "WORD", "abc"}, {"SET", "BLOCK", "abc"}}, [][]string{{"DEL", "WORD", "BLOCK"}}},
		{"other types", [][]string{{"RPUSH", "WORD", "abc"}, {"RPUSH", "BLOCK", "abc"}}, [][]string{{"DEL", "WORD", "BLOCK"}}},
		{"out of memory", config("maxmemory 1"), config("maxmemory 0")},
		{"too few replicas", config("min-replicas-to-write 3"), config("min-replicas-to-write 0")},
		{"not permitted", [][]string{{"ACL", "SETUSER", "default", "resetkeys", "~ral:*:servers*", "~ral:*:limits*"}}, [][]string{{"ACL", "SETUSER", "default", "allkeys"}}},
		{"read-only", [][]string{{"REPLICAOF", "localhost", "1"}}, [][]string{{"REPLICAOF", "NO", "ONE"}}},
	} {
		for _, mode := range []Mode{Exact, Leased} {
			t.Run(fmt.Sprintf("%s %d", fault.name, mode), func(t *testing.T) {
				var answers, log bytes.Buffer
				logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
				c := at(redis.Addr(), funnel(1000, 1, time.Hour))
				c.Mode, c.OnEvent = mode, LogEvents(c.Name, eventlog.New(logger))
				l := open(t, c)
				middleware := httplimit.Must(httplimit.New(l, func(*http.Request) string { return canary }, httplimit.Options{Logger: logger}))
				page := must.Get(inspect.New(inspect.Config{}, inspect.Limit[string]{Name: c.Name, Limiter: l}))
				defer page.Close()

				word, block := l.own.Load().limit.Names(store.Tail(canary))
				do := func(commands [][]string) {
					for _, command := range commands {
						command = slices.Clone(command)
						for i := range command {
							command[i] = strings.NewReplacer("WORD", word, "BLOCK", block).Replace(command[i])
						}
						redis.Do(t, command...)
					}
				}
				do(fault.begin)
				tell := func(err error) { fmt.Fprintln(&answers, err, l.Health()) }
				// The loop goes on until a lease is asked for.
				for range 10 {
					a, err := l.Take(t.Context(), canary, 1)
					tell(err)
					tell(a.Err())
					a, err = l.Admit(t.Context(), canary, 1)
					tell(err)
					tell(a.Err())
					a, err = l.Peek(t.Context(), canary, 1)
					tell(err)
					tell(a.Err())
					out, err := TakeAll(t.Context(), l.Claim("another", 1), l.Claim(canary, 1))
					tell(err)
					for _, a := range out.Answers {
						tell(a.Err())
					}
				}
				r, err := l.Acquire(t.Context(), canary, 1, 0)
				tell(err)
				tell(r.Cancel(t.Context()))
				_, err = l.Refund(t.Context(), canary, 1)
				tell(err)
				tell(l.Charge(t.Context(), canary, 1))
				tell(l.Block(t.Context(), canary, time.Millisecond))
				_, err = l.Explain(t.Context(), canary)
				tell(err)
				middleware.Handler(nothing).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
				shown := httptest.NewRecorder()
				page.ServeHTTP(shown, httptest.NewRequest(http.MethodGet, "/debug/ral/limits", nil))
				require.Equal(t, http.StatusOK, shown.Code)

				do(fault.ends)
				eventually(t, func() bool { return l.Health() == nil }, "it is well")
				require.NoError(t, l.Close())
				all := answers.String() + log.String() + shown.Body.String()
				require.NotContains(t, all, canary)
				require.Contains(t, all, "key "+store.Fingerprint(store.Tail(canary)))
			})
		}
	}
}

// Promise: A key in an error has the hash that `httplimit` logs.
func TestFingerprintIsHttplimits(t *testing.T) {
	for _, key := range []string{"a", "#a", "{a", "a}b", strings.Repeat("x", 200)} {
		var log bytes.Buffer
		limiter := must.Get(engine.New[string](engine.Config{Policy: funnel(1, 1, time.Hour)}))
		h := httplimit.Must(httplimit.New(limiter, func(*http.Request) string { return key }, httplimit.Options{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})).Handler(nothing)
		for range 2 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}
		require.NoError(t, limiter.Close())
		require.Contains(t, log.String(), "key="+store.Fingerprint(store.Tail(key)))
	}
}
