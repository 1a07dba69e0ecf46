package httplimit

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/await"
	"github.com/ral-limiter/ral/internal/testkit/httpattack"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/race"
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
				await.True(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(all) > 0 }, "the handler has returned")
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

func TestStreaming(t *testing.T) {
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
				next <- true // the handler has not ended, and its bytes have arrived
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
func TestPanickingHandler(t *testing.T) {
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
				proxy, done := httpattack.Proxy(s.URL)
				t.Cleanup(done)
				front = serve(t, proxy, false)
			}
			codes := map[int]int{}
			for _, attack := range httpattack.Lines {
				for try := range 3 {
					code := must.Get(httpattack.Send(front.Listener.Addr().String(), attack, try+1))
					codes[code]++
				}
			}
			t.Log(codes)
			assert.LessOrEqual(t, served.Load(), int64(capacity))
			assert.Equal(t, int(served.Load()), codes[200])
			assert.LessOrEqual(t, limiter.Len(), 1, "one client is one key")
			code := must.Get(httpattack.Send(front.Listener.Addr().String(), nil, 0))
			assert.Equal(t, 429, code, "the attacks were refused by the limit and not for another reason")
		})
	}
}

func TestHugeFieldsCostNoMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	inside := prefixList("10.0.0.0/8")
	xff, rfc := clientAddr(t, AddrConfig{Header: XForwardedFor, Trusted: inside}), clientAddr(t, AddrConfig{Header: Forwarded, Trusted: inside})
	far := clientAddr(t, AddrConfig{Header: XForwardedFor, Hops: MaxHops})
	for name, c := range map[string]struct {
		addr *ClientAddr
		line string
	}{
		"trusted hops":          {xff, strings.Repeat("10.0.0.1,", 100_000) + "10.0.0.1"},
		"commas":                {xff, strings.Repeat(",", 1_000_000)},
		"one word":              {xff, strings.Repeat("x", 1_000_000)},
		"a zone":                {xff, "fe80::1%" + strings.Repeat("x", 1_000_000)},
		"more hops than are":    {far, strings.Repeat("x", 500_000) + strings.Repeat(",10.0.0.1", MaxHops-1)},
		"trusted elements":      {rfc, strings.Repeat("for=10.0.0.1,", 70_000) + "for=10.0.0.1"},
		"parameters":            {rfc, strings.Repeat("a=b;", 250_000) + "for=192.0.2.1"},
		"an open quote":         {rfc, `for="` + strings.Repeat("x", 1_000_000)},
		"quotes":                {rfc, strings.Repeat(`"`, 1_000_000)},
		"backslashes":           {rfc, `for="` + strings.Repeat(`\`, 1_000_000) + `"`},
		"quotes, backslashes":   {rfc, `for="` + strings.Repeat(`\"`, 500_000) + `"`},
		"a long escaped string": {rfc, `for="` + strings.Repeat(`\1`, 500_000) + `"`},
	} {
		r := from("10.0.0.1:1", c.addr.of.Header(), c.line)
		var addr netip.Addr
		allocs := testing.AllocsPerRun(1, func() { addr = c.addr.Addr(r) })
		assert.LessOrEqual(t, allocs, 3.0, "%s: an error of netip's, and a short string without its backslashes", name)
		assert.False(t, addr.IsValid(), name)
	}
}
