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
	// After maxWrong wrong passwords a connection ends.
	maxWrong = 3
	// Beyond maxGuessing addresses the least debt is forgotten.
	maxGuessing = 10_000
)

// guesses bounds the wrong passwords of each address, and the log's lines about them. An IPv6
// address is cut to 64 bits. Clients of Unix sockets share an address.
type guesses struct {
	wrong *engine.Engine[netip.Addr]
	find  *clientaddr.Finder
	log   *slog.Logger
	lines *single.Limiter
	// unlogged counts the refusals since the last line.
	unlogged atomic.Int64
}

// newGuesses admits 60 wrong passwords at once from an address, and then one a second. It logs ten
// lines at once, and then one in ten seconds.
func newGuesses(log *slog.Logger) (*guesses, error) {
	find, err := clientaddr.New("redisserver", clientaddr.Config{})
	if err != nil {
		return nil, err
	}
	wrong, err := engine.New[netip.Addr](engine.Config{
		Name: "rald.passwords", Policy: policy.Must(policy.Funnel(60, 1, time.Second)), MaxKeys: maxGuessing,
	})
	return &guesses{wrong: wrong, find: find, log: log, lines: single.MustNew(policy.Funnel(10, 6, time.Minute))}, err
}

func (g *guesses) key(addr net.Addr) netip.Addr { return g.find.Cut(clientaddr.Parse(addr.String())) }

// mayTry reports whether a password from the address is examined. A right password takes nothing:
// any number of clients may connect from an address.
func (g *guesses) mayTry(addr net.Addr) bool { return g.wrong.Peek(g.key(addr), 0).Remaining > 0 }

func (g *guesses) count(addr net.Addr) {
	g.wrong.Choke(g.key(addr))
	if !g.lines.Choke() {
		g.unlogged.Add(1)
		return
	}
	g.log.Warn("rald: a client gave a wrong password", "client", addr.String(), "not_logged_before", g.unlogged.Swap(0))
}

func (g *guesses) close() { _ = g.wrong.Close() }
