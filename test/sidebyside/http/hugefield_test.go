package sidebyside

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/ral-limiter/ral/httplimit"
)

// BenchmarkHugeField compares searching the longest accepted fields with reading them.
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
			h := ral(httplimit.Options{})(b, hourly(one))(hello)
			w := &quiet{h: http.Header{}}
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
