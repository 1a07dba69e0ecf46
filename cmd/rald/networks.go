package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

// networks is a flag's value with the networks of a door's clients: prefixes and addresses,
// separated by commas. The empty value names none.
type networks []netip.Prefix

func (n *networks) String() string {
	var all []string
	for _, prefix := range *n {
		all = append(all, prefix.String())
	}
	return strings.Join(all, ",")
}

func (n *networks) Set(text string) error {
	*n = nil
	for one := range strings.SplitSeq(text, ",") {
		one = strings.TrimSpace(one)
		prefix, err := clientaddr.ParsePrefix(one)
		// A zone is not accepted.
		if err != nil || strings.Contains(one, "%") {
			return fmt.Errorf("%q is no network: networks such as 10.0.0.0/8 and addresses are accepted, separated by commas", one)
		}
		*n = append(*n, prefix.Masked())
	}
	return nil
}

// has reports whether a client is in a network, on this machine or on a Unix socket.
func (n networks) has(client net.Addr) bool {
	tcp, ok := client.(*net.TCPAddr)
	if !ok {
		return true
	}
	addr, _ := netip.AddrFromSlice(tcp.IP)
	addr = addr.Unmap()
	for _, prefix := range n {
		if prefix.Contains(addr) {
			return true
		}
	}
	return addr.IsLoopback()
}

type guarded struct {
	net.Listener
	flag    string
	clients networks
	log     *slog.Logger
	// lines limits the lines of the log.
	lines *single.Limiter
}

func guard(listener net.Listener, flag string, clients networks, log *slog.Logger) net.Listener {
	if len(clients) == 0 {
		return listener
	}
	return &guarded{listener, flag, clients, log, single.MustNew(policy.Funnel(10, 6, time.Minute))}
}

func (g *guarded) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil || g.clients.has(conn.RemoteAddr()) {
			return conn, err
		}
		if g.lines.Choke() {
			g.log.Warn("rald closes a connection from outside the networks of clients", "address", conn.RemoteAddr().String(), "flag", g.flag)
		}
		_ = conn.Close()
	}
}
