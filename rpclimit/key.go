package rpclimit

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
	"github.com/ral-limiter/ral/limits"
)

// Key finds the key of a call for a limit. Of is required. A program's own key is written as:
//
//	rpclimit.Key[int64]{By: "account", Of: func(c *rpclimit.Call) int64 { return account(c.Context) }}
type Key[K comparable] struct {
	// By tells clients the kind of key, such as "address", "metadata x-tenant" or "", not the key.
	By string
	// Of returns the key, or the zero value of K if there is none. Of runs on the call's goroutine,
	// and once more for a line of Options.Logger, and must be safe for concurrent use.
	Of func(c *Call) K
	// OfMessage means that Of, or the Limit's Cost or PolicyFor, reads Call.Message. Such a limit
	// takes its Cost with a stream's first received message. ByMessage sets OfMessage.
	OfMessage bool
}

// ByAddr finds the connection's address, an IPv6 address cut to 64 bits. Behind a proxy use
// [ClientAddr.Key]. A connection without an address, such as a Unix socket, has no key.
var ByAddr = connection.Key()

// ByProcedure finds the called method, such as "/package.Service/Method". All clients share its
// key: combine that key with another by [Both]. With a tap handle, clients can invent methods.
var ByProcedure = Key[string]{By: "method", Of: func(call *Call) string { return call.Procedure }}

// ByService finds the called service, such as "package.Service".
var ByService = Key[string]{By: "service", Of: func(call *Call) string { return service(call.Procedure) }}

// ByMetadata finds the value of a metadata key, such as an API key. A missing or empty value is no
// key. The first of repeated values counts. Values longer than 64 bytes are replaced by their
// SHA-256 hash. An invalid name makes a Key that New refuses.
//
// Values are not checked: a client may invent a new key for each call. Put this limit behind
// authentication, or a limit by address beside it.
func ByMetadata(name string) Key[string] {
	if !clientaddr.IsToken(name) {
		return Key[string]{}
	}
	lower, canonical := strings.ToLower(name), http.CanonicalHeaderKey(name)
	return Key[string]{By: "metadata " + lower, Of: func(call *Call) string {
		if call.Header == nil {
			return ""
		}
		values := call.Header.Values(lower, canonical)
		if len(values) == 0 {
			return ""
		}
		return clientaddr.Bounded(clientaddr.Trim(values[0]))
	}}
}

// ByIdentity finds a key in Call.Identity. If that is nil there is no key.
func ByIdentity[K comparable](find func(identity any) K) Key[K] {
	if find == nil {
		return Key[K]{}
	}
	return Key[K]{By: "identity", Of: func(call *Call) (none K) {
		if call.Identity == nil {
			return none
		}
		return find(call.Identity)
	}}
}

// ByContext finds a key in the call's context, where an earlier interceptor has put the key.
func ByContext[K comparable](find func(ctx context.Context) K) Key[K] {
	if find == nil {
		return Key[K]{}
	}
	return Key[K]{By: "identity", Of: func(call *Call) K { return find(call.Context) }}
}

// ByMessage finds a key in the request. A call with a message that is no M has no key. A stream's
// first received message takes the limit's Cost: see [Key.OfMessage].
//
//	rpclimit.ByMessage(func(r *shop.OrderRequest) string { return r.GetShop() })
func ByMessage[M any, K comparable](find func(message M) K) Key[K] {
	if find == nil {
		return Key[K]{}
	}
	return Key[K]{By: "message", OfMessage: true, Of: func(call *Call) (none K) {
		m, ok := call.Message.(M)
		if !ok {
			return none
		}
		return find(m)
	}}
}

// Both combines two keys into keys that are pairs. If a part is missing, so is the key.
func Both[A, B comparable](a Key[A], b Key[B]) Key[limits.Pair[A, B]] {
	if a.Of == nil || b.Of == nil {
		return Key[limits.Pair[A, B]]{}
	}
	return Key[limits.Pair[A, B]]{By: a.By + ", " + b.By, OfMessage: a.OfMessage || b.OfMessage, Of: admission.Both(a.Of, b.Of)}
}

// AddrConfig is as httplimit.AddrConfig. The zero AddrConfig takes the connection's address.
type AddrConfig struct {
	// Header is the metadata that proxies write, such as "X-Forwarded-For" or "Forwarded", or "".
	Header string
	// Trusted lists the prefixes of the proxies. Other connections' Header is not read.
	Trusted []netip.Prefix
	// Hops is the number of proxies, if their addresses are not known. Set either Trusted or Hops.
	Hops int
	// IPv4Prefix and IPv6Prefix are how many bits of an address make a key. 0 is 32 and 64.
	IPv4Prefix int
	IPv6Prefix int
	// NAT64 lists prefixes with embedded IPv4 addresses, besides 64:ff9b::/96.
	NAT64 []netip.Prefix
}

// ClientAddr finds clients' addresses, also concurrently. Call [NewClientAddr] to make one.
type ClientAddr struct {
	finder *clientaddr.Finder
	// lower is the Header in lower case.
	lower string
}

var connection = &ClientAddr{finder: clientaddr.Connection}

// NewClientAddr checks the configuration. An error is a *policy.FieldError.
func NewClientAddr(config AddrConfig) (*ClientAddr, error) {
	finder, err := clientaddr.New("rpclimit", clientaddr.Config(config))
	if err != nil {
		return nil, err
	}
	return &ClientAddr{finder, strings.ToLower(finder.Header())}, nil
}

// Key finds the client's address, cut to the prefix. Without one there is no key.
func (c *ClientAddr) Key() Key[netip.Addr] {
	return Key[netip.Addr]{By: "address", Of: func(call *Call) netip.Addr { return c.finder.Cut(c.Addr(call)) }}
}

// Addr returns the client's address, uncut, or the zero Addr if the address is unknown.
func (c *ClientAddr) Addr(call *Call) netip.Addr {
	if !c.finder.Trusts(call.Peer) {
		return call.Peer
	}
	var lines []string
	if call.Header != nil {
		lines = call.Header.Values(c.lower, c.finder.Header())
	}
	return c.finder.Behind(call.Peer, lines)
}
