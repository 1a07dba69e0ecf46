package httplimit

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// get sends a request with header fields in pairs, and returns the body.
func get(t *testing.T, client *http.Client, url string, fields ...string) (*http.Response, string) {
	t.Helper()
	r := must.Get(http.NewRequest(http.MethodGet, url, nil))
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	resp, err := client.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	return resp, string(must.Get(io.ReadAll(resp.Body)))
}

// Promise: A client keeps its key however it spells header or host.
func TestSpellingsOfHeaderOnTheWire(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		limiter := open[string](t, policy.Must(policy.Funnel(1, 1, time.Hour)))
		arrived := map[string]bool{}
		limited := Must(New(limiter, ByHeader("X-Api-Key"), Options{})).Handler(done)
		s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			arrived[r.Header.Get("X-Api-Key")] = true
			assert.Equal(t, http2, r.ProtoMajor == 2)
			limited.ServeHTTP(w, r)
		}), http2)
		var codes []int
		for _, value := range []string{"k", "k ", " k", "\tk\t", "  k\t "} {
			resp, _ := get(t, s.Client(), s.URL, "X-Api-Key", value)
			codes = append(codes, resp.StatusCode)
		}
		assert.Equal(t, []int{200, 429, 429, 429, 429}, codes, "HTTP/2 %v", http2)
		assert.Equal(t, http2, len(arrived) == 5, "HTTP/1 trims by itself: %q", arrived)
	}
}

func TestSpellingsOfHostOnTheWire(t *testing.T) {
	// HTTP/1 also takes the host from an absolute target, and accepts malformed hosts.
	limiter := open[string](t, policy.Must(policy.Funnel(1, 1, time.Hour)))
	s := serve(t, Must(New(limiter, ByHeader("Host"), Options{})).Handler(done), false)
	var codes []string
	for _, head := range []string{
		"GET / HTTP/1.1\r\nHost: example.org:1:2", "GET http://EXAMPLE.org:3/ HTTP/1.1\r\nHost: other.example", "GET / HTTP/1.0\r\nX-A: b",
	} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		require.NoError(t, err)
		fmt.Fprintf(conn, "%s\r\nConnection: close\r\n\r\n", head)
		text := must.Get(io.ReadAll(conn))
		codes = append(codes, strings.Fields(string(text))[1])
		conn.Close()
	}
	assert.Equal(t, []string{"200", "429", "400"}, codes)
}

// waitingServer returns a server whose next request waits for turn. arrived receives when the
// request has come, verdicts when it is decided.
func waitingServer(t *testing.T, turn time.Duration, http2 bool) (s *httptest.Server, verdicts chan limits.Verdict, arrived chan bool) {
	t.Helper()
	limiter := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, turn)))
	verdicts, arrived = make(chan limits.Verdict, 1), make(chan bool, 1)
	m := Must(New(limiter, func(r *http.Request) netip.Addr { arrived <- true; return ByAddr(r) }, Options{
		WaitUpTo: time.Minute, OnVerdict: func(_ *http.Request, v limits.Verdict) { verdicts <- v },
	}))
	s = serve(t, m.Handler(done), http2)
	require.True(t, limiter.Choke(netip.MustParseAddr("127.0.0.1")))
	return s, verdicts, arrived
}

// Over HTTP/1 net/http does not notice if the body is unread, or once another byte has come during
// the wait: such a request takes its turn, as documented. Bytes sent with the request do no harm.
func TestClientThatLeavesWhileItWaits(t *testing.T) {
	const noticed, unnoticed = time.Minute, 2 * time.Second
	for _, c := range []struct {
		body, together, later string
		turn                  time.Duration
		want                  limits.Reason
	}{
		{"", "", "", noticed, limits.Cancelled},
		{"", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "", noticed, limits.Cancelled},
		{"unread", "", "", unnoticed, limits.Admitted},
		{"", "", "G", unnoticed, limits.Admitted},
		{"", "", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", unnoticed, limits.Admitted},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			s, verdicts, arrived := waitingServer(t, c.turn, false)
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			require.NoError(t, err)
			fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s%s", len(c.body), c.body, c.together)
			<-arrived
			must.Get(io.WriteString(conn, c.later))
			require.NoError(t, conn.Close())
			v := <-verdicts
			assert.Equal(t, c.want, v.Reason)
			if c.want == limits.Admitted {
				assert.Positive(t, v.Waited, "it was admitted without waiting, which tests nothing")
			}
		})
	}
}
