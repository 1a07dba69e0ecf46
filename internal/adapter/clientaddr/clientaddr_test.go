package clientaddr

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/testkit/must"
)

const xForwardedFor = "X-Forwarded-For"

type finder struct{ *Finder }

func find(config Config) (finder, error) {
	f, err := New("clientaddr", config)
	return finder{f}, err
}

func (f finder) Addr(r *http.Request) netip.Addr {
	peer := Parse(r.RemoteAddr)
	if !f.Trusts(peer) {
		return peer
	}
	return f.Behind(peer, r.Header[f.Header()])
}

func prefixList(list ...string) (all []netip.Prefix) {
	for _, p := range list {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

// Promise: A malformed hop is no address.
func TestMalformedHopIsNoAddress(t *testing.T) {
	for s, want := range map[string]string{
		"192.0.2.1":                             "192.0.2.1",
		"192.0.2.1:4711":                        "192.0.2.1",
		"192.0.2.1:_hidden":                     "192.0.2.1",
		"2001:db8::1":                           "2001:db8::1",
		"[2001:db8::1]":                         "2001:db8::1",
		"[2001:db8::1]:4711":                    "2001:db8::1",
		"[2001:db8::1]:_a.b-c_":                 "2001:db8::1",
		"fe80::1%eth0":                          "fe80::1",
		"[fe80::1%25eth0]:80":                   "fe80::1",
		"::ffff:192.0.2.1":                      "192.0.2.1",
		"[::ffff:192.0.2.1]:80":                 "192.0.2.1",
		"::ffff:192.0.2.1%eth0":                 "192.0.2.1",
		"::ffff:c000:201":                       "192.0.2.1",
		"2001:DB8:0:0:0:0:0:1":                  "2001:db8::1",
		"":                                      "",
		"unknown":                               "",
		"_hidden":                               "",
		"localhost":                             "",
		"192.0.2.1.":                            "",
		"192.0.2":                               "",
		"192.0.2.01":                            "",
		"0xc0.0.2.1":                            "",
		"3221225985":                            "",
		"192.0.2.256":                           "",
		"192.0.2.1%eth0":                        "",
		"[192.0.2.1]":                           "",
		"fe80::1%":                              "",
		"192.0.2.1:":                            "",
		"192.0.2.1:+80":                         "",
		"192.0.2.1:-80":                         "",
		"192.0.2.1:65536":                       "",
		"192.0.2.1:000080":                      "",
		"192.0.2.1:_":                           "",
		"192.0.2.1:_a b":                        "",
		"[2001:db8::1":                          "",
		"[2001:db8::1]4711":                     "",
		"[2001:db8::1]:":                        "",
		"[[2001:db8::1]]":                       "",
		"2001:db8::1]":                          "",
		"192.0.2.1 ":                            "",
		"\"192.0.2.1\"":                         "",
		"192.0.2.1\x00":                         "",
		"@":                                     "",
		"/run/socket":                           "",
		"١٩٢.0.2.1":                             "",
		"fe80::1%" + strings.Repeat("z", 10000): "",
	} {
		got := Parse(s)
		if want == "" {
			assert.False(t, got.IsValid(), "%q gives %v", s, got)
			continue
		}
		assert.Equal(t, netip.MustParseAddr(want), got, "%q", s)
	}
}

func TestPrefixesContainTheirAddresses(t *testing.T) {
	p := must.Get(NewPrefixes("", "", prefixList("10.0.0.0/8", "192.0.2.7/32", "192.0.2.99/28", "2001:db8::/32", "::ffff:198.51.100.0/120")))
	for addr, want := range map[string]bool{
		"10.255.0.1": true, "11.0.0.0": false, "192.0.2.7": true, "192.0.2.8": false,
		"192.0.2.96": true, "192.0.2.111": true, "192.0.2.112": false,
		"2001:db8:ffff::": true, "2001:db9::": false, "198.51.100.200": true, "198.51.101.0": false,
	} {
		assert.Equal(t, want, p.Contains(netip.MustParseAddr(addr)), addr)
	}
	assert.False(t, p.Contains(netip.Addr{}))
	var none *Prefixes
	assert.False(t, none.Contains(netip.MustParseAddr("10.0.0.1")))
	everything := must.Get(NewPrefixes("", "", prefixList("0.0.0.0/0")))
	assert.True(t, everything.Contains(netip.MustParseAddr("8.8.8.8")))
	assert.False(t, everything.Contains(netip.MustParseAddr("2001:db8::1")))
}

// A parser after RFC 7239 reads the same elements from the left, however the list is spelled.
func FuzzForwarded(f *testing.F) {
	for _, seed := range []string{
		`for=192.0.2.1`, `for="[2001:db8::17]:47",for=unknown;by=_x`, `for="a\",b";proto=http, For=1.2.3.4`, `"`, `,`, `for="\`,
		`for="a\\",for=b`, `for="x`, `;`, `for=1.2.3.4;`, "for=\t1.2.3.4",
	} {
		f.Add(seed)
	}
	a := must.Get(find(Config{Header: forwarded, Hops: 1}))
	trusting := must.Get(find(Config{Header: forwarded, Trusted: prefixList("10.0.0.0/8")}))
	f.Fuzz(func(t *testing.T, line string) {
		elements, ok := forwards(line)
		if ok && len(line) <= maxElement {
			rest, more := line, true
			for i := len(elements) - 1; i >= 0; i-- {
				if !more {
					t.Fatalf("%q: %d elements too few", line, i+1)
				}
				var last string
				rest, last, more = lastForwarded(rest)
				if got := nodeOf(last); got != elements[i] {
					t.Fatalf("%q: element %d is %q, want %q", line, i, got, elements[i])
				}
			}
			if more {
				t.Fatalf("%q: more than %d elements", line, len(elements))
			}
		}
		// The proxy's element decides, whatever the client sent.
		for _, h := range []http.Header{
			{forwarded: {line + ", for=192.0.2.1"}}, {forwarded: {line, `for="192.0.2.1:80";host="a,b"`}},
			{forwarded: {line + `, for="192.0.2.1";host="\","`}},
		} {
			r := &http.Request{RemoteAddr: "10.0.0.1:1", Header: h}
			want := netip.MustParseAddr("192.0.2.1")
			if got := a.Addr(r); got != want {
				t.Fatalf("%q hides the client: %v", line, got)
			}
			if got := trusting.Addr(r); got != want {
				t.Fatalf("%q hides the client: %v", line, got)
			}
		}
		if got := a.Addr(&http.Request{Header: http.Header{forwarded: {line}}}); got.Is4In6() || got.Zone() != "" {
			t.Fatalf("%q gives %v", line, got)
		}
	})
}

// forwards reads a Forwarded field from the left, and reports whether it is well-formed. It shares
// no code with the functions under test. A "for" that is longer than any address is cut.
func forwards(line string) (nodes []string, ok bool) {
	const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	i := 0
	blank := func() {
		for i < len(line) && (line[i] == ' ' || line[i] == '\t') {
			i++
		}
	}
	for {
		blank()
		seen, node := false, ""
		for {
			start := i
			for i < len(line) && strings.Contains(token, line[i:i+1]) {
				i++
			}
			name := line[start:i]
			if name == "" || i == len(line) || line[i] != '=' {
				return nil, false
			}
			i++
			var value []byte
			if i < len(line) && line[i] == '"' {
				for i++; ; i++ {
					if i == len(line) {
						return nil, false
					}
					if line[i] == '"' {
						i++
						break
					}
					if line[i] == '\\' {
						if i++; i == len(line) {
							return nil, false
						}
					}
					if line[i] != '\t' && line[i] < ' ' || line[i] == 0x7f {
						return nil, false
					}
					value = append(value, line[i])
				}
			} else {
				for i < len(line) && strings.Contains(token, line[i:i+1]) {
					value = append(value, line[i])
					i++
				}
				if len(value) == 0 {
					return nil, false
				}
			}
			if strings.ToLower(name) == "for" {
				if seen || len(value) == 0 || len(value) > maxNode {
					return nil, false
				}
				seen, node = true, string(value)
			}
			if i == len(line) || line[i] != ';' {
				break
			}
			i++
		}
		nodes = append(nodes, node)
		blank()
		if i == len(line) {
			return nodes, true
		}
		if line[i] != ',' {
			return nil, false
		}
		i++
	}
}

func FuzzXForwardedFor(f *testing.F) {
	for _, seed := range []string{"192.0.2.1", "192.0.2.1, 10.0.0.1", "[::1]:80,unknown", ",", "fe80::1%eth0", "::ffff:1.2.3.4", "1.2.3.4:99999"} {
		f.Add(seed)
	}
	inside := prefixList("10.0.0.0/8")
	trusting := must.Get(find(Config{Header: xForwardedFor, Trusted: inside}))
	f.Fuzz(func(t *testing.T, line string) {
		parts := strings.Split(line, ",")
		for hops := 1; hops <= min(len(parts)+1, MaxHops); hops++ {
			a := must.Get(find(Config{Header: xForwardedFor, Hops: hops}))
			var want netip.Addr
			if hops <= len(parts) {
				want = Parse(strings.Trim(parts[len(parts)-hops], " \t"))
			}
			if got := a.Addr(&http.Request{Header: http.Header{xForwardedFor: {line}}}); got != want {
				t.Fatalf("%q: %d hops away is %v, want %v", line, hops, got, want)
			}
			if want.IsValid() && (want.Is4In6() || want.Zone() != "") {
				t.Fatalf("%q gives %v", line, want)
			}
		}
		for _, lines := range [][]string{{line, "192.0.2.1"}, {line + ",192.0.2.1"}, {line + ", 192.0.2.1 , 10.0.0.2"}, {line, "192.0.2.1", "10.0.0.2"}} {
			got := trusting.Addr(&http.Request{RemoteAddr: "10.0.0.1:1", Header: http.Header{xForwardedFor: lines}})
			if got != netip.MustParseAddr("192.0.2.1") {
				t.Fatalf("%q hides the client: %v", lines, got)
			}
		}
		// A found client is not inside, unless all addresses are.
		got := trusting.Addr(&http.Request{RemoteAddr: "10.0.0.1:1", Header: http.Header{xForwardedFor: {line}}})
		if len(parts) <= MaxHops && got.IsValid() && inside[0].Contains(got) {
			for _, part := range parts {
				if !inside[0].Contains(Parse(strings.Trim(part, " \t"))) {
					t.Fatalf("%q: %v, but %q is not inside", line, got, part)
				}
			}
		}
	})
}

// The short way to read an address gives the same as the general way.
func FuzzPlainIPv4(f *testing.F) {
	for _, seed := range []string{
		"192.0.2.1", "0.0.0.0", "255.255.255.255", "1.2.3.4:5", "1.2.3.4:65535", "1.2.3.4:00080",
		"256.1.1.1", "1.1.1.256", "01.2.3.4", "1.2.3.00", "1.2.3", "1.2.3.4.5", "1..2.3", "1.2.3.", ".1.2.3",
		"1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:000080", "1.2.3.4:_a", "1.2.3.4:5:6", "1.2.3:4", "1:2.3.4", "1.2.3.4/8",
		"1.2.3.4 ", "1.2.3.4%eth0", "4294967296.1.1.1", "1.2.3.18446744073709551617", "", "::1", "[::1]:80",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if addr, ok := plainIPv4(s); ok && addr != anyAddr(s) {
			t.Fatalf("%q gives %v, want %v", s, addr, anyAddr(s))
		}
	})
}

func TestPlainIPv4IsRecognized(t *testing.T) {
	for s, want := range map[string]bool{
		"0.0.0.0": true, "192.0.2.1": true, "255.255.255.255": true, "192.0.2.1:4711": true, "192.0.2.1:0": true,
		"192.0.2.1:_hidden": false, "[192.0.2.1]": false, "::ffff:192.0.2.1": false, "192.0.2.01": false, "": false,
	} {
		_, got := plainIPv4(s)
		assert.Equal(t, want, got, "%q", s)
	}
}

// An address means the same with a port and in brackets.
func FuzzAddrOf(f *testing.F) {
	for _, seed := range []string{"192.0.2.1", "2001:db8::1", "fe80::1%eth0", "::ffff:1.2.3.4", "unknown", "[", "1.2.3.4:5"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Parse(s)
		plain, err := netip.ParseAddr(s)
		if err != nil {
			if port, err := netip.ParseAddrPort(s); err == nil && got.IsValid() && got != port.Addr().Unmap().WithZone("") && !port.Addr().Unmap().IsUnspecified() {
				t.Fatalf("%q gives %v", s, got)
			}
			return
		}
		if len(s) > maxNode {
			return
		}
		want := plain.WithZone("").Unmap()
		if want.IsUnspecified() {
			want = netip.Addr{}
		}
		if got != want {
			t.Fatalf("%q gives %v, want %v", s, got, want)
		}
		if strings.Contains(plain.Zone(), "]") {
			// A bracket in the zone would close the brackets.
			return
		}
		if plain.Is4() {
			s = fmt.Sprintf("%s:4711", s)
		} else {
			s = fmt.Sprintf("[%s]:4711", s)
		}
		if got := Parse(s); got != want && len(s) <= maxNode {
			t.Fatalf("%q gives %v, want %v", s, got, want)
		}
	})
}
