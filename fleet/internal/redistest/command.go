package redistest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// commandTime bounds how long a command of a test may take. On a busy machine a server that
// writes to disk may take longer than 10 seconds for one.
const commandTime = time.Minute

// Client returns a client of the server, which is closed with the test. Its commands
// are sent on one connection, and again on another if that is lost.
func (s *Server) Client(t testing.TB) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(s.option())
	if err != nil {
		t.Fatalf("connecting to redis-server: %v", err)
	}
	t.Cleanup(client.Close)
	return client
}

func (s *Server) option() rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: []string{s.Addr()}, DisableCache: true, ForceSingleClient: true,
		ConnWriteTimeout: commandTime, Dialer: net.Dialer{Timeout: commandTime},
	}
}

// Do sends one command on a connection of its own and returns what the server replied.
// If it did not, the test fails.
func (s *Server) Do(t testing.TB, command ...string) rueidis.RedisMessage {
	t.Helper()
	reply, err := s.ask(command...)
	if err != nil {
		t.Fatalf("%v: %v", command, err)
	}
	return reply
}

func (s *Server) ask(command ...string) (rueidis.RedisMessage, error) {
	client, err := rueidis.NewClient(s.option())
	if err != nil {
		return rueidis.RedisMessage{}, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	return client.Do(ctx, client.B().Arbitrary(command[0]).Args(command[1:]...).Build()).ToMessage()
}
