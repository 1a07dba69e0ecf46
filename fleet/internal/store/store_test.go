package store_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// shared serves all tests that do it no harm, under their own names.
var shared *redistest.Server

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if shared, err = redistest.Open(redistest.Options{}); err != nil {
			fmt.Fprintln(os.Stderr, "redis-server is needed: tools/need redis installs it:", err)
			return 1
		}
		defer func() { _ = shared.Close() }()
		return m.Run()
	}())
}

func connect(t testing.TB, server *redistest.Server) rueidis.Client {
	t.Helper()
	client := must.Get(rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr()}, ForceSingleClient: true, DisableCache: true, AlwaysPipelining: true,
	}))
	t.Cleanup(client.Close)
	return client
}

// clocked returns a store with own names and the test's clock, in microseconds.
func clocked(t testing.TB, client rueidis.Client, clock *int64) *store.Store {
	t.Helper()
	return store.New(client, store.Options{Name: own(t), Clock: func() int64 { return *clock }})
}

var names atomic.Int64

// own returns a name that no other test or run has.
func own(t testing.TB) string { return fmt.Sprintf("%s-%d", t.Name(), names.Add(1)) }

func limit(t testing.TB, s *store.Store, p policy.Policy) *store.Limit { return must.Get(s.Limit(p)) }

func name(t testing.TB, s *store.Store, l *store.Limit, key string) string {
	return must.Get(s.Name(l, key))
}

func put(t testing.TB, client rueidis.Client, name, value string) {
	t.Helper()
	require.NoError(t, client.Do(context.Background(), client.B().Set().Key(name).Value(value).Build()).Error())
}

func get(t testing.TB, client rueidis.Client, name string) string {
	t.Helper()
	value, err := client.Do(context.Background(), client.B().Get().Key(name).Build()).ToString()
	require.NoError(t, err)
	return value
}
