package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/redisd"
)

// Package engine tries kills under load.
//
// Promise: A killed server forgets only unsaved state.
func TestKillForgetsOnlyUnsavedStateWithProcesses(t *testing.T) {
	needs(t, "a server that is killed")
	state, dir := filepath.Join(t.TempDir(), "state"), directory(t, "limits.yaml", limitsFile)
	s := start(t, "-state", state, "-save-every", "20ms", dir)
	c := s.client(t, redis.Options{Protocol: 2})
	for range 3 {
		take(t, c, "ann")
	}
	file := filepath.Join(state, "funnel_1%2C_1%2Fs.state")
	before, _ := os.Stat(file)
	for range 2 { // saves end after the calls, so the second began after them
		s.until(t, func() bool {
			now, err := os.Stat(file)
			if err != nil || before != nil && os.SameFile(before, now) {
				return false
			}
			before = now
			return true
		})
	}
	s.Kill()
	s = start(t, "-state", state, dir)
	assert.EqualValues(t, 97, remaining(t, s.client(t, redis.Options{Protocol: 2}), "ann", "api"))
}

func openRedis(t *testing.T) *redisd.Server {
	t.Helper()
	r, err := redisd.Open(redisd.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	return r
}

// Promise: A limit that Redis cannot keep is refused by name or line.
func TestLimitThatRedisCannotKeep(t *testing.T) {
	dir := directory(t, "limits.yaml", "limits:\n  plan: window 5/month in UTC\n")
	err := run(t.Context(), []string{"-admin", "none", "-redis", "redis://" + openRedis(t).Addr(), dir}, noEnv, io.Discard, io.Discard)
	assert.ErrorContains(t, err, "limits.yaml:2: limits.plan: ")
	assert.ErrorContains(t, err, "want a Funnel, Queue")
}

// Redis knows them by the user of the URL. In an outage operators still see all. Packages fleet and
// families try more ways to die.
//
// Promise: Servers of one Redis keep limits to the unit, even if one dies.
func TestServersOfOneRedisWithProcesses(t *testing.T) {
	needs(t, "a server that is killed under load")
	r := openRedis(t)
	database := redis.NewClient(&redis.Options{Addr: r.Addr()})
	t.Cleanup(func() { _ = database.Close() })
	require.NoError(t, database.Do(t.Context(), "ACL", "SETUSER", "rald", "on", ">secret", "~*", "&*", "+@all").Err())
	dir, operators := directory(t, "limits.yaml", limitsFile, "envoy/shop.yaml", rulesOf(60)), freeAddr(t)
	open := func(admin string) (*server, *redis.Client) {
		s := start(t, "-admin", admin, "-redis", "redis://rald:secret@"+r.Addr(), "-redis-budget", "1m", "-fleet-servers", "2", "-envoy-listen", freeAddr(t), dir)
		return s, s.client(t, redis.Options{Protocol: 2})
	}
	first, one := open(operators)
	second, two := open("none")
	var admitted, calls atomic.Int64
	go func() { // the last call may count without an answer
		for {
			state, err := two.Do(context.Background(), "RAL.TAKE", "ann", "api").Slice()
			if err != nil {
				return
			}
			admitted.Add(state[1].(int64))
			calls.Add(1)
		}
	}()
	for range 50 {
		took, _ := take(t, one, "ann")
		admitted.Add(took)
	}
	second.until(t, func() bool { return calls.Load() > 0 })
	second.Kill()
	for took := int64(1); took > 0; admitted.Add(took) {
		took, _ = take(t, one, "ann")
	}
	assert.LessOrEqual(t, admitted.Load(), int64(100))
	assert.GreaterOrEqual(t, admitted.Load()+1, int64(100))
	assert.Contains(t, database.ClientList(t.Context()).Val(), "user=rald")

	r.Kill()
	for range 20 {
		take(t, one, "bob")
	}
	first.until(t, func() bool { return strings.Contains(one.Info(t.Context()).Val(), "backend_failing:1") })
	for path, want := range map[string][]string{
		"/healthz":          {"ok\nrald:funnel: ral: Redis could not be asked"},
		"/metrics":          {`limit="rald:funnel"`, `limit="rald.envoy:window/365d_aligned"`},
		"/debug/ral/limits": {`"name":"api"`},
	} {
		status, text := fetch(t, http.DefaultClient, "http://"+operators+path)
		assert.Equal(t, http.StatusOK, status)
		for _, part := range want {
			assert.Contains(t, text, part)
		}
	}
	first.untilLogs(t, "outage began")
	first.end(t)
	assert.Contains(t, first.log.String(), "rald ends")
	assert.NotContains(t, first.log.String(), "secret")
}
