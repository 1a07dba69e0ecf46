package rpclimit

import (
	"context"
	"net"
	"net/netip"

	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
)

// Call is a remote procedure call. An adapter fills in a Call, which must not change until the call
// ends.
type Call struct {
	// Context is the call's context. The context is required. No call waits beyond its deadline.
	Context context.Context
	// Procedure is the full name of the method: "/package.Service/Method".
	Procedure string
	// Peer is the connection's address, by PeerOf or ParsePeer. Peer may be the zero Addr.
	Peer netip.Addr
	// Header has the metadata that came with the call. nil is none.
	Header Header
	// Identity authenticated the caller, such as the credentials.AuthInfo of gRPC, or nil.
	Identity any
	// Message is the request or the decided message of a stream, and nil as a stream opens.
	Message any
	// Stream reports whether Session.Received and Session.Sent are called for messages. Stream is
	// false for one request with one response, and at a tap.
	Stream bool
	// Tapped is the Session of Guard.Tap for this call, or nil.
	Tapped *Session

	// counted reports whether the tap refused and counted the call.
	counted bool
}

// Header is the metadata of a call, an http.Header or a metadata.MD without a copy.
type Header interface {
	// Values returns the values of a name, spelled "x-api-key" and "X-Api-Key". The caller must not
	// change the values.
	Values(lower, canonical string) []string
}

// PeerOf returns the address of a connection's other end for Call.Peer, without allocation for a
// *net.TCPAddr. PeerOf returns the zero Addr if there is none, as of a Unix socket.
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

// ParsePeer returns an address with or without a port for Call.Peer, or the zero Addr.
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
