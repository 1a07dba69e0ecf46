package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	descriptor "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/ral-limiter/ral/internal/testkit/redisd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// rulesOf returns rules with a limit a year for each user.
func rulesOf(requests int) string {
	return "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {unit: year, requests_per_unit: " + strconv.Itoa(requests) + "}\n"
}

func freeAddr(t *testing.T) string {
	port, err := redisd.FreePort()
	require.NoError(t, err)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func ask(t *testing.T, to grpc.ClientConnInterface, user string) *pb.RateLimitResponse {
	t.Helper()
	answer, err := pb.NewRateLimitServiceClient(to).ShouldRateLimit(context.Background(), &pb.RateLimitRequest{
		Domain: "shop",
		Descriptors: []*descriptor.RateLimitDescriptor{{
			Entries: []*descriptor.RateLimitDescriptor_Entry{{Key: "user", Value: user}},
		}},
	}, grpc.WaitForReady(true))
	require.NoError(t, err)
	return answer
}

// Rules are reloaded, and counts kept over a restart. Clients of Redis do not see them.
func TestEnvoyService(t *testing.T) {
	rules, state := t.TempDir(), filepath.Join(t.TempDir(), "state")
	file := filepath.Join(rules, "shop.yaml")
	require.NoError(t, os.WriteFile(file, []byte(rulesOf(2)), 0o600))
	addr, pages := freeAddr(t), freeAddr(t)
	args := []string{"-state", state, "-envoy", rules, "-envoy-listen", addr, "-envoy-http", pages}
	s := start(t, args...)
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer c.Close()

	for _, want := range []pb.RateLimitResponse_Code{pb.RateLimitResponse_OK, pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT} {
		assert.Equal(t, want, ask(t, c, "ann").OverallCode)
	}
	health, err := healthpb.NewHealthClient(c).Check(context.Background(), &healthpb.HealthCheckRequest{Service: "ratelimit"})
	require.NoError(t, err)
	assert.Equal(t, healthpb.HealthCheckResponse_SERVING, health.Status)
	get := func(path, body string) string {
		r, err := http.Post("http://"+pages+path, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return string(text)
	}
	assert.Contains(t, get("/rlconfig", ""), "user")
	assert.Contains(t, get("/json", `{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}`), "OVER_LIMIT")
	assert.Equal(t, "0\n", tool(t, s, "redis-cli", "DBSIZE"))

	require.NoError(t, os.WriteFile(file, []byte(rulesOf(100)), 0o600))
	s.untilLogs(t, "the configuration is in force")
	assert.EqualValues(t, 95, ask(t, c, "ann").Statuses[0].LimitRemaining, "hits that were refused count, as in the reference")

	require.NoError(t, os.WriteFile(file, []byte("domain: [\n"), 0o600))
	s.untilLogs(t, "the configuration stays as it was")
	assert.EqualValues(t, 94, ask(t, c, "ann").Statuses[0].LimitRemaining)

	require.NoError(t, os.WriteFile(file, []byte(rulesOf(100)), 0o600))
	s.end(t)
	start(t, args...)
	assert.EqualValues(t, 93, ask(t, c, "ann").Statuses[0].LimitRemaining)
}

// The reference's settings for all rules are flags.
func TestEnvoyServiceForAllRules(t *testing.T) {
	rules := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(rules, name), []byte(text), 0o600))
	}
	write("a.yaml", rulesOf(0))
	// answerWith starts rald with flags, and returns the answer to a hit over the limit.
	answerWith := func(flags ...string) *pb.RateLimitResponse {
		addr := freeAddr(t)
		start(t, append([]string{"-state", "none", "-envoy", rules, "-envoy-listen", addr}, flags...)...)
		c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		defer c.Close()
		return ask(t, c, "ann")
	}
	plain := answerWith()
	assert.Equal(t, pb.RateLimitResponse_OVER_LIMIT, plain.OverallCode)
	assert.Nil(t, plain.DynamicMetadata)
	shadow := answerWith("-envoy-shadow")
	assert.Equal(t, pb.RateLimitResponse_OK, shadow.OverallCode)
	assert.Equal(t, pb.RateLimitResponse_OVER_LIMIT, shadow.Statuses[0].Code)
	quota := answerWith("-envoy-quota", "-envoy-metadata")
	assert.Equal(t, pb.RateLimitResponse_OK, quota.Statuses[0].Code)
	assert.Equal(t, []any{0.}, quota.DynamicMetadata.AsMap()["quotaModeViolations"])

	write("b.yaml", "domain: shop\ndescriptors:\n  - key: other\n    rate_limit: {unit: year, requests_per_unit: 1}\n")
	var out bytes.Buffer
	assert.ErrorContains(t, run(context.Background(), []string{"check", "-envoy", rules}, noEnv, &out, &out), "b.yaml:1: domain: ")
	require.NoError(t, run(context.Background(), []string{"check", "-envoy", "-envoy-merge", rules}, noEnv, &out, &out))
	assert.Equal(t, rules+": 2 rules\n", out.String())
	assert.Equal(t, pb.RateLimitResponse_OVER_LIMIT, answerWith("-envoy-merge").OverallCode)
}

// The error names the fault, without a hang.
func TestEnvoyServiceThatCannotStart(t *testing.T) {
	rules := t.TempDir()
	file := filepath.Join(rules, "shop.yaml")
	require.NoError(t, os.WriteFile(file, []byte(rulesOf(2)), 0o600))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	try := func(args ...string) error {
		return run(context.Background(), append([]string{"-state", "none", "-envoy", rules}, args...), noEnv, &bytes.Buffer{}, &bytes.Buffer{})
	}
	busy := taken.Addr().String()
	assert.ErrorContains(t, try("-listen", busy, "-envoy-listen", "127.0.0.1:0"), "-listen: ")
	assert.ErrorContains(t, try("-listen", "127.0.0.1:0", "-envoy-listen", busy), "-envoy-listen: ")
	assert.ErrorContains(t, try("-listen", "127.0.0.1:0", "-envoy-listen", "127.0.0.1:0", "-envoy-http", busy), "-envoy-http: ")

	var out bytes.Buffer
	require.NoError(t, run(context.Background(), []string{"check", "-envoy", rules}, noEnv, &out, &out))
	assert.Equal(t, rules+": 1 rules\n", out.String())
	require.NoError(t, os.WriteFile(file, []byte("domain: shop\ndescriptors:\n  - kex: user\n"), 0o600))
	assert.ErrorContains(t, try("-listen", "127.0.0.1:0", "-envoy-listen", "127.0.0.1:0"), "shop.yaml")
	assert.ErrorContains(t, run(context.Background(), []string{"check", "-envoy", rules}, noEnv, &out, &out), "shop.yaml")
}
