package redistest

import (
	"net"
	"strconv"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
)

func text(t *testing.T, m rueidis.RedisMessage) string {
	t.Helper()
	if n, err := m.AsInt64(); err == nil {
		return strconv.FormatInt(n, 10)
	}
	return must.Get(m.ToString())
}

func TestRestartKeepsAddressAndDataOnDisk(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		left string
	}{
		{"in memory", Options{}, "0"},
		{"on disk", Options{AOF: true}, "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Start(t, c.o)
			s.Do(t, "SET", "key", "1")
			addr := s.Addr()

			s.Kill()
			_, err := net.Dial("tcp", addr)
			require.Error(t, err, "the killed server accepts connections")

			require.NoError(t, s.Restart())
			require.Equal(t, addr, s.Addr())
			require.Equal(t, c.left, text(t, s.Do(t, "EXISTS", "key")))
		})
	}
}

func TestOptionsReachTheServer(t *testing.T) {
	s := Start(t, Options{MaxMemory: "3mb", Policy: "allkeys-lru", Args: []string{"--hz", "17"}})
	for setting, want := range map[string]string{"maxmemory": "3145728", "maxmemory-policy": "allkeys-lru", "hz": "17", "appendonly": "no"} {
		reply := s.Do(t, "CONFIG", "GET", setting)
		require.Equal(t, want, must.Get(reply.AsStrMap())[setting])
	}
}

func TestReplicaIsReadOnlyAndFollows(t *testing.T) {
	s := Start(t, Options{})
	s.Do(t, "SET", "key", "before")
	r := s.Replica(t)
	require.Equal(t, "before", text(t, r.Do(t, "GET", "key")))
	_, err := r.ask("SET", "key", "other")
	require.ErrorContains(t, err, "READONLY")
}

func TestSentinelMakesAReplicaTheMaster(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	r := s.Replica(t)
	sentinel := s.Sentinel(t, "tested", 1)
	s.Kill()
	await(t, "the other master", func() bool {
		said := must.Get(sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "tested"))
		addr := must.Get(said.AsStrSlice())
		return net.JoinHostPort(addr[0], addr[1]) == r.Addr()
	})
	require.Equal(t, "OK", text(t, r.Do(t, "SET", "key", "after")))
}

func TestClusterSharesTheSlots(t *testing.T) {
	t.Parallel()
	cluster := StartCluster(t, Options{})
	client := must.Get(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{cluster[0].Addr()}, DisableCache: true}))
	defer client.Close()
	for i := range 100 {
		require.NoError(t, client.Do(t.Context(), client.B().Set().Key("key"+strconv.Itoa(i)).Value("1").Build()).Error())
	}
	for _, s := range cluster {
		n, err := strconv.Atoi(text(t, s.Do(t, "DBSIZE")))
		require.NoError(t, err)
		require.Greater(t, n, 10, "each has its part")
	}
}
