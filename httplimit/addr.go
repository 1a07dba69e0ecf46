package httplimit

import (
	"net/http"
	"net/netip"

	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
)

const (
	// XForwardedFor is the header field of that name, a list of addresses. Each proxy adds
	// the address of its own client on the right.
	XForwardedFor = "X-Forwarded-For"
	// Forwarded is the header field of RFC 7239, a list of elements. Their parameter "for"
	// holds the same address.
	Forwarded = "Forwarded"
)

// MaxHops is the most proxies that a request may come through. A client behind more has no
// address, which bounds the cost of reading a list that no proxies have written.
const MaxHops = clientaddr.MaxHops

// DefaultIPv6Prefix is the number of leading bits of an IPv6 address that tell clients
// apart: a home or a server commonly has 2^64 addresses of its own.
const DefaultIPv6Prefix = clientaddr.DefaultIPv6Prefix

// AddrConfig configures where a client's address is found. The zero AddrConfig trusts no
// header field: the address is the connection's.
//
// Behind proxies, name the header field that they write, and either their addresses or
// their number. Clients can send the same field. What they sent stands to the left of what
// proxies added. So the field is read from the right, all its lines together, and only as
// far as proxies wrote it.
type AddrConfig struct {
	// Header is the field that the proxies write: XForwardedFor, Forwarded, or another
	// one, which is read like X-Forwarded-For. "X-Real-IP" is a list of one address. "" is
	// none.
	Header string

	// Trusted lists the prefixes of the proxies. If the connection comes from one of them,
	// the client is the rightmost address of the field that is not in any. If all are, it
	// is the leftmost, and if the field is missing it is the connection's. If the connection
	// comes from elsewhere the field is not read, so clients cannot bypass the proxies.
	Trusted []netip.Prefix

	// Hops is the number of proxies between the client and this server, for proxies whose
	// addresses are not known. Each adds an address, and the client is the one that the
	// first of them added: the Hops-th from the right. The server must be reachable
	// through the proxies only, as a client that connects directly could write the field
	// itself. Set either Trusted or Hops.
	Hops int

	// IPv6Prefix is the number of bits of an IPv6 address that make a key, 1 to 128. The
	// default is DefaultIPv6Prefix. IPv4 addresses are keys as a whole.
	IPv6Prefix int

	// NAT64 lists prefixes in which translators embed IPv4 addresses, in addition to the
	// well-known 64:ff9b::/96: see [ClientAddr.Key]. 64:ff9b:1::/48 is set aside for local
	// ones (RFC 8215); list the prefix within it that your translator uses. Its length is
	// 32, 40, 48, 56, 64 or 96 bits and gives the position of the IPv4 address (RFC 6052,
	// section 2.2). No client may have an address in it except through the translator. If
	// prefixes overlap, the longest that holds an address counts.
	NAT64 []netip.Prefix
}

// ClientAddr finds the addresses of clients. Call [NewClientAddr] to make one. Any number of
// goroutines may call its methods. They allocate nothing for a well-formed address, except
// for backslashes in a Forwarded field.
//
// IPv4 addresses that are mapped into IPv6 are unmapped, and zones are cut off. If there is
// no address where one should stand ("unknown", an obfuscated identifier, garbage, an empty
// element, fewer elements than Hops, more than MaxHops), the client has none. Such an element
// is not skipped: those to its left may be the client's own.
type ClientAddr struct{ of clientaddr.Finder }

// connection is the ClientAddr of the zero AddrConfig.
var connection = &ClientAddr{*clientaddr.Connection}

// NewClientAddr checks the configuration. An error is a *policy.FieldError that names the
// field.
func NewClientAddr(config AddrConfig) (*ClientAddr, error) {
	of, err := clientaddr.New("httplimit", clientaddr.Config(config))
	if err != nil {
		return nil, err
	}
	return &ClientAddr{*of}, nil
}

// ByAddr is the key function for the address of the connection, an IPv6 address cut to 64
// bits: see [ClientAddr.Key]. It is right for servers that clients connect to directly.
// Behind a proxy the address is the proxy's: use the Key of a [ClientAddr]. A connection
// without an address, such as that of a Unix socket, has no key.
func ByAddr(r *http.Request) netip.Addr { return connection.Key(r) }

// Key is the key function for the client's address, an IPv6 address cut to the prefix. A
// request without an address has no key.
//
// An address in which a translator embedded an IPv4 address (RFC 6052) gives the key of
// that IPv4 address: all clients of a translator share their leading bits. This is done for
// the well-known prefix 64:ff9b::/96 with a public IPv4 address, and for AddrConfig.NAT64
// with any. Translators must not use the well-known prefix for other IPv4 addresses, so
// those remain IPv6 and share one key.
//
// Other embeddings are not looked at. A client chooses the bits that Teredo embeds. A client
// of 6to4 has 48 bits of prefix like many others: set IPv6Prefix to 48 if that matters.
func (c *ClientAddr) Key(r *http.Request) netip.Addr { return c.of.Cut(c.Addr(r)) }

// Addr returns the client's address as it is, uncut and not translated, or the zero Addr if
// it is unknown. Trusted, Options.Allow and Options.Deny are compared with it.
func (c *ClientAddr) Addr(r *http.Request) netip.Addr {
	var peer netip.Addr
	if c.of.ReadsPeer() {
		peer = clientaddr.Parse(r.RemoteAddr)
	}
	if !c.of.Trusts(peer) {
		return peer
	}
	return c.of.Behind(peer, r.Header[c.of.Header()])
}
