package httplimit

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
	"github.com/ral-limiter/ral/internal/core/whole"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func serve(t *testing.T, h http.Handler, http2 bool) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if http2 {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// bothWays runs a test with Charge, which wraps the ResponseWriter, and without.
func bothWays(t *testing.T, test func(t *testing.T, o Options, charged func() []Served)) {
	for name, wraps := range map[string]bool{"plain": false, "with Charge": true} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var all []Served
			o := Options{}
			if wraps {
				o.Charge = func(_ *http.Request, served Served) int64 {
					mu.Lock()
					defer mu.Unlock()
					all = append(all, served)
					return 1
				}
			}
			test(t, o, func() []Served {
				if !wraps {
					return nil
				}
				// The client may have the answer before the handler has returned.
				must.Await(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(all) > 0 }, "the handler has returned")
				mu.Lock()
				defer mu.Unlock()
				return all
			})
		})
	}
}

func plenty(t *testing.T, o Options) *Middleware {
	return Must(New(open[netip.Addr](t, policy.Must(policy.Funnel(1000, 1000, time.Second))), ByAddr, o))
}

func TestStreamingWorksThroughTheMiddleware(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		bothWays(t, func(t *testing.T, o Options, charged func() []Served) {
			next := make(chan bool)
			s := serve(t, plenty(t, o).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, http2, r.ProtoMajor == 2)
				control := http.NewResponseController(w)
				assert.NoError(t, control.SetWriteDeadline(time.Now().Add(time.Minute)))
				assert.NoError(t, control.SetReadDeadline(time.Now().Add(time.Minute)))
				assert.NoError(t, control.EnableFullDuplex())
				_, isFlusher := w.(http.Flusher)
				assert.True(t, isFlusher)
				for i := range 3 {
					fmt.Fprintf(w, "line %d\n", i)
					assert.NoError(t, control.Flush())
					<-next
				}
			})), http2)
			resp := must.Get(s.Client().Get(s.URL))
			defer resp.Body.Close()
			lines := bufio.NewReader(resp.Body)
			for i := range 3 {
				line, err := lines.ReadString('\n')
				require.NoError(t, err)
				assert.Equal(t, fmt.Sprintf("line %d\n", i), line)
				// The handler has not ended, and its bytes have arrived.
				next <- true
			}
			_, err := lines.ReadString('\n')
			assert.Equal(t, io.EOF, err)
			for _, served := range charged() {
				assert.Equal(t, Served{Status: 200, Bytes: 21}, served)
			}
		})
	}
}

// Promise: `Charge` runs however the handler ends.
func TestPanickingHandlerIsCharged(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		bothWays(t, func(t *testing.T, o Options, charged func() []Served) {
			s := serve(t, plenty(t, o).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/panic" {
					panic(http.ErrAbortHandler)
				}
				_, _ = w.Write([]byte("fine"))
			})), http2)
			resp, err := s.Client().Get(s.URL + "/panic")
			if !assert.Error(t, err) {
				resp.Body.Close()
			}
			for _, served := range charged() {
				assert.Equal(t, Served{Panicked: true}, served)
			}
			resp = must.Get(s.Client().Get(s.URL))
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			assert.Equal(t, "fine", string(text))
		})
	}
}

// Promise: Over real sockets each client is held to its limit.
func TestHeadersDoNotBypassTheLimit(t *testing.T) {
	const capacity = 5
	elsewhere := prefixList("10.0.0.0/8")
	for name, c := range map[string]struct {
		config AddrConfig
		proxy  bool
	}{
		"no field is trusted":                {AddrConfig{}, false},
		"proxies are elsewhere":              {AddrConfig{Header: XForwardedFor, Trusted: elsewhere}, false},
		"proxies are elsewhere, Forwarded":   {AddrConfig{Header: Forwarded, Trusted: elsewhere}, false},
		"behind a proxy":                     {AddrConfig{Header: XForwardedFor, Hops: 1}, true},
		"behind a proxy that says Forwarded": {AddrConfig{Header: Forwarded, Hops: 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limiter := open[netip.Addr](t, policy.Must(policy.Funnel(capacity, 1, time.Hour)))
			var served atomic.Int64
			addr := clientAddr(t, c.config)
			s := serve(t, Must(New(limiter, addr.Key, Options{})).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) })), false)
			front := s
			if c.proxy {
				proxy, done := appendingProxy(s.URL)
				t.Cleanup(done)
				front = serve(t, proxy, false)
			}
			codes := map[int]int{}
			for _, attack := range headerAttacks {
				for try := range 3 {
					code := must.Get(sendRaw(front.Listener.Addr().String(), attack, try+1))
					codes[code]++
				}
			}
			t.Log(codes)
			assert.LessOrEqual(t, served.Load(), int64(capacity))
			assert.Equal(t, int(served.Load()), codes[200])
			assert.LessOrEqual(t, limiter.Len(), 1, "one client is one key")
			code := must.Get(sendRaw(front.Listener.Addr().String(), nil, 0))
			assert.Equal(t, 429, code, "the attacks were refused by the limit and not for another reason")
		})
	}
}

func TestHugeFieldsCostNoMemory(t *testing.T) {
	if testenv.Race {
		t.Skip("the race detector allocates")
	}
	inside := prefixList("10.0.0.0/8")
	xff, rfc := clientAddr(t, AddrConfig{Header: XForwardedFor, Trusted: inside}), clientAddr(t, AddrConfig{Header: Forwarded, Trusted: inside})
	far := clientAddr(t, AddrConfig{Header: XForwardedFor, Hops: clientaddr.MaxHops})
	for name, c := range map[string]struct {
		addr *ClientAddr
		line string
	}{
		"trusted hops":          {xff, strings.Repeat("10.0.0.1,", 100_000) + "10.0.0.1"},
		"commas":                {xff, strings.Repeat(",", 1_000_000)},
		"one word":              {xff, strings.Repeat("x", 1_000_000)},
		"a zone":                {xff, "fe80::1%" + strings.Repeat("x", 1_000_000)},
		"more hops than are":    {far, strings.Repeat("x", 500_000) + strings.Repeat(",10.0.0.1", clientaddr.MaxHops-1)},
		"trusted elements":      {rfc, strings.Repeat("for=10.0.0.1,", 70_000) + "for=10.0.0.1"},
		"parameters":            {rfc, strings.Repeat("a=b;", 250_000) + "for=192.0.2.1"},
		"an open quote":         {rfc, `for="` + strings.Repeat("x", 1_000_000)},
		"quotes":                {rfc, strings.Repeat(`"`, 1_000_000)},
		"backslashes":           {rfc, `for="` + strings.Repeat(`\`, 1_000_000) + `"`},
		"quotes, backslashes":   {rfc, `for="` + strings.Repeat(`\"`, 500_000) + `"`},
		"a long escaped string": {rfc, `for="` + strings.Repeat(`\1`, 500_000) + `"`},
	} {
		r := from("10.0.0.1:1", c.addr.finder.Header(), c.line)
		var addr netip.Addr
		allocs := testing.AllocsPerRun(1, func() { addr = c.addr.Addr(r) })
		assert.LessOrEqual(t, allocs, 3.0, "%s: an error of netip's, and a short string without its backslashes", name)
		assert.False(t, addr.IsValid(), name)
	}
}

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

func everyPolicy() map[string]policy.Policy {
	return map[string]policy.Policy{
		"funnel":            policy.Must(policy.Funnel(10, 3, 7*time.Second)),
		"funnel, fast":      policy.Must(policy.Funnel(5, 1000, time.Second)),
		"funnel, slow":      policy.Must(policy.Funnel(3, 1, 5*time.Minute)),
		"funnel, a second":  policy.Must(policy.Funnel(5, 1, time.Second)),
		"fixed window":      policy.Must(policy.FixedWindow(10, time.Minute)),
		"fixed window, odd": policy.Must(policy.FixedWindow(7, 12345678901*time.Nanosecond)),
		"sliding window":    policy.Must(policy.SlidingWindow(10, time.Minute)),
		"at most":           policy.Must(policy.AtMost(10, time.Minute)),
		"queue":             policy.Must(policy.Queue(5, 1, 3*time.Second)),
		"bursty":            policy.Must(policy.Bursty(1, 700*time.Millisecond, 5)),
		"warming up":        policy.Must(policy.WarmingUp(1, 900*time.Millisecond, 10*time.Second, 3)),
	}
}

// Promise: A request succeeds at `Retry-After`, not a second sooner.
func TestRetryAfterIsTrue(t *testing.T) {
	for name, p := range everyPolicy() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := open[netip.Addr](t, p)
				o := Options{Cost: costField}
				if name == "queue" {
					// One client at a time never fills the queue. It is refused for a late turn.
					o.WaitUpTo = time.Second
				}
				retriesAreTrue(t, Must(New(limiter, ByAddr, o)), 60)
			})
		})
	}
}

func costField(r *http.Request) int64 {
	n, _ := strconv.ParseInt(r.Header.Get("Cost"), 10, 64)
	return n
}

func retriesAreTrue(t *testing.T, m *Middleware, rounds int) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	h := m.Handler(done)
	refused, late := 0, 0
	for range rounds {
		if random.IntN(3) == 0 {
			time.Sleep(time.Duration(random.Int64N(int64(5 * time.Second))))
		}
		r := from("192.0.2.1:1", "Cost", strconv.Itoa(1+random.IntN(3)))
		for w := ask(h, r); w.Code != http.StatusOK; {
			refused++
			require.Equal(t, http.StatusTooManyRequests, w.Code)
			n, err := strconv.Atoi(w.Header().Get("Retry-After"))
			require.NoError(t, err)
			require.Positive(t, n, "0 invites the client to come back at once")
			if n > 1 {
				time.Sleep(time.Duration(n-1)*time.Second - time.Nanosecond)
				require.Equal(t, http.StatusTooManyRequests, ask(h, r).Code, "it need not have waited %d s", n)
				time.Sleep(time.Nanosecond)
				late++
			}
			// The request is on its way.
			time.Sleep(time.Second + whole.Own)
			w = ask(h, r)
			require.Equal(t, http.StatusOK, w.Code, "it waited the %d s that it was told", n)
		}
	}
	assert.Greater(t, refused, 5, "too few refusals to say anything")
	t.Logf("%d refusals, %d of more than a second", refused, late)
}
