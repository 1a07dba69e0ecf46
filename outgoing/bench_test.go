package outgoing

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
)

// fixed answers each request at once with the same header fields.
type fixed struct{ header http.Header }

func (f fixed) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: f.header, Body: http.NoBody, Request: r}, nil
}

// A request and its answer, without a network. The limit that is told has units left for all requests, so
// that none waits.
func BenchmarkRoundTrip(b *testing.B) {
	for _, c := range []struct {
		name   string
		header http.Header
	}{
		{"unknown", http.Header{}},
		{"told", headerOf(`RateLimit-Policy: "q";q=100000000;w=60`, `RateLimit: "q";r=99000000;t=60`)},
		{"told, two limits", headerOf(`RateLimit-Policy: "q";q=100000000;w=60, "p";q=900000000;w=3600`, `RateLimit: "q";r=99000000;t=60, "p";r=890000000;t=3600`)},
		{"older fields", headerOf("X-Ratelimit-Limit: 100000000", "X-Ratelimit-Remaining: 99000000", "X-Ratelimit-Reset: 60")},
	} {
		b.Run(c.name, func(b *testing.B) {
			transport := must.Get(NewTransport(newLine(b, Config{}), ByHost, Options{Base: fixed{c.header}}))
			r := must.Get(http.NewRequest(http.MethodGet, "http://there/", nil))
			b.ReportAllocs()
			for b.Loop() {
				resp, err := transport.RoundTrip(r)
				if err != nil || resp.StatusCode != http.StatusOK {
					b.Fatal(resp, err)
				}
			}
			require.Zero(b, transport.line.Stats().WaitTime, "no request waits behind another")
		})
	}
}
