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

// Stats are the figures of a Server since New.
type Stats struct {
	// Clients is the number of present connections.
	Clients int
	// Accepted counts connections.
	Accepted uint64
	// Refused counts the connections beyond Config.Clients.
	Refused uint64
	// Garbled counts the connections that ended because they sent no command.
	Garbled  uint64
	Commands []CommandStats

	Reservations ReservationStats
}

// CommandStats are the figures of a command.
type CommandStats struct {
	// Name is in lower case. "unknown" stands for all unknown commands.
	Name string
	// OK and Errors count the commands by the reply.
	OK, Errors uint64
}

// count counts a reply. A nil command is unknown.
func (s *Server) count(command *command, isError bool) {
	index := len(commands)
	if command != nil {
		index = command.index
	}
	if isError {
		s.commands[index].errors.Add(1)
	} else {
		s.commands[index].ok.Add(1)
	}
}

// Stats returns the figures, with commands in order of their names.
func (s *Server) Stats() Stats {
	all := Stats{
		Clients: int(s.clients.Load()), Accepted: uint64(s.total.Load()),
		Refused: uint64(s.refused.Load()), Garbled: uint64(s.garbled.Load()),
		Reservations: s.reservations.stats(),
	}
	add := func(name string, counts *commandCounts) {
		all.Commands = append(all.Commands, CommandStats{name, counts.ok.Load(), counts.errors.Load()})
	}
	for _, name := range names() {
		add(name, &s.commands[commands[name].index])
	}
	add("unknown", &s.commands[len(commands)])
	return all
}

func (s Stats) total() (n uint64) {
	for _, stats := range s.Commands {
		n += stats.OK + stats.Errors
	}
	return n
}
