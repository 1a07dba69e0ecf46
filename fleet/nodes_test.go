package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/guard"
	"github.com/ral-limiter/ral/fleet/internal/lease"
	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func keysOf(t *testing.T, cluster []*redistest.Server, each int) [][]string {
	t.Helper()
	keys := make([][]string, len(cluster))
	for i, missing := 0, each*len(cluster); missing > 0; i++ {
		reply := cluster[0].Do(t, "CLUSTER", "KEYSLOT", fmt.Sprintf("{%d}", i))
		slot, err := reply.AsInt64()
		require.NoError(t, err)
		node := int(slot) * len(cluster) / store.SlotCount
		if len(keys[node]) < each {
			keys[node] = append(keys[node], fmt.Sprint(i))
			missing--
		}
	}
	return keys
}

// TestBreakerOfANode loses a node of three, and has calls fail for its keys:
//
//  1. the breaker opens for these keys alone, and units let pass for others are charged;
//  2. Health, the event and Stats name the node;
//  3. the node is asked again when it is back, even without calls for it.
//
// Promise: A missing cluster node affects only its keys.
func TestBreakerOfANode(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.Options{})
	keys := keysOf(t, cluster, 20)
	inBubbleOfAll(t, cluster, func(t *testing.T, lines []*redistest.Line) {
		var events log
		c := overAll(lines, policy.Must(policy.FixedWindow(1000, 366*24*time.Hour)))
		c.OnEvent = events.add
		slotOf := func(name string) int64 {
			reply := cluster[0].Do(t, "CLUSTER", "KEYSLOT", name)
			n, err := reply.AsInt64()
			require.NoError(t, err)
			return n
		}
		for slotOf("ral:"+c.Name+":servers") >= store.SlotCount/3 { // the first node counts servers
			c.Name = name()
		}
		l := open(t, c)
		require.Len(t, l.nodes.Load().all, 3)
		for _, of := range keys {
			for _, key := range of {
				require.Equal(t, limits.SourceRedis, take(t, l, key, 1).Source())
			}
		}
		lines[2].Set(gone)
		lost, there := keys[2][0], slices.Concat(keys[0], keys[1])
		eventually(t, func() bool { return breakerOpen(take(t, l, lost, 1)) }, "the breaker of its node opens")
		for i := range 300 {
			a := take(t, l, there[i%len(there)], 1)
			require.Equal(t, limits.SourceRedis, a.Source(), "%v", a.Err())
			a = take(t, l, keys[2][i%len(keys[2])], 1)
			require.Equal(t, limits.SourceShare, a.Source())
			r, err := l.Reserve(t.Context(), there[i%len(there)], 1, 0)
			require.NoError(t, err)
			require.NoError(t, r.Cancel(t.Context()))
			a, err = l.Refund(t.Context(), there[i%len(there)], 0)
			require.NoError(t, err)
			require.Equal(t, limits.SourceRedis, a.Source(), "%v", a.Err())
		}
		open, _ := l.guard.Open()
		require.False(t, open)
		require.ErrorIs(t, l.Health(), ErrOutage)
		require.ErrorContains(t, l.Health(), cluster[2].Addr())
		require.NotZero(t, l.Stats().Openings)
		eventually(t, func() bool { return len(events.events()) > 0 }, "it is told")
		require.Equal(t, OutageBegan, events.events()[0].Kind)
		require.ErrorContains(t, events.events()[0].Err, cluster[2].Addr())

		// Shares are charged on the nodes that are there.
		at := policy.Instant(time.Since(l.config.Epoch))
		l.local.Learn(there[0], 0, at)
		owed := l.Stats().Charged
		require.True(t, l.local.Take(there[0], 3, 0).Allowed)
		l.nudge()
		eventually(t, func() bool { return l.Stats().Charged >= owed+3 }, "it is charged although a node is away")

		lines[2].Set(well)
		eventually(t, func() bool { return l.Health() == nil }, "it is back")
		eventually(t, func() bool { return take(t, l, lost, 0).Source() == limits.SourceRedis }, "it is asked")
		eventually(t, func() bool {
			kinds := events.kinds()
			return len(kinds) > 1 && kinds[len(kinds)-1] != OutageBegan
		}, "that is told")
	})
}

func breakerOpen(a limits.Answer) bool { return errors.Is(a.Err(), ErrBreakerOpen) }

func TestLeasesOfANode(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.Options{})
	keys := keysOf(t, cluster, 1)
	inBubbleOfAll(t, cluster, func(t *testing.T, lines []*redistest.Line) {
		c := leased(overAll(lines, policy.Must(policy.FixedWindow(1_000_000, 366*24*time.Hour))))
		c.Outage = FallbackClosed
		l := open(t, c)
		lines[2].Set(gone)
		eventually(t, func() bool { return breakerOpen(take(t, l, keys[2][0], 1)) }, "the breaker of its node opens")
		before := l.Stats()
		for range 2000 {
			require.Equal(t, limits.SourceClosed, take(t, l, keys[2][0], 1).Source())
			for _, key := range []string{keys[0][0], keys[1][0]} {
				a := take(t, l, key, 1)
				require.True(t, a.Allowed, "%v", a.Err())
				require.Contains(t, []limits.Source{limits.SourceRedis, limits.SourceLease}, a.Source())
			}
		}
		after := l.Stats()
		require.Greater(t, after.Leased, before.Leased)
		require.EqualValues(t, 2000, after.Closed-before.Closed)
		grants := guardedBank{l}.Lease(t.Context(), []lease.Ask{{Key: keys[0][0], Need: 1, Most: 1}, {Key: keys[2][0], Need: 1, Most: 1}, {Key: keys[1][0], Need: 1, Most: 1}})
		require.NoError(t, grants[0].Err)
		require.ErrorIs(t, grants[1].Err, ErrOutage)
		require.NoError(t, grants[2].Err)
		require.ErrorIs(t, l.Health(), ErrOutage)
		lines[2].Set(well)
		eventually(t, func() bool { return l.Health() == nil }, "it is asked, though no call comes and nothing is to be charged")
	})
}

// Moved slots are guarded by their new node. A node without slots is forgotten, its openings not.
func TestNodesThatComeAndGo(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := open(t, on(redis, funnel(10, 1, time.Hour)))
		other := &Limiter{config: l.config, guarded: l.guarded, maker: l.maker, guard: l.guard}
		own := l.own.Load()
		k := keeper{Limiter: other}
		t.Cleanup(func() {
			for _, n := range other.nodes.Load().all {
				n.guard.Close()
			}
			other.forgotten.Wait()
		})
		half := store.SlotCount / 2
		k.learnNodes([]store.SlotRange{{First: 0, Last: half - 1, Node: "a:1"}, {First: half, Last: store.SlotCount - 1, Node: "b:2"}})
		require.Len(t, other.nodes.Load().all, 2)
		guards := map[any]int{}
		for i := range 100 {
			guards[other.guardOf(own, fmt.Sprint(i))]++
		}
		require.Len(t, guards, 2)
		a, b := other.nodes.Load().all[0], other.nodes.Load().all[1]
		require.Equal(t, "b:2", b.addr)
		for _, n := range []*node{a, b} {
			probe := *n.probe.Load()
			_, tag, _ := strings.Cut(probe, "{")
			require.Same(t, n.guard, other.guardOf(own, strings.TrimSuffix(tag, "}")), "its probe is a key of its own")
		}
		for i := 0; ; i++ {
			if _, why := other.openNodes(); why != nil {
				require.ErrorContains(t, why, "b:2")
				break
			}
			require.Less(t, i, 10)
			_ = fail(b)
		}
		require.EqualValues(t, 1, other.Stats().Openings)

		for i := range forgetNode {
			require.Len(t, other.nodes.Load().all, 2, i)
			k.learnNodes([]store.SlotRange{{First: 0, Last: store.SlotCount - 2, Node: "a:1"}})
		}
		require.Len(t, other.nodes.Load().all, 1)
		require.EqualValues(t, 1, other.Stats().Openings)
		for i := range 100 {
			require.Same(t, a.guard, other.guardOf(own, fmt.Sprint(i)))
		}
		require.Same(t, other.guard, other.guardAt(other.nodes.Load(), own, tailIn(store.SlotCount-1, own)), "no node has that slot")
		require.Same(t, other.guard, other.guardOf(own, strings.Repeat("x", 1<<16+1)))
	})
}

func tailIn(slot int, of *terms) string {
	for i := 0; ; i++ {
		if tail := store.Tail(fmt.Sprint(i)); of.limit.Slot(tail) == slot {
			return tail
		}
	}
}

func fail(n *node) error {
	_, err := guard.Do(context.Background(), n.guard, func(context.Context) (struct{}, error) {
		return struct{}{}, fmt.Errorf("%w: down", store.ErrAsking)
	})
	return err
}
