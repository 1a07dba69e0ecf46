package redistest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ral-limiter/ral/internal/testkit/child"
)

// Replica starts a read-only replica for a test, and waits until it is in sync.
func (s *Server) Replica(t testing.TB) *Server {
	t.Helper()
	// With a delay, a new replica's copy would wait for others.
	s.Do(t, "CONFIG", "SET", "repl-diskless-sync-delay", "0")
	server := Start(t, Options{Args: []string{"--replicaof", "127.0.0.1 " + s.port()}})
	await(t, "the replica's link", func() bool {
		said, err := server.ask("INFO", "replication")
		if err != nil {
			return false
		}
		info, err := said.ToString()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	return server
}

// Sentinel starts a sentinel for a test, and waits until it knows so many replicas. It watches the
// server under the name, and promotes a replica after half a second without it.
func (s *Server) Sentinel(t testing.TB, name string, replicas int) *Server {
	t.Helper()
	sentinel := start(t, child.RedisConfig{Args: []string{"--sentinel"}, Settings: fmt.Sprintf(
		"sentinel monitor %[1]s 127.0.0.1 %[2]s 1\nsentinel down-after-milliseconds %[1]s 500\nsentinel failover-timeout %[1]s 5000\n", name, s.port())})
	await(t, "the sentinel to find the replicas", func() bool {
		said, err := sentinel.ask("SENTINEL", "REPLICAS", name)
		if err != nil {
			return false
		}
		known, err := said.ToArray()
		return err == nil && len(known) == replicas
	})
	return sentinel
}

// nodes is the size of a cluster: fewer cannot agree that a node is gone.
const nodes = 3

// StartCluster starts three masters for a test, each with a third of the slots, and waits until the
// cluster is in order.
func StartCluster(t testing.TB, options Options) []*Server {
	t.Helper()
	cluster := make([]*Server, nodes)
	const slots = 1 << 14
	for i := range cluster {
		cluster[i] = start(t, child.RedisConfig{Cluster: true, Args: append([]string{"--cluster-node-timeout", "2000"}, options.args()...)})
		cluster[i].Do(t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		cluster[i].Do(t, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(slots*i/nodes), strconv.Itoa(slots*(i+1)/nodes-1))
		cluster[0].Do(t, "CLUSTER", "MEET", "127.0.0.1", cluster[i].port(), strconv.Itoa(cluster[i].BusPort()))
	}
	for _, server := range cluster {
		await(t, "the cluster", func() bool {
			said, err := server.ask("CLUSTER", "INFO")
			if err != nil {
				return false
			}
			info, err := said.ToString()
			return err == nil && strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(nodes)) &&
				strings.Contains(info, "cluster_slots_ok:"+strconv.Itoa(slots))
		})
	}
	return cluster
}

func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	for begun := time.Now(); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > startingTime {
			t.Fatalf("%s: not in order after %v", what, startingTime)
		}
	}
}
