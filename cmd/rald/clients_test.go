package main

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/redistest"
)

// Promise: Redis clients work in both protocol versions.
func TestRedisClientsWithClients(t *testing.T) {
	needs(t, "client libraries")
	s := start(t, "-state", "none", directory(t, "limits.yaml", limitsFile))
	ctx := context.Background()
	fresh := []int64{0, 16, 15, -1, 3600}
	for protocol := 2; protocol <= 3; protocol++ {
		c := s.client(t, redis.Options{Protocol: protocol, ClientName: "test", DB: 0})
		key := fmt.Sprint("go-redis ", protocol)
		pipe := c.Pipeline()
		var all []*redis.Cmd
		for range 100 {
			all = append(all, pipe.Do(ctx, "CL.THROTTLE", key, 15, 1, 3600))
		}
		_, err := pipe.Exec(ctx)
		require.NoError(t, err)
		for i, one := range all {
			five, err := one.Int64Slice()
			require.NoError(t, err)
			assert.Equal(t, i < 16, five[0] == 0, i)
		}
		tx := c.TxPipeline()
		inside := tx.Do(ctx, "CL.THROTTLE", key+" in a transaction", 15, 1, 3600)
		ttl := tx.TTL(ctx, key+" in a transaction")
		_, err = tx.Exec(ctx)
		require.NoError(t, err)
		got, err := inside.Int64Slice()
		require.NoError(t, err)
		assert.Equal(t, fresh, got)
		assert.Equal(t, time.Hour, ttl.Val())
		if protocol == 3 {
			state, err := c.Do(ctx, "RAL.TAKE", key, "api", 7).Result()
			require.NoError(t, err)
			assert.Equal(t, []any{int64(93), true}, []any{state.(map[any]any)["remaining"], state.(map[any]any)["allowed"]})
		}
		assert.Error(t, c.Keys(ctx, "*").Err(), "not a command of rald")
		found, _, err := c.Scan(ctx, 0, "go-redis*", 100).Result()
		require.NoError(t, err)
		assert.Contains(t, found, key)
		assert.EqualValues(t, 1, c.Del(ctx, key).Val())
	}
	for _, resp2 := range []bool{false, true} {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.addr}, AlwaysRESP2: resp2, DisableCache: resp2})
		require.NoError(t, err)
		defer c.Close()
		got, err := c.Do(ctx, c.B().Arbitrary("CL.THROTTLE").Keys(fmt.Sprint("rueidis ", resp2)).Args("15", "1", "3600").Build()).AsIntSlice()
		require.NoError(t, err)
		assert.Equal(t, fresh, got)
		if !resp2 {
			// rueidis would cache the read-only RAL.PEEK. No reply is older than its call.
			peek := c.B().Arbitrary("RAL.PEEK").Keys("rueidis").Args("api").ReadOnly()
			_, err = c.DoCache(ctx, rueidis.Cacheable(peek), time.Minute).AsMap()
			assert.Error(t, err, "a reply was cached")
		}
	}
}

// Promise: The commands in docs/serving.md that hold units do what it says.
func TestDocumentedReservationCommandsWork(t *testing.T) {
	s := start(t, "-state", "none")
	c := s.client(t, redis.Options{Protocol: 3})
	blocks := documented(t, "## Units held until a deadline", "sh")
	block := blocks[0] + blocks[1]
	var replies []map[any]any
	for line := range strings.Lines(block) {
		command, _, _ := strings.Cut(line, "#")
		words := strings.Fields(strings.TrimPrefix(command, "redis-cli -p 7379 "))
		arguments := make([]any, len(words))
		for i, word := range words {
			arguments[i] = word
		}
		reply, err := c.Do(t.Context(), arguments...).Result()
		require.NoError(t, err, line)
		replies = append(replies, reply.(map[any]any))
	}
	require.Len(t, replies, 6)
	assert.Equal(t, []any{"request-17", true, int64(30_000)}, []any{replies[0]["id"], replies[0]["allowed"], replies[0]["ttl"]})
	assert.Equal(t, map[any]any{"state": "committed", "units": int64(250), "ttl": int64(0)}, replies[1])
	assert.EqualValues(t, 750, replies[2]["remaining"])
	assert.Equal(t, []any{"stream-3", true, int64(20_000)}, []any{replies[3]["id"], replies[3]["allowed"], replies[3]["ttl"]})
	assert.Equal(t, []any{"held", "released"}, []any{replies[4]["state"], replies[5]["state"]})
}

// After a kill the saved state may lack the latest units: see TestKillForgetsOnlyUnsavedStateWithProcesses.
//
// Promise: A restart, or a kill, leaves held units spent and forgets their reservations.
func TestReservationsAcrossARestart(t *testing.T) {
	args := []string{"-state", t.TempDir(), directory(t, "limits.yaml", limitsFile)}
	s := start(t, args...)
	c := s.client(t, redis.Options{Protocol: 2})
	for _, action := range []string{"spend", "release"} {
		require.NoError(t, c.Do(t.Context(), "RAL.RESERVE", "api", action, 40, 60_000, action, "id").Err())
	}
	s.end(t)
	s = start(t, args...)
	c = s.client(t, redis.Options{Protocol: 2})
	for _, action := range []string{"spend", "release"} {
		assert.EqualValues(t, 60, remaining(t, c, action, "api"))
		reply, err := c.Do(t.Context(), "RAL.RELEASE", "api", action, "id").Slice()
		require.NoError(t, err)
		assert.Equal(t, []any{"state", "unknown", "units", int64(0), "ttl", int64(0)}, reply)
		reply, err = c.Do(t.Context(), "RAL.COMMIT", "api", action, "id", 10).Slice()
		require.NoError(t, err)
		assert.Equal(t, []any{"state", "unknown", "units", int64(10), "ttl", int64(0)}, reply)
		assert.EqualValues(t, 50, remaining(t, c, action, "api"))
	}
	s.end(t)
}

// Promise: After a restart, or a kill, no unit in flight is in use, and no reservation of it is known.
func TestReservationsInFlightAcrossARestart(t *testing.T) {
	for _, killed := range []bool{false, true} {
		args := []string{"-state", t.TempDir(), directory(t, "limits.yaml", "limits:\n  streams: in flight 2, 1m at most\n")}
		s := start(t, args...)
		c := s.client(t, redis.Options{Protocol: 2})
		require.NoError(t, c.Do(t.Context(), "RAL.RESERVE", "streams", "ann", 1, 60_000, "release", "id").Err())
		assert.EqualValues(t, 1, remaining(t, c, "ann", "streams"))
		if killed {
			s.Kill()
		} else {
			s.end(t)
		}
		s = start(t, args...)
		c = s.client(t, redis.Options{Protocol: 2})
		assert.EqualValues(t, 2, remaining(t, c, "ann", "streams"))
		for _, end := range [][]any{{"RAL.RELEASE", "streams", "ann", "id"}, {"RAL.COMMIT", "streams", "ann", "id", 1}} {
			reply, err := c.Do(t.Context(), end...).Slice()
			require.NoError(t, err)
			assert.Equal(t, []any{"state", "unknown", "units", int64(0), "ttl", int64(0)}, reply)
		}
		assert.EqualValues(t, 2, remaining(t, c, "ann", "streams"))
		s.end(t)
	}
}

// Another server of the same Redis does not know the reservations. A unit in flight comes back a term later.
//
// Promise: With `-redis`, a kill leaves units of rates spent, frees units in flight within a term, and makes their reservations unknown to other servers.
func TestKilledServerWithReservationsOverRedisWithProcesses(t *testing.T) {
	needs(t, "a server that is killed while it holds reservations")
	r := redistest.Start(t)
	dir := directory(t, "limits.yaml", limitsFile+"  streams: in flight 2, 1m at most\n")
	open := func() (*server, *redis.Client) {
		s := start(t, "-redis", "redis://"+r.Addr(), "-redis-budget", "1m", "-fleet-servers", "2", dir)
		return s, s.client(t, redis.Options{Protocol: 2})
	}
	first, one := open()
	second, two := open()
	reserve := func(limit, action string, n int) bool {
		reply, err := one.Do(t.Context(), "RAL.RESERVE", limit, "ann", n, 60_000, action, action+"-"+limit).Slice()
		require.NoError(t, err)
		// The elements are id, ttl and allowed, after their names.
		return reply[5] == int64(1)
	}
	// A Redis without data admits no unit in flight for a term.
	first.until(t, func() bool { return reserve("streams", "release", 1) })
	require.True(t, reserve("api", "spend", 30))
	require.True(t, reserve("api", "release", 20))
	assert.EqualValues(t, 50, remaining(t, two, "ann", "api"))
	assert.EqualValues(t, 1, remaining(t, two, "ann", "streams"))

	first.Kill()
	for _, end := range []struct {
		command []any
		units   int64
	}{
		{[]any{"RAL.RELEASE", "api", "ann", "release-api"}, 0},
		{[]any{"RAL.RELEASE", "streams", "ann", "release-streams"}, 0},
		{[]any{"RAL.COMMIT", "streams", "ann", "release-streams", 1}, 0},
		{[]any{"RAL.COMMIT", "api", "ann", "spend-api", 10}, 10},
	} {
		reply, err := two.Do(t.Context(), end.command...).Slice()
		require.NoError(t, err)
		assert.Equal(t, []any{"state", "unknown", "units", end.units, "ttl", int64(0)}, reply, "%v", end.command)
	}
	assert.EqualValues(t, 40, remaining(t, two, "ann", "api"), "a commit without a reservation is a charge")
	second.until(t, func() bool { return remaining(t, two, "ann", "streams") == 2 })
	assert.EqualValues(t, 40, remaining(t, two, "ann", "api"))
	second.end(t)
}

// promtool accepts the metrics, too.
func TestRedisToolsWithClients(t *testing.T) {
	needs(t, "the tools of Redis and Prometheus")
	s := startWhole(t, "-state", "none", wholeDirectory(t))
	assert.Equal(t, "0\n16\n15\n-1\n3600\n", tool(t, s.server, "redis-cli", "CL.THROTTLE", "key", "15", "1", "3600"))
	assert.Contains(t, tool(t, s.server, "redis-cli", "-3", "RAL.TAKE", "key", "api"), "remaining 99\n")
	assert.Contains(t, tool(t, s.server, "redis-cli", "--scan"), "key\n")
	out := tool(t, s.server, "redis-benchmark", "-n", "2000", "-c", "20", "-P", "16", "--csv", "CL.THROTTLE", "bench", "1000", "1", "3600")
	assert.NotContains(t, strings.ToLower(out), "error", out)
	assert.Regexp(t, "^1\n1001\n0\n", tool(t, s.server, "redis-cli", "CL.THROTTLE", "bench", "1000", "1", "3600"),
		"2,000 calls took more or less than the 1,001 units that there are")

	ask(t, envoyAt(t, s.envoy), "ann")
	_, text := fetch(t, http.DefaultClient, "http://"+s.metrics+"/metrics")
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = strings.NewReader(text)
	problems, err := check.CombinedOutput()
	assert.NoError(t, err, "%s (tools/need prometheus installs it)", problems)
	assert.Empty(t, string(problems))
}

const grpcurl = "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3"

// reference is the module of the tried client. The oracle's module has its version.
const reference = "github.com/envoyproxy/ratelimit"

// goRun runs a program from its module, and returns its output.
func goRun(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"run", program}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", program, args, out)
	return string(out)
}

// grpcurl uses reflection.
//
// Promise: The reference's client and grpcurl work with Envoy's rate limit service.
func TestRateLimitServiceOverTheNetwork(t *testing.T) {
	needs(t, "the network, and minutes for the first build of the clients")
	addr := freeAddr(t)
	start(t, "-state", "none", "-envoy", directory(t, "shop.yaml", rulesOf(2)), "-envoy-listen", addr)

	const service = "envoy.service.ratelimit.v3.RateLimitService"
	assert.Contains(t, goRun(t, grpcurl, "-plaintext", addr, "describe", service), "rpc ShouldRateLimit")
	request := `{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}`
	for _, want := range []string{"OK", "OK", "OVER_LIMIT"} {
		assert.Contains(t, goRun(t, grpcurl, "-plaintext", "-d", request, addr, service+"/ShouldRateLimit"), `"overallCode": "`+want+`"`)
	}

	version, err := exec.Command("go", "list", "-C", "oracle", "-m", "-f", "{{.Version}}", reference).Output()
	require.NoError(t, err)
	client := reference + "/src/client_cmd@" + strings.TrimSpace(string(version))
	for _, want := range []string{"OK ", "OK ", "OVER_LIMIT statuses:{code:OVER_LIMIT current_limit:{requests_per_unit:2 unit:YEAR}"} {
		out := goRun(t, client, "-dial_string", addr, "-domain", "shop", "-descriptors", "user=bob", "-descriptors", "nobody=bob")
		// The text of protocol buffers has one or two spaces between its parts.
		out = strings.Join(strings.Fields(out), " ")
		assert.Contains(t, out, "response: overall_code:"+want)
		assert.Contains(t, out, "statuses:{code:OK")
	}
}
