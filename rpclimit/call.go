package rpclimit

import (
	"context"
	"net"
	"net/netip"

	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
)

// Call is a remote procedure call as limits see it. An adapter fills it in. It must not change
// until the call has ended.
type Call struct {
	// Context is the call's context. It is required. No call waits beyond its deadline.
	Context context.Context
	// Procedure is the full name of the method: "/package.Service/Method".
	Procedure string
	// Peer is the address of the connection, or the zero Addr if it has none, as of a Unix
	// socket. PeerOf and ParsePeer return it.
	Peer netip.Addr
	// Header has the metadata that came with the call. nil is none.
	Header Header
	// Identity is what authenticated the caller, such as the credentials.AuthInfo of gRPC, or nil.
	Identity any
	// Message is the request of a call that has one, and nil as a stream opens. Functions of
	// Options and of a Limit that run for a message of a stream see that message here.
	Message any
	// Stream reports whether messages are announced by Session.Received and Session.Sent. A
	// call with one request and one response is none. At a tap it is false, as it is not known
	// there.
	Stream bool
	// Tapped is what Limits.Tap returned for this call, or nil.
	Tapped *Session

	counted bool // whether Stats counts the call already, as the tap refused it
}

// Header is the metadata of a call. It is an interface so that neither an http.Header nor a
// metadata.MD is copied.
type Header interface {
	// Values returns the values of a name. It comes spelled in both of the ways in which
	// maps have it, as "x-api-key" and as "X-Api-Key", so that none has to be made for a call.
	// The caller does not change them.
	Values(lower, canonical string) []string
}

// PeerOf returns the address of a connection's other end for Call.Peer. It allocates nothing
// for a *net.TCPAddr. It returns the zero Addr if there is none, as of a Unix socket.
func PeerOf(addr net.Addr) netip.Addr {
	switch a := addr.(type) {
	case nil:
		return netip.Addr{}
	case *net.TCPAddr:
		if a == nil {
			return netip.Addr{}
		}
		return a.AddrPort().Addr().Unmap().WithZone("")
	}
	return ParsePeer(addr.String())
}

// ParsePeer returns an address with or without a port for Call.Peer, or the zero Addr if text is
// none.
func ParsePeer(text string) netip.Addr { return clientaddr.Parse(text) }

// service returns the part of a procedure's name before its method: "package.Service".
func service(procedure string) string {
	if len(procedure) > 0 && procedure[0] == '/' {
		procedure = procedure[1:]
	}
	for i := len(procedure) - 1; i >= 0; i-- {
		if procedure[i] == '/' {
			return procedure[:i]
		}
	}
	return ""
}
