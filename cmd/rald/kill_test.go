package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/ral-limiter/ral/internal/testkit/redisd"
)

// A save that was seen to end after a call has its units.
//
// Promise: A killed server forgets only unsaved state.
func TestKillForgetsAtMostTheUnsavedUnitsWithProcesses(t *testing.T) {
	needs(t, "a server that is killed under load")
	state := filepath.Join(t.TempDir(), "state")
	throttle := func(c *redis.Client, n int) (left int64, err error) {
		got, err := c.Do(context.Background(), "CL.THROTTLE", "key", 1_000_000, 1, 60, n).Int64Slice()
		if err != nil {
			return 0, err
		}
		return got[2], nil
	}
	s := start(t, "-state", state, "-save-every", "20ms")
	c := s.client(t, redis.Options{})
	left, err := throttle(c, 3000)
	require.NoError(t, err)
	require.EqualValues(t, 1_000_001-3000, left)
	file := filepath.Join(state, "funnel_1%2C_1%2Fs.state")
	before, _ := os.Stat(file)
	for range 2 { // saves end after the call, so the second began after it
		s.until(t, func() bool {
			now, err := os.Stat(file)
			if err != nil || before != nil && os.SameFile(before, now) {
				return false
			}
			before = now
			return true
		})
	}
	var callers sync.WaitGroup
	var answered atomic.Int64
	for range 4 {
		callers.Go(func() {
			for {
				if _, err := throttle(c, 1); err != nil {
					return
				}
				answered.Add(1)
			}
		})
	}
	s.until(t, func() bool { return answered.Load() >= 100 })
	s.Kill()
	callers.Wait()

	s = start(t, "-state", state)
	left, err = throttle(s.client(t, redis.Options{}), 0)
	require.NoError(t, err)
	const drained = 10 // far more than drains in this time at a unit a minute
	assert.GreaterOrEqual(t, 1_000_001-left, int64(3000-drained))
	assert.LessOrEqual(t, 1_000_001-left, 3000+answered.Load()+4, "units that were never taken")
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

// At both doors. In an outage they answer by their shares. Redis knows them by the user of the URL.
//
// Promise: Servers of one Redis keep limits to the unit, even if one dies.
func TestServersOfOneRedisWithProcesses(t *testing.T) {
	needs(t, "a server that is killed under load")
	r := openRedis(t)
	database := redis.NewClient(&redis.Options{Addr: r.Addr()})
	t.Cleanup(func() { _ = database.Close() })
	require.NoError(t, database.Do(t.Context(), "ACL", "SETUSER", "rald", "on", ">secret", "~*", "&*", "+@all").Err())
	dir, operators := directory(t, "limits.yaml", limitsFile, "envoy/shop.yaml", rulesOf(60)), freeAddr(t)
	open := func(admin string) (*server, *redis.Client, *grpc.ClientConn) {
		addr := freeAddr(t)
		s := start(t, "-admin", admin, "-redis", "redis://rald:secret@"+r.Addr(), "-redis-budget", "1m", "-fleet-servers", "2", "-envoy-listen", addr, dir)
		return s, s.client(t, redis.Options{Protocol: 2}), envoyAt(t, addr)
	}
	first, one, service := open(operators)
	second, two, other := open("none")
	var admitted, hits, lost atomic.Int64
	var group sync.WaitGroup
	for range 2 {
		for _, of := range []struct {
			commands *redis.Client
			envoy    *grpc.ClientConn
		}{{one, service}, {two, other}} {
			group.Go(func() {
				for range 20 {
					took, _ := take(t, of.commands, "ann")
					admitted.Add(took)
					if ask(t, of.envoy, "ann").OverallCode == pb.RateLimitResponse_OK {
						hits.Add(1)
					}
				}
			})
		}
	}
	group.Wait()
	go func() { // the last call may count without an answer
		for two.Do(context.Background(), "RAL.TAKE", "ann", "api").Err() == nil {
			lost.Add(1)
		}
	}()
	second.until(t, func() bool { return lost.Load() > 0 })
	second.Kill()
	for took := int64(1); took > 0; admitted.Add(took) {
		took, _ = take(t, one, "ann")
	}
	assert.LessOrEqual(t, admitted.Load(), int64(100))
	assert.GreaterOrEqual(t, admitted.Load()+lost.Load()+1, int64(100))
	assert.EqualValues(t, 60, hits.Load())
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
