package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// Slot agrees with the cluster, all slots have a node, and a probe goes to its node.
func TestSlots(t *testing.T) {
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
