package httplimit

import (
	"net/http"
	"net/netip"

	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
)

const (
	// XForwardedFor names a list of addresses. Each proxy adds its client's address on the right.
	XForwardedFor = "X-Forwarded-For"
	// Forwarded is the field of RFC 7239. The parameter "for" of its elements holds the address.
	Forwarded = "Forwarded"
)

// AddrConfig tells where a client's address is. The zero AddrConfig takes the connection's.
//
// Behind proxies, name the header field that they write, and either their addresses or their
// number. Clients can send the same field, to the left of the proxies' additions. So the field is
// read from the right, all its lines together, and only as far as proxies wrote it.
type AddrConfig struct {
	// Header is the field that the proxies write: XForwardedFor, Forwarded, or another, which is
	// read like X-Forwarded-For ("X-Real-IP" is a list with a single address). "" is none.
	Header string

	// Trusted lists the prefixes of the proxies. The field of other connections is not read. The
	// client is its rightmost address that is not in Trusted. If all are, it is the leftmost, and
	// if the field is missing the connection's.
	Trusted []netip.Prefix

	// Hops is the number of proxies between the client and this server, if their addresses are not
	// known. The client is the Hops-th address from the right. The server must be reachable through
	// the proxies only: other clients could write the field themselves. Set either Trusted or Hops.
	Hops int

	// IPv4Prefix and IPv6Prefix are how many bits of an address make a key, 1 to 32 and 1 to 128. 0
	// is all 32 bits of an IPv4 address, and 64 of an IPv6 address: a home or a server commonly has
	// 2^64 addresses.
	IPv4Prefix int
	IPv6Prefix int

	// NAT64 lists prefixes with embedded IPv4 addresses besides 64:ff9b::/96: see [ClientAddr.Key].
	// For a local translator list its prefix within 64:ff9b:1::/48 (RFC 8215). The length, 32, 40,
	// 48, 56, 64 or 96 bits, gives the position of the IPv4 address (RFC 6052, section 2.2).
	// Clients must have such addresses only through a translator. The longest prefix counts.
	NAT64 []netip.Prefix
}

// ClientAddr finds the addresses of clients. Call [NewClientAddr] to make one. Its methods are safe
// for concurrent use. Only malformed addresses and backslashes in Forwarded allocate.
//
// IPv4 addresses mapped into IPv6 are unmapped, and zones are cut off. There is no address if the
// element in the client's place is malformed ("unknown", an obfuscated identifier, 0.0.0.0, ::, an
// empty element), or if there are fewer elements than Hops. Addresses further left may be the
// client's own. There is none behind more than 256 proxies either, which bounds the cost of reading
// a forged list.
type ClientAddr struct{ finder clientaddr.Finder }

var connection = &ClientAddr{*clientaddr.Connection}

// NewClientAddr checks the configuration. An error is a *policy.FieldError.
func NewClientAddr(config AddrConfig) (*ClientAddr, error) {
	finder, err := clientaddr.New("httplimit", clientaddr.Config(config))
	if err != nil {
		return nil, err
	}
	return &ClientAddr{*finder}, nil
}

// ByAddr is the key function for the connection's address, an IPv6 address cut to 64 bits: see
// [ClientAddr.Key]. Use it for servers that clients connect to directly; behind a proxy use the Key
// of a [ClientAddr]. A connection without an address, such as a Unix socket, has no key. Nor has a
// request of http.NewRequest: in tests use httptest.NewRequest, or set Request.RemoteAddr.
func ByAddr(request *http.Request) netip.Addr { return connection.Key(request) }

// Key is the key function for the client's address, cut to the prefix. It returns the zero Addr if
// there is none.
//
// An address with an embedded IPv4 address (RFC 6052) gives that address's key, as all clients of a
// translator share their leading bits. This holds for 64:ff9b::/96 with a public IPv4 address, and
// for AddrConfig.NAT64 with any. Other addresses of 64:ff9b::/96 share a key. Teredo addresses
// are not read, as the client chooses the bits. For clients of 6to4 set IPv6Prefix to 48.
func (c *ClientAddr) Key(request *http.Request) netip.Addr { return c.finder.Cut(c.Addr(request)) }

// Addr returns the client's address, uncut and not translated, or the zero Addr if unknown.
// Trusted, Options.Allow and Options.Deny are compared with it.
func (c *ClientAddr) Addr(request *http.Request) netip.Addr {
	var peer netip.Addr
	if c.finder.ReadsPeer() {
		peer = clientaddr.Parse(request.RemoteAddr)
	}
	if !c.finder.Trusts(peer) {
		return peer
	}
	return c.finder.Behind(peer, request.Header[c.finder.Header()])
}
