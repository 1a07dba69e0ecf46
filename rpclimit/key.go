package rpclimit

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
	"github.com/ral-limiter/ral/limits"
)

// Key finds the key of a call for a limit. Of is required. The key functions of this package
// may be used as they are; a key of the program's own is a Key with its function:
//
//	rpclimit.Key[int64]{By: "account", Of: func(c *rpclimit.Call) int64 { return account(c.Context) }}
type Key[K comparable] struct {
	// By tells clients what the limit goes by, as the dimension of a violation: "address", or
	// "metadata x-tenant". It never has the key itself. It may be "".
	By string
	// Of returns the key. The zero value of K means that there is none, and Limit.WhenNoKey
	// then chooses the answer. It runs on the call's goroutine, and once more for a line of
	// Options.Logger, and must be safe for concurrent use.
	Of func(c *Call) K
	// OfMessage reports that Of, or the Limit's Cost or PolicyFor, reads Call.Message. A
	// stream has no message as it opens, so such a limit takes its Cost with the first message
	// that the stream receives. ByMessage sets it.
	OfMessage bool
}

// ByAddr finds the address of the connection, an IPv6 address cut to 64 bits. It is right for
// servers that clients connect to directly. Behind a proxy use [ClientAddr.Key]. A connection
// without an address, such as that of a Unix socket, has no key.
var ByAddr = connection.Key()

// ByProcedure finds the method that is called, such as "/package.Service/Method". All clients
// share its key: combine it with another by [Both]. With a tap handle, clients can invent
// methods that there are not.
var ByProcedure = Key[string]{By: "method", Of: func(c *Call) string { return c.Procedure }}

// ByService finds the service that is called, such as "package.Service".
var ByService = Key[string]{By: "service", Of: func(c *Call) string { return service(c.Procedure) }}

// ByMetadata finds the value of a metadata key, such as an API key. A value that is missing or
// empty is no key. If it is repeated the first one counts. Values longer than 64 bytes are
// replaced by their SHA-256 hash, which bounds a key's size. A name that no metadata key can
// have makes a Key that New refuses.
//
// A value is not checked. A client that invents one for each call has a new key each time:
// put this limit behind authentication, or put a limit by address beside it.
func ByMetadata(name string) Key[string] {
	if !clientaddr.IsToken(name) {
		return Key[string]{}
	}
	lower, canonical := strings.ToLower(name), http.CanonicalHeaderKey(name)
	return Key[string]{By: "metadata " + lower, Of: func(c *Call) string {
		if c.Header == nil {
			return ""
		}
		values := c.Header.Values(lower, canonical)
		if len(values) == 0 {
			return ""
		}
		return clientaddr.Bounded(clientaddr.Trim(values[0]))
	}}
}

// ByIdentity finds a key in what authenticated the caller: of is given Call.Identity unless it
// is nil, in which case there is no key.
func ByIdentity[K comparable](of func(identity any) K) Key[K] {
	if of == nil {
		return Key[K]{}
	}
	return Key[K]{By: "identity", Of: func(c *Call) (none K) {
		if c.Identity == nil {
			return none
		}
		return of(c.Identity)
	}}
}

// ByContext finds a key in the call's context, where an earlier interceptor has put it.
func ByContext[K comparable](of func(ctx context.Context) K) Key[K] {
	if of == nil {
		return Key[K]{}
	}
	return Key[K]{By: "identity", Of: func(c *Call) K { return of(c.Context) }}
}

// ByMessage finds a key in the request: of is given the message if it is an M. A call with
// another message has no key. Of a stream the first message that it receives takes the limit's
// Cost: see [Key.OfMessage].
//
//	rpclimit.ByMessage(func(r *shop.OrderRequest) string { return r.GetShop() })
func ByMessage[M any, K comparable](of func(message M) K) Key[K] {
	if of == nil {
		return Key[K]{}
	}
	return Key[K]{By: "message", OfMessage: true, Of: func(c *Call) (none K) {
		m, ok := c.Message.(M)
		if !ok {
			return none
		}
		return of(m)
	}}
}

// Both combines two keys: each pair of them is a key of its own. If either part is missing, so
// is the key.
func Both[A, B comparable](a Key[A], b Key[B]) Key[limits.Pair[A, B]] {
	if a.Of == nil || b.Of == nil {
		return Key[limits.Pair[A, B]]{}
	}
	return Key[limits.Pair[A, B]]{By: a.By + ", " + b.By, OfMessage: a.OfMessage || b.OfMessage, Of: func(c *Call) limits.Pair[A, B] {
		var none limits.Pair[A, B]
		pair := limits.Pair[A, B]{A: a.Of(c), B: b.Of(c)}
		if pair.A == none.A || pair.B == none.B {
			return none
		}
		return pair
	}}
}

// AddrConfig configures where a client's address is found. The zero AddrConfig trusts no
// metadata: the address is the connection's. The fields are those of httplimit.AddrConfig,
// which says how each is read.
type AddrConfig struct {
	// Header is the metadata that the proxies write: "X-Forwarded-For", "Forwarded", or
	// another one, which is read like X-Forwarded-For. "" is none.
	Header string
	// Trusted lists the prefixes of the proxies. If the connection comes from elsewhere the
	// Header is not read, so clients cannot bypass the proxies.
	Trusted []netip.Prefix
	// Hops is the number of proxies between the client and this server, for proxies whose
	// addresses are not known. Set either Trusted or Hops.
	Hops int
	// IPv6Prefix is the number of bits of an IPv6 address that make a key, 1 to 128. The
	// default is 64. IPv4 addresses are keys as a whole.
	IPv6Prefix int
	// NAT64 lists prefixes in which translators embed IPv4 addresses, in addition to the
	// well-known 64:ff9b::/96.
	NAT64 []netip.Prefix
}

// ClientAddr finds the addresses of clients. Call [NewClientAddr] to make one. Any number of
// goroutines may call its methods.
type ClientAddr struct {
	of    *clientaddr.Finder
	lower string // the Header in lower case
}

var connection = &ClientAddr{of: clientaddr.Connection}

// NewClientAddr checks the configuration. An error is a *policy.FieldError that names the field.
func NewClientAddr(config AddrConfig) (*ClientAddr, error) {
	of, err := clientaddr.New("rpclimit", clientaddr.Config(config))
	if err != nil {
		return nil, err
	}
	return &ClientAddr{of, strings.ToLower(of.Header())}, nil
}

// Key finds the client's address, an IPv6 address cut to the prefix. A call without an address
// has no key.
func (c *ClientAddr) Key() Key[netip.Addr] {
	return Key[netip.Addr]{By: "address", Of: func(call *Call) netip.Addr { return c.of.Cut(c.Addr(call)) }}
}

// Addr returns the client's address as it is, uncut, or the zero Addr if it is unknown.
func (c *ClientAddr) Addr(call *Call) netip.Addr {
	if !c.of.Trusts(call.Peer) {
		return call.Peer
	}
	var lines []string
	if call.Header != nil {
		lines = call.Header.Values(c.lower, c.of.Header())
	}
	return c.of.Behind(call.Peer, lines)
}
