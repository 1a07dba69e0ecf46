package redistest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// commandTime bounds a test's command. Writing to disk on a busy machine may take over 10 seconds.
const commandTime = time.Minute

// Client returns a client on a single connection, closed with the test. It retries lost commands.
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

// Do sends a command on its own connection and returns the reply. Without a reply the test fails.
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
