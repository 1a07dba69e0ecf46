package grpclimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/rpclimit"
)

const grpcurl = "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3"

// It learns the service by reflection, which is exempt.
func TestGrpcurlShowsTheDetails(t *testing.T) {
	if testing.Short() {
		t.Skip("the first build of grpcurl takes minutes, and needs the network")
	}
	at := newClock()
	s := serve(t, byAddr(open[netip.Addr](t, hourly(1), at), rpclimit.Options{}))
	run := func() (string, error) {
		out, err := exec.CommandContext(t.Context(), "go", "run", grpcurl, "-plaintext", "-v", "-format-error",
			"-d", `{"payload": {"body": "aGVsbG8="}}`, s.addr, "grpc.testing.TestService/UnaryCall").CombinedOutput()
		return string(out), err
	}
	out, err := run()
	require.NoError(t, err, out)
	assert.Contains(t, out, `"body": "aGVsbG8="`)
	assert.Contains(t, out, policyKey+`: "address";q=1;w=3600`)

	at.Add(int64(1499 * time.Millisecond))
	refused := call(s.client(t), "")
	delay := retryDelay(refused)
	require.Positive(t, delay)
	out, err = run()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), "%v: %s", err, out)
	assert.Contains(t, out, fmt.Sprintf("%s: %d\n", pushbackKey, delay.Milliseconds()))
	// It prints the status last, before the exit status that go run adds.
	_, text, found := strings.Cut(out, "\n{\n")
	require.True(t, found, out)
	var status struct {
		Code    int
		Message string
		Details []json.RawMessage
	}
	require.NoError(t, json.NewDecoder(strings.NewReader("{\n"+text)).Decode(&status), out)
	assert.Equal(t, int(rpclimit.CodeResourceExhausted), status.Code)
	assert.Contains(t, status.Message, `the limit "address" is exceeded`)
	require.Len(t, status.Details, 2, out)
	assert.JSONEq(t, fmt.Sprintf(`{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "%.3fs"}`, delay.Seconds()),
		string(status.Details[0]))
	assert.JSONEq(t, `{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{
		"subject": "address", "description": "the limit \"address\" allows funnel 1, 1/h", "quotaId": "address",
		"quotaDimensions": {"by": "address"}, "quotaValue": "1"}]}`, string(status.Details[1]))
}
