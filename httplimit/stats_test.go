package httplimit

import (
	"bytes"
	"encoding/json"
	"expvar"
	"log/slog"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func TestVarPublishesTheStats(t *testing.T) {
	limiter := open[netip.Addr](t, policy.Must(policy.FixedWindow(2, time.Hour)))
	m := Must(New(limiter, ByAddr, Options{}))
	for range 5 {
		ask(m.Handler(done), from(alice))
	}
	must.Await(t, func() bool { return limiter.Stats().QueueDepth == 0 }, "the key is filed")
	var v expvar.Var = m.Var()
	var got Stats
	require.NoError(t, json.Unmarshal([]byte(v.String()), &got))
	assert.Equal(t, m.Stats(), got)
	assert.Equal(t, uint64(2), got.Admitted)
	assert.Equal(t, uint64(3), got.OverLimit)
	assert.Equal(t, uint64(3), got.Limits["default"].Refused)
	assert.Equal(t, 1, got.Limits["default"].Keys)
}

// expvar would register itself on http.DefaultServeMux of every program that imports this.
func TestExpvarIsNotImported(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	deps := strings.Fields(string(out))
	assert.Contains(t, deps, "net/http")
	assert.NotContains(t, deps, "expvar")
}

func TestRefuseHookWritesTheRefusal(t *testing.T) {
	m := Must(New(open[netip.Addr](t, policy.Must(policy.FixedWindow(1, time.Second))), ByAddr, Options{
		Refuse: func(w http.ResponseWriter, _ *http.Request, v limits.Verdict) {
			assert.NotEmpty(t, w.Header().Get("Retry-After"))
			assert.NotEmpty(t, w.Header().Get("RateLimit"))
			http.Error(w, v.Limit+" says no", Status(v.Reason))
		},
	}))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public")
		w.Header().Set("ETag", "another")
		m.Handler(done).ServeHTTP(w, r)
	})
	assert.Equal(t, "another", ask(h, from(alice)).Header().Get("ETag"))
	w := ask(h, from(alice))
	assert.Equal(t, 429, w.Code)
	assert.Equal(t, "default says no\n", w.Body.String())
	assert.Equal(t, []string{"no-store", "nosniff", ""}, []string{
		w.Header().Get("Cache-Control"), w.Header().Get("X-Content-Type-Options"), w.Header().Get("ETag"),
	})
}

// Left-out lines are counted.
func TestLogBoundsLinesAndHidesKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		m := Must(New(open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, time.Hour))), ByAddr, Options{
			Logger: slog.New(slog.NewJSONHandler(&text, nil)),
		}))
		h := m.Handler(done)
		ask(h, from(alice))
		assert.Zero(t, text.Len(), "an admitted request is not logged")
		long := from(alice)
		long.URL.Path = "/" + strings.Repeat("x", 10000)
		for range 1000 {
			ask(h, long)
		}
		time.Sleep(time.Second)
		ask(h, from(alice))
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		require.Len(t, lines, 11)
		var first, last map[string]any
		require.NoError(t, json.Unmarshal([]byte(lines[0]), &first))
		require.NoError(t, json.Unmarshal([]byte(lines[10]), &last))
		assert.Len(t, first["path"], 256)
		delete(first, "path")
		assert.Equal(t, map[string]any{
			"time": first["time"], "level": "INFO", "msg": "rate limit: over limit", "limit": "default", "method": "GET",
			"client": "192.0.2.1", "key": "37fcff24bf62", "remote": alice, "cost": 1.0, "retry_after": float64(time.Hour), "shadow": false, "left_out": 0.0,
		}, first)
		assert.Equal(t, 990.0, last["left_out"])
	})
}

// Promise: The log tells keys apart without revealing them.
func TestLogTellsClientsApart(t *testing.T) {
	var text bytes.Buffer
	limiter := open[string](t, policy.Must(policy.FixedWindow(1, time.Hour)))
	h := Must(NewAll(Options{
		Logger:     slog.New(slog.NewJSONHandler(&text, nil)),
		ClientAddr: clientAddr(t, AddrConfig{Header: XForwardedFor, Trusted: prefixList("10.0.0.0/8")}),
	}, Limit[string]{Name: "a", Limiter: limiter, Key: ByHeader("X-Other"), WhenNoKey: limits.Skip}, Limit[string]{Name: "b", Limiter: limiter, Key: ByHeader("X-Api-Key")})).Handler(done)
	ask(h, from("10.0.0.1:1", "X-Forwarded-For", "192.0.2.7", "X-Api-Key", "secret"))
	ask(h, from("10.0.0.1:1", "X-Forwarded-For", "192.0.2.7", "X-Api-Key", "secret"))
	ask(h, from("10.0.0.1:1", "X-Forwarded-For", "garbage", "X-Api-Key", "another"))
	ask(h, from("10.0.0.1:1", "X-Forwarded-For", "garbage", "X-Api-Key", "another"))
	ask(h, from("10.0.0.1:1", "X-Forwarded-For", "192.0.2.8"))
	assert.NotContains(t, text.String(), "secret")
	var got [][4]any
	for line := range strings.Lines(text.String()) {
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &fields))
		got = append(got, [4]any{fields["msg"], fields["limit"], fields["client"], fields["key"]})
	}
	assert.Equal(t, [][4]any{
		{"rate limit: over limit", "b", "192.0.2.7", "2bb80d537b1d"},
		{"rate limit: over limit", "b", "", "ae448ac86c4e"},
		{"rate limit: keyless", "b", "192.0.2.8", ""},
	}, got)
}

func TestLogBelowTheLevelCostsNothing(t *testing.T) {
	var text bytes.Buffer
	var level slog.LevelVar
	level.Set(slog.LevelWarn)
	m := Must(New(open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, time.Hour))), ByAddr, Options{
		Logger: slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: &level})),
	}))
	for range 1000 {
		ask(m.Handler(done), from(alice))
	}
	assert.Zero(t, text.Len())
	level.Set(slog.LevelInfo)
	ask(m.Handler(done), from(alice))
	assert.Contains(t, text.String(), "left_out=0", "lines below the level are not of those that may be written")
}
