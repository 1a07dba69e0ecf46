package store_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
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

// The client itself only says that the time was up.
func TestUntrustedCertificateIsNamed(t *testing.T) {
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	certified.Close()
	// In a bubble a handshake takes no time.
	synctest.Test(t, func(t *testing.T) {
		o := rueidis.ClientOption{
			InitAddress: []string{"redis:6379"}, TLSConfig: &tls.Config{ServerName: "localhost"},
			DialCtxFn: func(ctx context.Context, _ string, _ *net.Dialer, config *tls.Config) (net.Conn, error) {
				client, server := net.Pipe()
				go func() {
					defer server.Close()
					_ = tls.Server(server, certified.TLS).HandshakeContext(ctx)
				}()
				if config == nil {
					return client, nil
				}
				encrypted := tls.Client(client, config)
				return encrypted, encrypted.HandshakeContext(ctx)
			},
		}
		for _, err := range []error{store.WhyRefused(t.Context(), o, io.EOF), store.Connecting(t.Context(), o, context.DeadlineExceeded)} {
			require.ErrorIs(t, err, store.ErrAsking)
			require.ErrorContains(t, err, "certificate")
		}
	})
}

const (
	rollTTL  = 3 * time.Second
	rollKeep = time.Minute
)

// Servers count by Redis's clock until they leave or their TTL passes, and are remembered for
// longer. An outage makes no server forget the others. TestRollIsTheFakes has the script.
func TestHeartbeatCountsServersUntilTheirTTL(t *testing.T) {
	clock := int64(1_000_000)
	s := storetest.New().Store(store.Options{Clock: func() int64 { return clock }})
	beat := func(id string, present, remembered int) {
		t.Helper()
		r, err := s.Heartbeat(t.Context(), store.Beat{ID: id, TTL: rollTTL, Keep: rollKeep, Limit: "limit of " + id})
		require.NoError(t, err)
		assert.Equal(t, []int{present, remembered, present}, []int{r.Present, r.Remembered, len(r.Limits)})
		assert.Equal(t, policy.Instant(clock*1000), r.Now)
	}
	beat("a", 1, 1)
	beat("b", 2, 2)
	beat("a", 2, 2)
	clock += 2_999_999
	beat("c", 3, 3)
	clock++
	beat("c", 1, 3)
	clock += 3600_000_000
	beat("a", 2, 3)
	require.NoError(t, s.Leave(t.Context(), "never there"))
	for _, c := range []struct{ seconds, present, remembered int }{{2, 2, 3}, {57, 1, 3}, {3, 1, 2}, {1, 1, 1}} {
		for range c.seconds {
			clock += 1_000_000
			beat("c", c.present, c.remembered)
		}
	}
}

// Foreign values under the names of the roll and its limits are an error that says what to do.
func TestForeignRollIsAnErrorWithAdvice(t *testing.T) {
	client := connect(t, shared)
	o := store.Options{Name: own(t)}
	roll := "ral:" + o.Name + ":servers"
	limits := "ral:" + o.Name + ":limits{" + roll + "}"
	for _, wrong := range [][]string{
		{"SET", roll, "x"},
		{"SET", limits, "x"},
		{"ZADD", limits, "9e15", "foreign"},
		{"ZADD", limits, "9e15", "12345"},
		{"ZADD", limits, "9e15", "twelve words"},
	} {
		require.NoError(t, ask(t, client, wrong...).Error())
		_, err := store.New(client, o).Heartbeat(t.Context(), store.Beat{ID: "a", TTL: rollTTL, Keep: rollKeep, Limit: "any"})
		require.ErrorIs(t, err, store.ErrNoRoll, "%v", wrong)
		require.NotErrorIs(t, err, store.ErrForeignValue, "it is not about a key")
		require.ErrorContains(t, err, roll)
		require.ErrorContains(t, err, "delete it")
		require.NoError(t, ask(t, client, "DEL", roll, limits).Error())
	}
}

// Slot agrees with the cluster, all slots have a node, and a probe goes to its node.
func TestSlotsAgreeWithTheCluster(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.Options{})
	client := must.Get(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{cluster[0].Addr()}, DisableCache: true}))
	t.Cleanup(client.Close)
	for _, tag := range []string{"", "tag"} {
		s := store.New(client, store.Options{Name: own(t), Tag: tag})
		l := limit(t, s, policy.Must(policy.Funnel(1, 1, time.Hour)))
		for _, key := range []string{"a", "", "{", "}", "ü\x00", strings.Repeat("x", 129), "123456789"} {
			name := name(t, s, l, key)
			require.EqualValues(t, integer(t, client, "CLUSTER", "KEYSLOT", name), l.Slot(store.Tail(key)), "%.10q", key)
		}
		ranges := must.Get(s.Slots(t.Context()))
		nodes, slots := map[string]bool{}, 0
		for _, r := range ranges {
			nodes[r.Node] = true
			slots += r.Last - r.First + 1
			probe := s.ProbeIn(func(slot int) bool { return slot >= r.First && slot <= r.Last })
			slot := int(integer(t, client, "CLUSTER", "KEYSLOT", probe))
			require.True(t, slot >= r.First && slot <= r.Last, "%s is in %d", probe, slot)
			require.NoError(t, s.Probe(t.Context(), probe))
		}
		require.Equal(t, store.SlotCount, slots)
		for _, server := range cluster {
			require.True(t, nodes[server.Addr()], "%v has %s", nodes, server.Addr())
		}
		require.Empty(t, s.ProbeIn(func(int) bool { return false }))
	}
	for _, server := range cluster {
		server.Kill()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := store.New(client, store.Options{Name: own(t)}).Slots(ctx)
	require.ErrorIs(t, err, store.ErrAsking, fmt.Sprint(err))
}

// A tail of up to 130 bytes stands for a key of any length.
func TestTailStandsForTheKey(t *testing.T) {
	s := store.New(connect(t, shared), store.Options{Name: own(t)})
	l := limit(t, s, policy.Must(policy.Funnel(10, 1, time.Hour)))
	tails := map[string]bool{}
	for i, key := range []string{"a", "", "{b}", "}", strings.Repeat("x", 128), strings.Repeat("x", 129), strings.Repeat("x", 1<<16)} {
		tail := store.Tail(key)
		require.LessOrEqual(t, len(tail), 130)
		require.False(t, tails[tail])
		tails[tail] = true
		require.Equal(t, []error{nil}, s.ChargeEach(t.Context(), l, []store.Debt{{Tail: tail, Units: 3}}))
		standing, err := s.Peek(t.Context(), l, key)
		require.NoError(t, err)
		require.EqualValues(t, 7, standing.Remaining, "key %d", i)
	}
}
