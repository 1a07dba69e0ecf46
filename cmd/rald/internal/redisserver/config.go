package redisserver

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/resp"
)

// Config configures a Server.
type Config struct {
	// Families keep the keys, and Limits the configured limits in these Families. Both are
	// required.
	Families *families.Families
	Limits   *configured.Limits
	// Password is for AUTH, at most MaxPassword bytes. If empty none is needed.
	Password string
	// Reserve bounds what clients hold by RAL.RESERVE.
	Reserve ReserveConfig
	// Rounding is how CL.THROTTLE rounds to seconds.
	Rounding Rounding
	// Clients bounds the connections. The default is 10,000.
	Clients int
	// Idle ends a silent connection, after the password if one is needed. The default is an hour.
	Idle time.Duration
	// Within bounds the time of a started command, of reading replies, of the handshake of TLS, and
	// then of the password. The default is 10 seconds.
	Within time.Duration
	// Command bounds commands. The defaults are 1,024 arguments, and 64 KiB for each and in all.
	Command resp.Limits
	// Reloads have the faults of the configuration, for INFO.
	Reloads configfile.Reloads
	// Log is told of faults. The default is slog.Default().
	Log *slog.Logger
}

// MaxPassword bounds the bytes of a password that a client can send.
const MaxPassword = 1 << 10

// greeting bounds commands before the password.
var greeting = resp.Limits{Arguments: 16, Argument: MaxPassword, Command: 4 << 10}

// Server serves clients of Redis. New makes it.
type Server struct {
	config  Config
	catalog catalog
	scans   scans
	// guesses is nil without a password.
	guesses *guesses
	// reservations are used by holdings alone.
	reservations *reservations
	expiring     sync.Once
	started      time.Time

	ids atomic.Int64
	// commands has the counts by command.index, unknown commands last.
	commands []commandCounts
	// refused counts connections.
	refused atomic.Int64
	clients atomic.Int64
	// total counts connections.
	total atomic.Int64
	// garbled counts connections.
	garbled atomic.Int64
	running sync.WaitGroup

	closing context.Context
	close   context.CancelFunc

	mu        sync.Mutex
	listeners map[net.Listener]bool
	conns     map[*conn]bool
}

type commandCounts struct{ ok, errors atomic.Uint64 }

// holdings returns the reservations, whose deadlines a goroutine applies from the first call on.
func (s *Server) holdings() *reservations {
	s.expiring.Do(func() { s.running.Go(func() { s.reservations.run(s.closing) }) })
	return s.reservations
}
