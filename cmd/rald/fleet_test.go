package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/internal/testkit/redisd"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func TestSettingsOfAFleet(t *testing.T) {
	env := environment{"RALD_REDIS_PASSWORD=from the environment", "STATE_DIRECTORY=/var/lib/rald"}
	s, err := parse([]string{"-redis", "redis://db"}, env, &bytes.Buffer{})
	require.NoError(t, err)
	assert.Empty(t, s.keys.Dir)
	f := s.fleet.of
	assert.Equal(t, []string{"db:6379"}, f.Redis.InitAddress)
	assert.Equal(t, "from the environment", f.Redis.Password)
	assert.Nil(t, f.Redis.TLSConfig)
	assert.False(t, f.Leased)
	assert.Equal(t, "rald", f.Name)
	assert.Equal(t, fleet.FallbackShare, f.Outage)
	assert.Equal(t, 5*time.Millisecond, f.Budget)

	s, err = parse([]string{
		"-redis", "rediss://ann:p%40ss@a:1,[::1]:2,::1/3", "-fleet", "leased", "-fleet-name", "shop", "-outage", "closed", "-fleet-servers", "3",
		"-redis-budget", "20ms",
	}, env, &bytes.Buffer{})
	require.NoError(t, err)
	f = s.fleet.of
	assert.Equal(t, []string{"a:1", "[::1]:2", "[::1]:6379"}, f.Redis.InitAddress)
	assert.Equal(t, "ann", f.Redis.Username)
	assert.Equal(t, "p@ss", f.Redis.Password)
	assert.Equal(t, 3, f.Redis.SelectDB)
	assert.NotNil(t, f.Redis.TLSConfig)
	assert.True(t, f.Leased)
	assert.Equal(t, "shop", f.Name)
	assert.Equal(t, fleet.FallbackClosed, f.Outage)
	assert.Equal(t, 3, f.Servers)
	assert.Equal(t, 20*time.Millisecond, f.Budget)

	s, err = parse(nil, noEnv, &bytes.Buffer{})
	require.NoError(t, err)
	assert.Nil(t, s.fleet.of)
}

func TestSettingsOfAFleetThatAreRefused(t *testing.T) {
	for args, want := range map[string]string{
		"-fleet exact":                     "-fleet needs -redis",
		"-fleet-name x":                    "-fleet-name needs -redis",
		"-outage open":                     "-outage needs -redis",
		"-redis redis://a -state /tmp":     "-state is of no use with -redis",
		"-redis redis://a -fleet both":     `-fleet is "both": exact or leased is accepted`,
		"-redis redis://a -outage wait":    `-outage is "wait": share, open or closed is accepted`,
		"-redis redis://a -fleet-name a:b": `-fleet-name is "a:b": 1 to 20 letters`,
		"-redis redis://a -fleet-name " + strings.Repeat("x", 21): "1 to 20 letters",
		"-redis redis://a -fleet-servers -1":                      "-fleet-servers is -1: 0 or more is accepted",
		"-redis redis://a -redis-budget 0s":                       "-redis-budget is 0s: above 0, up to 1m, is accepted",
		"-redis redis://a -redis-budget 2m":                       "-redis-budget is 2m0s",
		"-redis 127.0.0.1:6379":                                   "-redis: the URL begins with",
		"-redis http://a":                                         `-redis: the URL begins with "http": redis://host:6379`,
		"-redis redis://":                                         "is no address",
		"-redis redis://a,,b":                                     "is no address",
		"-redis redis://:6379":                                    "is no address",
		"-redis redis://a:70000":                                  "is no address",
		"-redis redis://a:http":                                   "is no address",
		"-redis redis://a:":                                       "is no address",
		"-redis redis://secret@a":                                 "there is a user and no password",
		"-redis redis://:%zzsecret@a":                             "the password",
		"-redis redis://a/x":                                      `the database is "x": 0 or more is accepted`,
		"-redis redis://a/-1":                                     `the database is "-1"`,
		"-redis redis://a/1x":                                     `the database is "1x"`,
		"-redis redis://a/0?db=1":                                 "nothing may follow",
	} {
		_, err := parse(strings.Fields(args), noEnv, &bytes.Buffer{})
		if assert.ErrorContains(t, err, want, args) {
			assert.NotContains(t, err.Error(), "secret", args)
		}
	}
}

// Promise: A limit that Redis cannot keep is refused by name or line.
func TestLimitThatRedisCannotKeep(t *testing.T) {
	r, err := redisd.Open(redisd.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "limits.yaml"), []byte("limits:\n  plan: window 5/month in UTC\n"), 0o600))
	err = run(t.Context(), []string{"-admin", "none", "-redis", "redis://" + r.Addr(), dir}, noEnv, &bytes.Buffer{}, &bytes.Buffer{})
	assert.ErrorContains(t, err, "limits.yaml:2: limits.plan: ")
	assert.ErrorContains(t, err, "want a Funnel, Queue")
}

// At both doors, while a server is killed and restarted again and again. In an outage they answer
// by their shares. Redis knows them by the user of the URL.
//
// Promise: Servers of one Redis keep limits to the unit, even if one dies.
func TestServersOfOneRedis(t *testing.T) {
	r, err := redisd.Open(redisd.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	admin := redis.NewClient(&redis.Options{Addr: r.Addr()})
	t.Cleanup(func() { _ = admin.Close() })
	addUser := func() {
		require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "rald", "on", ">secret", "~*", "&*", "+@all").Err())
	}
	addUser()
	rules := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(rules, "shop.yaml"), []byte(rulesOf(60)), 0o600))
	limits := withLimits(t)
	var admins []string
	open := func() (*server, *grpc.ClientConn) {
		addr := freeAddr(t)
		operators := freeAddr(t)
		s := start(t, "-admin", operators, "-redis", "redis://rald:secret@"+r.Addr(), "-redis-budget", "1m", "-fleet-servers", "2",
			"-envoy", rules, "-envoy-listen", addr, limits)
		admins = append(admins, "http://"+operators)
		c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return s, c
	}
	first, service := open()
	client := func(s *server) *redis.Client {
		c := redis.NewClient(patient(redis.Options{Addr: s.addr, Protocol: 2}))
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	one := client(first)
	var admitted, hits, lost atomic.Int64
	for range 3 {
		second, other := open()
		two := client(second)
		var group sync.WaitGroup
		for i := range 4 {
			c, to := one, service
			if i%2 == 1 {
				c, to = two, other
			}
			group.Go(func() {
				for range 10 {
					got, err := c.Do(context.Background(), "RAL.TAKE", "ann", "api").Slice()
					if assert.NoError(t, err) && got[1] == int64(1) {
						admitted.Add(1)
					}
					if ask(t, to, "ann").OverallCode == pb.RateLimitResponse_OK {
						hits.Add(1)
					}
				}
			})
		}
		group.Wait()
		// Calls under way at a kill may count without an answer.
		before := lost.Load()
		go func() {
			for two.Do(context.Background(), "RAL.TAKE", "ann", "api").Err() == nil {
				lost.Add(1)
			}
		}()
		second.until(t, func() bool { return lost.Load() > before })
		second.Kill()
	}
	for {
		got, err := one.Do(t.Context(), "RAL.TAKE", "ann", "api").Slice()
		require.NoError(t, err)
		if got[1] == int64(0) {
			break
		}
		admitted.Add(1)
	}
	assert.LessOrEqual(t, admitted.Load(), int64(100))
	assert.GreaterOrEqual(t, admitted.Load()+lost.Load()+3, int64(100))
	assert.EqualValues(t, 60, hits.Load())
	assert.Equal(t, pb.RateLimitResponse_OVER_LIMIT, ask(t, service, "ann").OverallCode)
	list, err := admin.ClientList(t.Context()).Result()
	require.NoError(t, err)
	assert.Contains(t, list, "user=rald")

	untilInfo := func(text string) {
		first.until(t, func() bool { return strings.Contains(one.Info(t.Context()).Val(), text) })
	}
	r.Kill()
	for range 20 {
		_, err := one.Do(t.Context(), "RAL.TAKE", "bob", "api").Slice()
		require.NoError(t, err)
	}
	untilInfo("backend_failing:1")
	status, text := fetch(t, http.DefaultClient, admins[0]+"/healthz", "")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, text, "ok\nrald:funnel: ral: Redis could not be asked")
	_, text = fetch(t, http.DefaultClient, admins[0]+"/metrics", "")
	assert.Contains(t, text, `limit="rald:funnel"`)
	assert.Contains(t, text, `limit="rald.envoy:window/365d_aligned"`)
	_, text = fetch(t, http.DefaultClient, admins[0]+"/debug/ral/limits", "")
	assert.Contains(t, text, `"name":"api"`)
	first.untilLogs(t, "outage began")
	require.NoError(t, r.Restart())
	untilInfo("set Username and Password") // it has forgotten its users
	addUser()
	untilInfo("backend_failing:0")
	first.end(t)
	assert.Contains(t, first.log.String(), "rald ends")
	assert.NotContains(t, fmt.Sprint(first.log), "secret")
}
