package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ral-limiter/ral/cmd/rald/envoyserver"
	"github.com/ral-limiter/ral/cmd/rald/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/checkserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/configdir"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// admitted makes a call, and returns the taken and remaining units.
func admitted(t *testing.T, c *redis.Client) (took, remaining int64) {
	t.Helper()
	state, err := c.Do(context.Background(), "RAL.TAKE", "ann", "api").Slice()
	if !assert.NoError(t, err) {
		return 0, 0
	}
	return state[1].(int64), state[5].(int64) // allowed and remaining
}

// By SIGHUP and by themselves, exactly the last limit. A bad file changes nothing. A restart with
// other figures forgets nothing.
//
// Promise: SIGHUP reads changed files at once and loses no unit under load.
func TestReloadUnderLoad(t *testing.T) {
	dir, state := t.TempDir(), filepath.Join(t.TempDir(), "state")
	write := func(limit string) {
		// Like an editor, so that no half of a file is read.
		file := filepath.Join(dir, "limits.yaml")
		require.NoError(t, os.WriteFile(file+".new", []byte("limits:\n  api: "+limit+"\n"), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	write("funnel 100, 1/d")
	s := start(t, "-state", state, dir)
	c := redis.NewClient(patient(redis.Options{Addr: s.addr, Protocol: 2}))
	var total atomic.Int64
	ctx, stop := context.WithCancel(context.Background())
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				took, _ := admitted(t, c)
				total.Add(took)
			}
		})
	}
	for i, change := range []struct {
		limit string
		room  int64
	}{{"funnel 150, 1/d", 150}, {"funnel 200, 1/d", 200}, {"funnel 300, 2/d", 300}} {
		write(change.limit)
		if i != 1 {
			require.NoError(t, s.Signal(syscall.SIGHUP))
		}
		s.until(t, func() bool {
			state, err := c.Do(ctx, "RAL.PEEK", "ann", "api").Slice()
			require.NoError(t, err)
			return state[3] == change.room
		})
	}
	write("funnel")
	s.untilLogs(t, "the configuration stays as it was")
	assert.Contains(t, s.log.String(), filepath.Join(dir, "limits.yaml")+":2: limits.api: ")
	stop()
	callers.Wait()
	for took := int64(1); took > 0; total.Add(took) {
		took, _ = admitted(t, c)
	}
	assert.EqualValues(t, 300, total.Load())
	require.NoError(t, c.Close())
	write("funnel 400, 1/d")
	s.end(t)

	s = start(t, "-state", state, dir)
	c = redis.NewClient(patient(redis.Options{Addr: s.addr, Protocol: 2}))
	defer c.Close()
	took, remaining := admitted(t, c)
	assert.EqualValues(t, 1, took)
	assert.EqualValues(t, 99, remaining)
}

// reloaderOf opens the doors of a directory without listeners. checks makes a call of the HTTP
// check and returns the remaining units, envoy the requests of its rule.
func reloaderOf(t *testing.T, dir string) (r *reloader, checks func() string, envoy func() int) {
	t.Helper()
	r = &reloader{dirs: configdir.Under(dir, ""), log: slog.New(slog.DiscardHandler)}
	c, err := r.dirs.Read()
	require.NoError(t, err)
	keep, counts := openFamilies(t), openFamilies(t)
	r.limits, err = limitsOf("", keep, c.Limits, r.log)
	require.NoError(t, err)
	r.check, err = checkserver.New(checkserver.Config{Families: keep, Limits: r.limits, Log: r.log}, c.Checks)
	require.NoError(t, err)
	r.envoy, err = envoyserver.New(envoyserver.Config{Families: counts}, c.Rules)
	require.NoError(t, err)
	checks = func() string {
		request := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/check", nil)
		request.RemoteAddr = "127.0.0.1:1"
		for _, field := range []string{"Method: GET", "Uri: /", "For: 192.0.2.1", "Host: example.org"} {
			name, value, _ := strings.Cut(field, ": ")
			request.Header.Set("X-Forwarded-"+name, value)
		}
		w := httptest.NewRecorder()
		r.check.ServeHTTP(w, request)
		_, remaining, _ := strings.Cut(w.Header().Get("RateLimit"), "r=")
		remaining, _, _ = strings.Cut(remaining, ";")
		return remaining
	}
	envoy = func() (requests int) {
		for rule := range r.envoy.Counts() {
			requests += int(rule.Requests)
		}
		return requests
	}
	return r, checks, envoy
}

func openFamilies(t *testing.T) *families.Families {
	t.Helper()
	keep, err := families.New(families.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, keep.Close()) })
	return keep
}

// All doors change together or not at all.
func TestReloadOfOneDirectory(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	write("limits.yaml", "limits:\n  api: window 10/365d\n")
	write("check.yaml", "proxy: caddy\nrules:\n  - {match: /, limit: api, key: everybody}\n")
	write("envoy/shop.yaml", rulesOf(2))
	r, checks, envoy := reloaderOf(t, dir)
	assert.Equal(t, []int{10, 2}, []int{int(r.limits.All()["api"].Limit()), envoy()})
	assert.Equal(t, "9", checks())

	write("limits.yaml", "limits:\n  api: window 20/365d\n")
	write("envoy/shop.yaml", "domain: [\n")
	r.reload()
	assert.EqualValues(t, 10, r.limits.All()["api"].Limit())
	assert.Equal(t, "8", checks())
	assert.True(t, r.reads().Failing)

	write("envoy/shop.yaml", rulesOf(3))
	r.reload()
	assert.Equal(t, []int{20, 3}, []int{int(r.limits.All()["api"].Limit()), envoy()})
	assert.Equal(t, "17", checks())

	write("limits.yaml", "limits:\n  api: window 30/365d\n")
	write("envoy/shop.yaml", rulesOf(4))
	require.NoError(t, os.Remove(filepath.Join(dir, "check.yaml")))
	r.reload()
	assert.Equal(t, []int{20, 3}, []int{int(r.limits.All()["api"].Limit()), envoy()})
	assert.Equal(t, "16", checks(), "a door that is open keeps its rules")

	write("check.yaml", "proxy: caddy\nrules:\n  - {match: /, limit: api, key: everybody}\n")
	r.reload()
	assert.Equal(t, "25", checks())
	reads := r.reads()
	assert.Equal(t, []uint64{2, 2}, []uint64{reads.Good, reads.Bad})
	assert.False(t, reads.Failing)

	r.check = nil
	write("limits.yaml", "limits:\n  api: window 40/365d\n")
	r.reload()
	assert.EqualValues(t, 40, r.limits.All()["api"].Limit(), "a file of a door that is not open is told of")
}
