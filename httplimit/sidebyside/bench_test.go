package sidebyside

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/httprate"
	"github.com/stretchr/testify/assert"
	"golang.org/x/time/rate"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/policy"
)

// plenty is a limit that no benchmark reaches, and one a limit that all reach.
const (
	plenty = 1_000_000_000
	one    = 1
)

// contender limits by the connection's address: so many at once, and about as many an
// hour.
type contender struct {
	name string
	make func(tb testing.TB, limit int) func(http.Handler) http.Handler
}

var contenders = []contender{
	{"bare", func(testing.TB, int) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler { return next }
	}},
	{"ral", ral(httplimit.Options{})},
	{"ral-no-headers", ral(httplimit.Options{Headers: httplimit.NoHeaders})},
	// By the connection's address, as its documentation has it; it sets X-RateLimit-Limit,
	// -Remaining and -Reset.
	{"httprate", func(_ testing.TB, limit int) func(http.Handler) http.Handler {
		return httprate.LimitBy(limit, time.Hour, func(r *http.Request) (string, error) {
			ip, _, err := net.SplitHostPort(r.RemoteAddr)
			return httprate.CanonicalizeIP(ip), err
		})
	}},
	{"xtime-rate", xtime},
}

func ral(o httplimit.Options) func(testing.TB, int) func(http.Handler) http.Handler {
	return func(tb testing.TB, limit int) func(http.Handler) http.Handler {
		limiter, err := engine.New[netip.Addr](engine.Config{Policy: policy.Must(policy.Funnel(int64(limit), int64(limit), time.Hour))})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { assert.NoError(tb, limiter.Close()) })
		return httplimit.Must(httplimit.New(limiter, httplimit.ByAddr, o)).Handler
	}
}

// xtime is the middleware that many programs use: a limiter for each address in a sync.Map
// that is never emptied. It tells clients nothing.
func xtime(_ testing.TB, limit int) func(http.Handler) http.Handler {
	var limiters sync.Map
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ip, _, err := net.SplitHostPort(r.RemoteAddr)
			if err != nil {
				http.Error(w, "no address", http.StatusBadRequest)
				return
			}
			l, ok := limiters.Load(ip)
			if !ok {
				l, _ = limiters.LoadOrStore(ip, rate.NewLimiter(rate.Limit(limit)/3600, limit))
			}
			if !l.(*rate.Limiter).Allow() {
				http.Error(w, "Too Many Requests", http.StatusTooManyRequests)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

// Each contender limits.
func TestContendersLimit(t *testing.T) {
	for _, c := range contenders {
		h := c.make(t, one)(hello)
		codes := map[int]int{}
		for range 10 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			codes[w.Code]++
		}
		if c.name == "bare" {
			assert.Equal(t, map[int]int{200: 10}, codes)
			continue
		}
		assert.Equal(t, map[int]int{200: 1, 429: 9}, codes, c.name)
	}
}

// quiet is a ResponseWriter that costs nothing, so that the cost of a middleware shows.
type quiet struct{ h http.Header }

func (q *quiet) Header() http.Header         { return q.h }
func (q *quiet) Write(b []byte) (int, error) { return len(b), nil }
func (q *quiet) WriteHeader(int)             {}

// clientRequests returns requests of so many addresses.
func clientRequests(n int) []*http.Request {
	requests := make([]*http.Request, n)
	for i := range requests {
		requests[i] = httptest.NewRequest(http.MethodGet, "/", nil)
		requests[i].RemoteAddr = fmt.Sprintf("10.0.%d.%d:4711", i/250, i%250+1)
	}
	return requests
}

// BenchmarkHandler calls the handler alone, on all processors at once. The middleware's cost
// is the difference to "bare".
func BenchmarkHandler(b *testing.B) {
	const clients = 10_000
	requests := clientRequests(clients)
	for _, load := range []struct {
		name           string
		limit, clients int
	}{{"admitted,1-client", plenty, 1}, {"admitted,10k-clients", plenty, clients}, {"refused,1-client", one, 1}} {
		for _, c := range contenders {
			if c.name == "bare" && load.limit == one {
				continue
			}
			b.Run(load.name+"/"+c.name, func(b *testing.B) {
				h := c.make(b, load.limit)(hello)
				for range 2 {
					for _, r := range requests[:load.clients] {
						h.ServeHTTP(&quiet{http.Header{}}, r)
					}
				}
				b.ReportAllocs()
				b.ResetTimer()
				defer reportCPU(b)()
				var callers atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					w := &quiet{http.Header{}}
					for i := int(callers.Add(1)) * 7919; pb.Next(); i++ {
						clear(w.h)
						h.ServeHTTP(w, requests[i%load.clients])
					}
				})
			})
		}
	}
}

// BenchmarkServer measures a server under load, over connections of the loopback that are
// kept open and send the next request at once.
func BenchmarkServer(b *testing.B) {
	for _, load := range []struct {
		name  string
		limit int
	}{{"admitted", plenty}, {"refused", one}} {
		for _, c := range contenders {
			if c.name == "bare" && load.limit == one {
				continue
			}
			b.Run(load.name+"/"+c.name, func(b *testing.B) {
				s := httptest.NewUnstartedServer(c.make(b, load.limit)(hello))
				s.Config.ErrorLog = log.New(io.Discard, "", 0)
				s.Start()
				defer s.Close()
				b.ReportAllocs()
				b.SetParallelism(4)
				defer reportCPU(b)()
				b.RunParallel(func(pb *testing.PB) {
					conn, err := net.Dial("tcp", s.Listener.Addr().String())
					if err != nil {
						b.Error(err)
						return
					}
					defer conn.Close()
					in := bufio.NewReader(conn)
					for pb.Next() {
						if err := exchange(conn, in); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

var request = []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")

// exchange sends a request and discards the answer, with as little work as possible.
func exchange(conn net.Conn, in *bufio.Reader) error {
	if _, err := conn.Write(request); err != nil {
		return err
	}
	length := 0
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		const name = "Content-Length: "
		if len(line) > len(name) && string(line[:len(name)]) == name {
			if length, err = strconv.Atoi(string(line[len(name) : len(line)-2])); err != nil {
				return err
			}
		}
		if len(line) <= 2 {
			_, err := in.Discard(length)
			return err
		}
	}
}

// BenchmarkHugeField compares the time to search the longest fields that a server accepts
// with the time to read them.
func BenchmarkHugeField(b *testing.B) {
	inside := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, c := range []struct{ name, header, element string }{
		{"hops", httplimit.XForwardedFor, "10.0.0.1, "},
		{"one-word", httplimit.XForwardedFor, "xxxxxxxxxxx"},
		{"hops", httplimit.Forwarded, "for=10.0.0.1, "},
		{"quotes", httplimit.Forwarded, `"`},
		{"parameters", httplimit.Forwarded, "a=b;"},
		{"escaped", httplimit.Forwarded, `for="\1\1", `},
	} {
		addr, err := httplimit.NewClientAddr(httplimit.AddrConfig{Header: c.header, Trusted: inside})
		if err != nil {
			b.Fatal(err)
		}
		line := make([]byte, 0, 1<<20)
		for len(line) < 1_000_000 {
			line = append(line, c.element...)
		}
		text := "GET / HTTP/1.1\r\nHost: x\r\n" + c.header + ": " + string(line) + "\r\n\r\n"
		read := func() *http.Request {
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
			if err != nil {
				b.Fatal(err)
			}
			r.RemoteAddr = "10.0.0.1:4711"
			return r
		}
		name := c.header + "," + c.name
		b.Run(name+"/reading", func(b *testing.B) {
			for b.Loop() {
				read()
			}
		})
		b.Run(name+"/looking", func(b *testing.B) {
			r := read()
			for b.Loop() {
				if addr.Addr(r).IsValid() {
					b.Fatal("it is too far away")
				}
			}
		})
	}
	for _, c := range []struct{ name, accept string }{
		{"commas", strings.Repeat(",", 1_000_000)}, {"parameters", strings.Repeat(";", 1_000_000)}, {"ranges", strings.Repeat("text/x;q=0.5,", 77_000)},
	} {
		b.Run("Accept,"+c.name+"/refusing", func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header["Accept"] = []string{c.accept}
			h := ral(httplimit.Options{})(b, one)(hello)
			w := &quiet{http.Header{}}
			h.ServeHTTP(w, r)
			for b.Loop() {
				clear(w.h)
				h.ServeHTTP(w, r)
			}
		})
	}
	text := "GET / HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + strings.Repeat("k", 1_000_000) + "\r\n\r\n"
	b.Run("X-Api-Key/reading", func(b *testing.B) {
		for b.Loop() {
			if _, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text))); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("X-Api-Key/hashing", func(b *testing.B) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			b.Fatal(err)
		}
		key := httplimit.ByHeader("X-Api-Key")
		for b.Loop() {
			key(r)
		}
	})
}
