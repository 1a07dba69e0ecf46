package httplimit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// headerAttacks are header fields by which a client may try to get new keys. %d is the number of the try.
var headerAttacks = [][]string{
	{"X-Forwarded-For: 6.6.6.%d"},
	{"X-Forwarded-For: 6.6.6.%d, 7.7.7.%[1]d"},
	{"X-Forwarded-For: 6.6.6.%d", "X-Forwarded-For: 7.7.7.%[1]d"},
	{"x-forwarded-for: 6.6.6.%d", "X-FORWARDED-FOR: 7.7.7.%[1]d"},
	{"X-Forwarded-For: 6.6.6.%d,"},
	{"X-Forwarded-For: ,6.6.6.%d,,"},
	{"X-Forwarded-For:"},
	{"X-Forwarded-For: unknown%d"},
	{"X-Forwarded-For: \"6.6.6.%d"},
	{"X-Forwarded-For: 6.6.6.%d\t"},
	{"X-Forwarded-For: 127.0.0.%d"},
	{"X-Forwarded-For: ::ffff:6.6.6.%d"},
	{"X-Forwarded-For: fe80::%d%%25eth%[1]d"},
	{"X-Forwarded-For: [2001:db8:%d::]:80"},
	{"X_Forwarded_For: 6.6.6.%d"},
	{"X-Real-IP: 6.6.6.%d"},
	{"True-Client-IP: 6.6.6.%d", "CF-Connecting-IP: 6.6.6.%[1]d", "X-Client-IP: 6.6.6.%[1]d"},
	{"Forwarded: for=6.6.6.%d"},
	{"Forwarded: for=\"6.6.6.%d"},
	{"Forwarded: for=\"6.6.6.%d\\"},
	{"Forwarded: for=6.6.6.%d;host=\"a,", "Forwarded: for=7.7.7.%[1]d"},
	{"Forwarded: for=6.6.6.%d, for=\"[2001:db8:%[1]d::1]\"; by=x"},
	{"Host: host%d.example", "X-Forwarded-Host: host%[1]d"},
	{"User-Agent: agent %d", "Cookie: id=%[1]d"},
	{"Connection: X-Forwarded-For, close", "X-Forwarded-For: 6.6.6.%d"},
	{"X-Forwarded-For: 6.6.6.%d" + strings.Repeat(", 10.0.0.1", 50_000)},
	{"Forwarded: for=6.6.6.%d" + strings.Repeat(";x=\"\\\"\"", 50_000)},
	{"X-Forwarded-For: 6.6.6.%d", strings.Repeat("X-Forwarded-For: 10.0.0.1\r\n", 10_000) + "X-A: b"},
}

// appendingProxy returns a proxy that adds the client's address to X-Forwarded-For, as httputil.ReverseProxy
// does, and to Forwarded. done closes its connections.
func appendingProxy(target string) (proxy http.Handler, done func()) {
	u, err := url.Parse(target)
	if err != nil {
		panic(err)
	}
	p := &httputil.ReverseProxy{
		ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
			r.SetXForwarded()
			host, _, _ := net.SplitHostPort(r.In.RemoteAddr)
			before := r.In.Header["Forwarded"]
			r.Out.Header["Forwarded"] = []string{strings.Join(append(before[:len(before):len(before)], "for="+host), ", ")}
		},
	}
	own := http.DefaultTransport.(*http.Transport).Clone()
	p.Transport = own
	return p, own.CloseIdleConnections
}

// sendRaw sends a request exactly as given, over its own connection, and returns the answer's status.
func sendRaw(addr string, lines []string, try int) (int, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	var b strings.Builder
	b.WriteString("GET / HTTP/1.1\r\n")
	host := false
	for _, line := range lines {
		if strings.Contains(line, "%d") {
			line = fmt.Sprintf(line, try)
		}
		host = host || strings.HasPrefix(line, "Host:")
		b.WriteString(line + "\r\n")
	}
	if !host {
		b.WriteString("Host: example.org\r\n")
	}
	b.WriteString("\r\n")
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(conn, b.String())
		sent <- err
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, errors.Join(err, <-sent)
	}
	return resp.StatusCode, resp.Body.Close()
}

// spoof is a request that a client may have tampered with, and the client's address.
type spoof struct {
	what string
	// header is the field that proxies write. "" is none.
	header string
	// hops is the number of proxies, or 0 to go by spoofProxies.
	hops int
	// peer is the address of the connection.
	peer  string
	lines []string
	// want is the client's address. "-" is none.
	want string
}

// spoofProxies are the prefixes of the proxies of spoofs.
var spoofProxies = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:ffff::/48"), netip.MustParsePrefix("::ffff:192.168.0.0/112"),
}

// request returns the request, with the untrusted header field.
func (s *spoof) request() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = s.peer
	for _, line := range s.lines {
		if s.header != "" {
			r.Header.Add(s.header, line)
		}
	}
	other := rfc
	if s.header == rfc {
		other = xff
	}
	r.Header.Set(other, "for=6.6.6.6")
	return r
}

const (
	xff   = XForwardedFor
	rfc   = Forwarded
	proxy = "10.0.0.1:4711"
)

// spoofs are requests that clients have tampered with.
var spoofs = []spoof{
	{"no header is trusted by default", "", 0, "192.0.2.1:1", []string{"6.6.6.6"}, "192.0.2.1"},
	{"a Unix socket", "", 0, "@", []string{"6.6.6.6"}, "-"},

	{"a client that connects directly", xff, 0, "192.0.2.1:1", []string{"6.6.6.6"}, "192.0.2.1"},
	{"through a proxy", xff, 0, proxy, []string{"192.0.2.1"}, "192.0.2.1"},
	{"spoofed on the left", xff, 0, proxy, []string{"6.6.6.6, 192.0.2.1"}, "192.0.2.1"},
	{"spoofed in a line of its own", xff, 0, proxy, []string{"6.6.6.6", "192.0.2.1"}, "192.0.2.1"},
	{"spoofed as if by a proxy", xff, 0, proxy, []string{"6.6.6.6, 10.9.9.9, 192.0.2.1"}, "192.0.2.1"},
	{"two proxies", xff, 0, proxy, []string{"6.6.6.6, 192.0.2.1, 10.0.0.2"}, "192.0.2.1"},
	{"two proxies, a line each", xff, 0, proxy, []string{"6.6.6.6, 192.0.2.1", "10.0.0.2"}, "192.0.2.1"},
	{"a trusted prefix that is mapped", xff, 0, "192.168.7.7:1", []string{"192.0.2.1"}, "192.0.2.1"},
	{"a proxy seen as a mapped address", xff, 0, "[::ffff:10.0.0.1]:1", []string{"192.0.2.1,::ffff:10.0.0.2"}, "192.0.2.1"},
	{"a proxy with a zone", xff, 0, "[2001:db8:ffff::1%eth0]:1", []string{"192.0.2.1"}, "192.0.2.1"},
	{"garbage on the left is not read", xff, 0, proxy, []string{`"<>;=,, 192.0.2.1`}, "192.0.2.1"},
	{"garbage from a proxy", xff, 0, proxy, []string{"192.0.2.1, unknown"}, "-"},
	{"garbage before a proxy", xff, 0, proxy, []string{"6.6.6.6, _hidden, 10.0.0.2"}, "-"},
	{"an empty element", xff, 0, proxy, []string{"192.0.2.1,"}, "-"},
	{"a connection from no address", "", 0, "0.0.0.0:1", nil, "-"},
	{"an unspecified address", xff, 0, proxy, []string{"192.0.2.1, 0.0.0.0"}, "-"},
	{"an unspecified address of IPv6", rfc, 0, proxy, []string{`for=192.0.2.1, for="[::]:80"`}, "-"},
	{"an unspecified address, mapped", xff, 1, proxy, []string{"192.0.2.1, ::ffff:0.0.0.0"}, "-"},
	{"an empty line", xff, 0, proxy, []string{"192.0.2.1", ""}, "-"},
	{"nothing was added", xff, 0, proxy, nil, "10.0.0.1"},
	{"all within", xff, 0, proxy, []string{"10.7.7.7, 10.0.0.2"}, "10.7.7.7"},
	{"no address of the connection", xff, 0, "@", []string{"192.0.2.1"}, "-"},

	{"the most hops", xff, 0, proxy, []string{"192.0.2.1" + strings.Repeat(",10.0.0.2", 256-1)}, "192.0.2.1"},
	{"more hops than that", xff, 0, proxy, []string{"192.0.2.1" + strings.Repeat(",10.0.0.2", 256)}, "-"},
	{"more hops, a line each", xff, 0, proxy, append([]string{"192.0.2.1"}, slices.Repeat([]string{"10.0.0.2"}, 256)...), "-"},

	{"one hop", xff, 1, proxy, []string{"6.6.6.6, 192.0.2.1"}, "192.0.2.1"},
	{"two hops", xff, 2, proxy, []string{"6.6.6.6, 192.0.2.1, 8.8.8.8"}, "192.0.2.1"},
	{"two hops in two lines", xff, 2, proxy, []string{"6.6.6.6, 192.0.2.1", "8.8.8.8"}, "192.0.2.1"},
	{"three hops, of which two are there", xff, 3, proxy, []string{"6.6.6.6, 192.0.2.1"}, "-"},
	{"hops, none there", xff, 1, proxy, nil, "-"},
	{"the hop is garbage", xff, 2, proxy, []string{"6.6.6.6, unknown, 8.8.8.8"}, "-"},
	{"an empty element counts as a hop", xff, 2, proxy, []string{"192.0.2.1,, 8.8.8.8"}, "-"},
	{"another field", "x-real-ip", 1, proxy, []string{"192.0.2.1"}, "192.0.2.1"},

	{"Forwarded", rfc, 0, proxy, []string{"for=192.0.2.1"}, "192.0.2.1"},
	{"Forwarded, other parameters", rfc, 0, proxy, []string{"proto=https;For=192.0.2.1;by=10.0.0.2;host=example.org"}, "192.0.2.1"},
	{"Forwarded, quoted", rfc, 0, proxy, []string{`for="192.0.2.1:4711"`}, "192.0.2.1"},
	{"Forwarded, IPv6", rfc, 0, proxy, []string{`for="[2001:db8::17]:4711", for=10.0.0.2`}, "2001:db8::17"},
	{"Forwarded, escaped for no reason", rfc, 0, proxy, []string{`for="\1\9\2.0.2.1"`}, "192.0.2.1"},
	{"Forwarded, a long zone", rfc, 0, proxy, []string{`for="[fe80::1%` + strings.Repeat("z", 200) + `]"`}, "fe80::1"},
	{"Forwarded, too long a zone", rfc, 0, proxy, []string{`for="[fe80::1%` + strings.Repeat("z", 300) + `]"`}, "-"},
	{"Forwarded, too long and escaped", rfc, 0, proxy, []string{`for="\fe80::1%` + strings.Repeat("z", 300) + `"`}, "-"},
	{"Forwarded, a long element", rfc, 0, proxy, []string{`for=192.0.2.1;x="` + strings.Repeat("x", 4096-len(`for=192.0.2.1;x=""`)) + `"`}, "192.0.2.1"},
	{"Forwarded, too long an element", rfc, 0, proxy, []string{`for=192.0.2.1;x="` + strings.Repeat("x", 4096) + `"`}, "-"},
	{"Forwarded, a comma in a quoted string", rfc, 0, proxy, []string{`for=192.0.2.1;host="a,for=6.6.6.6"`}, "192.0.2.1"},
	{"Forwarded, a quote in a quoted string", rfc, 0, proxy, []string{`for=192.0.2.1;host="a\",for=6.6.6.6"`}, "192.0.2.1"},
	{"Forwarded, an open quote on the left", rfc, 0, proxy, []string{`for="6.6.6.6, for=192.0.2.1`}, "192.0.2.1"},
	{"Forwarded, an open quote in the line before", rfc, 0, proxy, []string{`for="6.6.6.6`, `for=192.0.2.1`}, "192.0.2.1"},
	{"Forwarded, a quote closed by what was added", rfc, 0, proxy, []string{`for=6.6.6.6;host="x, for=192.0.2.1;host="y"`}, "192.0.2.1"},
	{"Forwarded, obfuscated", rfc, 0, proxy, []string{"for=192.0.2.1, for=_proxy"}, "-"},
	{"Forwarded, unknown", rfc, 0, proxy, []string{"for=192.0.2.1, for=unknown"}, "-"},
	{"Forwarded, bare IPv6", rfc, 0, proxy, []string{"for=[2001:db8::17]"}, "-"},
	{"Forwarded, no for", rfc, 0, proxy, []string{"for=192.0.2.1, proto=https"}, "-"},
	{"Forwarded, two fors", rfc, 0, proxy, []string{"for=192.0.2.1;for=6.6.6.6"}, "-"},
	{"Forwarded, an empty element", rfc, 0, proxy, []string{"for=192.0.2.1, "}, "-"},
	{"Forwarded, an empty value", rfc, 0, proxy, []string{`for="";for=192.0.2.1`}, "-"},
	{"Forwarded, a space", rfc, 0, proxy, []string{"for = 192.0.2.1"}, "-"},
	{"Forwarded, a semicolon at the end", rfc, 0, proxy, []string{"for=192.0.2.1;"}, "192.0.2.1"},
	{"Forwarded, empty pairs", rfc, 0, proxy, []string{";;for=192.0.2.1;;proto=http;"}, "192.0.2.1"},
	{"Forwarded, nothing but a semicolon", rfc, 0, proxy, []string{";"}, "-"},
	{"Forwarded, what follows a quoted string", rfc, 0, proxy, []string{`for="192.0.2.1"x`}, "-"},
	{"Forwarded, a list of addresses", rfc, 0, proxy, []string{"192.0.2.1"}, "-"},
	{"Forwarded by hops", rfc, 2, proxy, []string{`for=6.6.6.6, for=192.0.2.1`, `for="_x;,\","`}, "192.0.2.1"},
	{"Forwarded, X-Forwarded-For is not read", rfc, 0, proxy, nil, "10.0.0.1"},
}
