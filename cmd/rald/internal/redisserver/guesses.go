package redisserver

import (
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

const (
	// mostWrong is the number of wrong passwords after which a connection ends.
	mostWrong = 3
	// mostGuessing is the most addresses whose wrong passwords are remembered. Beyond it the
	// one that owes least is forgotten.
	mostGuessing = 10_000
)

// guesses bounds the wrong passwords of each address, and the lines of the log about them. An
// IPv6 address is cut to 64 bits. Clients of Unix sockets count as one address.
type guesses struct {
	wrong    *engine.Engine[netip.Addr]
	find     *clientaddr.Finder
	log      *slog.Logger
	lines    *single.Limiter
	unlogged atomic.Int64 // since the last line
}

// newGuesses returns a guesses that lets an address send 60 wrong passwords at once, and one a
// second from then on. It writes ten lines at once, and one in ten seconds from then on.
func newGuesses(log *slog.Logger) (*guesses, error) {
	find, err := clientaddr.New("redisserver", clientaddr.Config{})
	if err != nil {
		return nil, err
	}
	wrong, err := engine.New[netip.Addr](engine.Config{
		Name: "rald.passwords", Policy: policy.Must(policy.Funnel(60, 1, time.Second)), MaxKeys: mostGuessing,
	})
	return &guesses{wrong: wrong, find: find, log: log, lines: single.MustNew(policy.Funnel(10, 6, time.Minute))}, err
}

func (g *guesses) key(addr net.Addr) netip.Addr { return g.find.Cut(clientaddr.Parse(addr.String())) }

// mayTry reports whether a password from the address is looked at. A right one takes nothing,
// so that any number of clients may connect from one address.
func (g *guesses) mayTry(addr net.Addr) bool { return g.wrong.Peek(g.key(addr)).Remaining > 0 }

// count counts a wrong password, and logs it if there is room for a line.
func (g *guesses) count(addr net.Addr) {
	g.wrong.Choke(g.key(addr))
	if !g.lines.Choke() {
		g.unlogged.Add(1)
		return
	}
	g.log.Warn("rald: a client gave a wrong password", "client", addr.String(), "not_logged_before", g.unlogged.Swap(0))
}

func (g *guesses) close() { _ = g.wrong.Close() }
