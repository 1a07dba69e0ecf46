package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/ral-limiter/ral/policy"
)

const (
	// XForwardedFor is the header field of that name: a list of addresses, of which each
	// proxy adds that of who it was called by on the right.
	XForwardedFor = "X-Forwarded-For"
	// Forwarded is the header field of RFC 7239: a list of elements, whose parameter
	// "for" says the same.
	Forwarded = "Forwarded"
)

// MaxHops is how many proxies a request may have come through. Who is behind more has no
// address, so that nobody pays for looking through a list that no proxies have made.
const MaxHops = 256

// DefaultIPv6Prefix is how many bits of an IPv6 address tell clients apart: a home or a
// server commonly has 2^64 addresses of its own.
const DefaultIPv6Prefix = 64

// AddrConfig says where a client's address is found. The zero AddrConfig trusts no header
// field: it is that of the connection.
//
// Behind proxies, name the header field that they write, and either who they are or how
// many. Clients can send the same field. What they sent stands on the left of what
// proxies added, so it is read from the right, all its lines together, and only as far as
// proxies wrote it.
type AddrConfig struct {
	// Header is the field that the proxies write: XForwardedFor, Forwarded, or another
	// one, which is read like X-Forwarded-For; "X-Real-IP" is a list of one. "" is none.
	Header string

	// Trusted is where the proxies are. If the connection comes from there, the client
	// is the rightmost address of the field that is not there. If it comes from
	// elsewhere, the field is not looked at: nobody gets around the proxies. If all
	// addresses are there the client is the leftmost, and without a field it is the
	// connection's.
	Trusted []netip.Prefix

	// Hops is for proxies whose addresses are not known: how many there are between the
	// client and this server, each of which adds an address. The client is the address
	// that the first of them added, the Hops-th from the right. Nobody may reach the
	// server but through them: who did could write the field himself. Give either Trusted
	// or Hops.
	Hops int

	// IPv6Prefix is how many bits of an IPv6 address make a key, 1 to 128; 0 is
	// DefaultIPv6Prefix. Addresses of IPv4 are keys whole.
	IPv6Prefix int
}

// ClientAddr finds the addresses of clients. Call [NewClientAddr] to make one. Its methods
// may be called by any number of goroutines, and allocate nothing for what is well-formed,
// backslashes in a Forwarded field aside.
//
// Addresses are plain: those of IPv4 that are mapped into IPv6 are unmapped, and zones
// are cut off. What is not an address where one should stand ("unknown", an obfuscated
// identifier, garbage, an empty element, fewer elements than Hops) is none, nor is what
// is more than MaxHops away: it is not passed over, as further left there may be what a
// client wrote.
type ClientAddr struct {
	header  string // canonical; "" is none
	last    func(list string) (rest, last string, more bool)
	parse   func(element string) netip.Addr
	trusted *prefixes
	hops    int
	bits    int
}

// connection is the ClientAddr of the zero AddrConfig.
var connection = &ClientAddr{last: lastOf, parse: addrOf, bits: DefaultIPv6Prefix}

// NewClientAddr checks the configuration. The error is a *policy.FieldError that names the
// field.
func NewClientAddr(config AddrConfig) (*ClientAddr, error) {
	const of = "httplimit.AddrConfig"
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: of, Field: field, Value: value, Want: want}
	}
	trusted, err := newPrefixes(of, "Trusted", config.Trusted)
	switch {
	case err != nil:
		return nil, err
	case config.Hops < 0 || config.Hops > MaxHops:
		return nil, bad("Hops", config.Hops, "1 to 256, or 0 to go by Trusted")
	case config.Header == "" && config.Hops > 0:
		return nil, bad("Header", `""`, "the field that the proxies write, as Hops is given")
	case config.Header == "" && trusted != nil:
		return nil, bad("Header", `""`, "the field that the proxies write, as Trusted is given")
	case config.Header != "" && !isToken(config.Header):
		return nil, bad("Header", fmt.Sprintf("%q", config.Header), "the name of a header field, such as httplimit.XForwardedFor")
	case config.Header != "" && config.Hops == 0 && trusted == nil:
		return nil, bad("Trusted", "empty", "the prefixes of the proxies that write "+config.Header+", or their number as Hops")
	case config.Hops > 0 && trusted != nil:
		return nil, bad("Hops", config.Hops, "0, as Trusted is given")
	case config.IPv6Prefix < 0 || config.IPv6Prefix > 128:
		return nil, bad("IPv6Prefix", config.IPv6Prefix, "1 to 128, or 0 for 64")
	}
	c := &ClientAddr{
		header:  http.CanonicalHeaderKey(config.Header),
		last:    lastOf,
		parse:   addrOf,
		trusted: trusted,
		hops:    config.Hops,
		bits:    config.IPv6Prefix,
	}
	if c.bits == 0 {
		c.bits = DefaultIPv6Prefix
	}
	if c.header == Forwarded {
		c.last = lastForwarded
		c.parse = func(element string) netip.Addr { return addrOf(nodeOf(element)) }
	}
	return c, nil
}

// ByAddr is the key function for the address of the connection, that of IPv6 cut to 64
// bits. It is right where clients connect to this server themselves. Behind a proxy it
// is the proxy's: use the Key of a [ClientAddr]. A connection without an address, such as a
// Unix socket's, has no key.
func ByAddr(r *http.Request) netip.Addr { return connection.Key(r) }

// Key is the key function for the client's address, that of IPv6 cut to the prefix. There
// is no key if the address cannot be told.
func (c *ClientAddr) Key(r *http.Request) netip.Addr {
	addr := c.Addr(r)
	if !addr.Is6() || c.bits == 128 {
		return addr
	}
	prefix, _ := addr.Prefix(c.bits) // which fits every IPv6 address
	return prefix.Addr()
}

// Addr returns the client's address, whole; the zero Addr if it cannot be told.
func (c *ClientAddr) Addr(r *http.Request) netip.Addr {
	switch {
	case c.header == "":
		return addrOf(r.RemoteAddr)
	case c.hops > 0:
		return c.behind(r.Header[c.header])
	}
	peer := addrOf(r.RemoteAddr)
	if !peer.IsValid() || !c.trusted.contains(peer) {
		return peer
	}
	return c.untrusted(peer, r.Header[c.header])
}

// behind returns the address that is hops from the right.
func (c *ClientAddr) behind(lines []string) netip.Addr {
	hops := c.hops
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; hops-- {
			var element string
			if rest, element, more = c.last(rest); hops == 1 {
				return c.parse(element)
			}
		}
	}
	return netip.Addr{}
}

// untrusted returns the rightmost address that is not trusted, or the leftmost.
func (c *ClientAddr) untrusted(addr netip.Addr, lines []string) netip.Addr {
	hops := 0
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; hops++ {
			if hops == MaxHops {
				return netip.Addr{}
			}
			var element string
			rest, element, more = c.last(rest)
			if addr = c.parse(element); !addr.IsValid() || !c.trusted.contains(addr) {
				return addr
			}
		}
	}
	return addr
}
