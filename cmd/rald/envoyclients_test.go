package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
func TestClientsOfTheRateLimitService(t *testing.T) {
	if testing.Short() {
		t.Skip("the first build of the clients takes minutes, and needs the network")
	}
	rules, addr := t.TempDir(), freeAddr(t)
	require.NoError(t, os.WriteFile(filepath.Join(rules, "shop.yaml"), []byte(rulesOf(2)), 0o600))
	start(t, "-state", "none", "-envoy", rules, "-envoy-listen", addr)

	const service = "envoy.service.ratelimit.v3.RateLimitService"
	assert.Contains(t, goRun(t, grpcurl, "-plaintext", addr, "list"), service+"\n")
	assert.Contains(t, goRun(t, grpcurl, "-plaintext", addr, "describe", service), "rpc ShouldRateLimit")
	assert.Contains(t, goRun(t, grpcurl, "-plaintext", addr, "grpc.health.v1.Health/Check"), `"SERVING"`)
	request := `{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}`
	for range 2 {
		assert.Contains(t, goRun(t, grpcurl, "-plaintext", "-d", request, addr, service+"/ShouldRateLimit"), `"overallCode": "OK"`)
	}
	assert.Contains(t, goRun(t, grpcurl, "-plaintext", "-d", request, addr, service+"/ShouldRateLimit"), `"overallCode": "OVER_LIMIT"`)

	version, err := exec.Command("go", "list", "-C", "../../test/oracle", "-m", "-f", "{{.Version}}", reference).Output()
	require.NoError(t, err)
	client := reference + "/src/client_cmd@" + strings.TrimSpace(string(version))
	ask := func() string {
		// Protocol buffers' text has one or two spaces between its parts.
		out := goRun(t, client, "-dial_string", addr, "-domain", "shop", "-descriptors", "user=bob", "-descriptors", "nobody=bob")
		return strings.Join(strings.Fields(out), " ")
	}
	for range 2 {
		assert.Contains(t, ask(), "response: overall_code:OK ")
	}
	out := ask()
	assert.Contains(t, out, "response: overall_code:OVER_LIMIT statuses:{code:OVER_LIMIT current_limit:{requests_per_unit:2 unit:YEAR}")
	assert.Contains(t, out, "statuses:{code:OK}")
}
