package redisserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/policy"
)

// New returns a Server. Shutdown ends it.
func New(config Config) (*Server, error) {
	if config.Families == nil || config.Limits == nil {
		return nil, errors.New("redisserver: Families or Limits is nil: families.New and configured.New make them")
	}
	if config.Rounding < RoundTrue || config.Rounding > RoundDragonfly {
		return nil, fmt.Errorf("redisserver: Rounding is %d: RoundTrue, RoundRedisCell or RoundDragonfly is accepted", config.Rounding)
	}
	if len(config.Password) > MaxPassword {
		return nil, fmt.Errorf("redisserver: Password has %d bytes: at most %d are accepted, as no client can send more", len(config.Password), MaxPassword)
	}
	if err := config.Reserve.complete(); err != nil {
		return nil, err
	}
	config.Clients = cmp.Or(config.Clients, 10_000)
	config.Idle = cmp.Or(config.Idle, time.Hour)
	config.Within = cmp.Or(config.Within, 10*time.Second)
	config.Command.Arguments = cmp.Or(config.Command.Arguments, 1024)
	config.Command.Command = cmp.Or(config.Command.Command, 64<<10)
	config.Command.Argument = cmp.Or(config.Command.Argument, config.Command.Command)
	config.Log = cmp.Or(config.Log, slog.Default())
	server := &Server{
		config: config, catalog: catalog{config.Families, families.NewKnown[string, policy.Policy](), families.NewKnown[[3]int64, policy.Policy]()}, started: time.Now(),
		reservations: newReservations(config.Reserve),
		commands:     make([]commandCounts, len(commands)+1),
		listeners:    map[net.Listener]bool{}, conns: map[*conn]bool{},
	}
	if config.Password != "" {
		var err error
		if server.guesses, err = newGuesses(config.Log); err != nil {
			return nil, err
		}
	}
	server.closing, server.close = context.WithCancel(context.Background())
	return server, nil
}

// Serve accepts connections until the listener fails, or returns nil after Shutdown. Several
// listeners may be served.
func (s *Server) Serve(listener net.Listener) error {
	if !s.listen(listener) {
		return listener.Close()
	}
	var pause time.Duration
	for {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			pause = 0
			s.serve(conn)
		case s.closing.Err() != nil:
			return nil
		case isTemporary(err):
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.config.Log.Warn("rald: a connection could not be accepted", "error", err, "again_in", pause)
			select {
			case <-time.After(pause):
			case <-s.closing.Done():
			}
		default:
			return err
		}
	}
}

func isTemporary(err error) bool {
	var temporary interface{ Temporary() bool }
	return errors.As(err, &temporary) && temporary.Temporary()
}

func (s *Server) listen(listener net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Err() != nil {
		return false
	}
	s.listeners[listener] = true
	return true
}

// serve starts the goroutine of a connection, or refuses it.
func (s *Server) serve(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Err() != nil {
		_ = nc.Close()
		return
	}
	if len(s.conns) >= s.config.Clients {
		s.refused.Add(1)
		_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = nc.Write([]byte("-ERR max number of clients reached\r\n"))
		_ = nc.Close()
		return
	}
	s.total.Add(1)
	conn := newConn(s, nc)
	s.conns[conn] = true
	s.clients.Add(1)
	s.running.Go(func() {
		defer s.forget(conn)
		conn.serve()
	})
}

func (s *Server) forget(conn *conn) {
	_ = conn.net.Close()
	s.clients.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// Shutdown accepts no more connections, ends waiting calls, lets each connection answer the
// commands it has read, and ends it. When ctx ends it cuts off the others, and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.close()
	for listener := range s.listeners {
		_ = listener.Close()
	}
	for conn := range s.conns {
		conn.interrupt()
	}
	s.mu.Unlock()
	s.scans.end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.running.Wait()
		if s.guesses != nil {
			s.guesses.close()
		}
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	for conn := range s.conns {
		_ = conn.net.Close()
	}
	s.mu.Unlock()
	<-done
	return ctx.Err()
}
