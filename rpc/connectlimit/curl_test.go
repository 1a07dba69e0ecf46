package connectlimit

import (
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

// curl sees the status, the fields and the details of an interceptor's and a gate's refusal.
func TestCurlSeesRefusals(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("there is no curl: see tools/need curl")
	}
	for _, version := range []string{"--http1.1", "--http2-prior-knowledge"} {
		for _, tap := range []bool{false, true} {
			e := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, time.Hour)))
			limited := rpclimit.Must(rpclimit.New(rpclimit.Options{}, rpclimit.Limit[netip.Addr]{
				Name: "address", Limiter: e, Key: rpclimit.ByAddr, AtTap: tap,
			}))
			h := TrailersOnly(service(connect.WithInterceptors(NewInterceptor(limited))))
			if tap {
				h = newGate(t, limited).Handler(h)
			}
			s := serve(t, h)
			run := func() string {
				out, err := exec.CommandContext(t.Context(), curl, "-sS", "-i", version, "--max-time", "60",
					"-H", "Content-Type: application/json", "-d", `"hello"`, s.URL+echo).CombinedOutput()
				require.NoError(t, err, "%s, at a gate %v: %s", version, tap, out)
				return string(out)
			}
			admitted := run()
			assert.Regexp(t, `^HTTP/\S+ 200`, admitted, version)
			assert.Regexp(t, `(?im)^ratelimit: "address";r=0;t=3[56]\d\d\r$`, admitted, version)
			assert.Contains(t, admitted, `"hello"`)
			refused := run()
			assert.Regexp(t, `^HTTP/\S+ 429`, refused, version)
			assert.Regexp(t, `(?im)^retry-after: 3[56]\d\d\r$`, refused, version)
			assert.Regexp(t, `(?im)^ratelimit: "address";r=0;t=3[56]\d\d\r$`, refused, version)
			assert.Regexp(t, `(?im)^ratelimit-policy: "address";q=1;w=3600\r$`, refused, version)
			assert.Contains(t, refused, `"code":"resource_exhausted"`, version)
			assert.Contains(t, refused, `"type":"google.rpc.RetryInfo"`, version)
			assert.Contains(t, refused, `"type":"google.rpc.QuotaFailure"`, version)
			assert.Regexp(t, `"retryDelay":\s*"3\d\d\d(\.\d+)?s"`, refused, version)
		}
	}
}
