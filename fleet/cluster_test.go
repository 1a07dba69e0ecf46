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

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/guard"
	"github.com/ral-limiter/ral/fleet/internal/lease"
	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// TestMissingNodeAffectsOnlyItsKeys breaks the lines to the nodes of one cluster in several ways.
// Promise: A missing cluster node affects only its keys.
func TestMissingNodeAffectsOnlyItsKeys(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.Options{})
	keys := keysOf(t, cluster, 20)
	for name, test := range map[string]func(t *testing.T, cluster []*redistest.Server, lines []*redistest.Line, keys [][]string){
		"breaker of a node": breakerOfANode, "leases of a node": leasesOfANode, "part is away": partOfAClusterIsAway, "blocks": blocksInACluster,
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleOfAll(t, cluster, func(t *testing.T, lines []*redistest.Line) { test(t, cluster, lines, keys) })
		})
	}
	t.Run("in flight", func(t *testing.T) {
		inBubbleOfAll(t, cluster, func(t *testing.T, lines []*redistest.Line) { inFlightInACluster(t, lines, keys) })
	})
}

func slotOf(t *testing.T, cluster []*redistest.Server, name string) int64 {
	t.Helper()
	reply := cluster[0].Do(t, "CLUSTER", "KEYSLOT", name)
	return must.Get(reply.AsInt64())
}

// keysOf returns some keys of each node.
func keysOf(t *testing.T, cluster []*redistest.Server, each int) [][]string {
	t.Helper()
	keys := make([][]string, len(cluster))
	for i, missing := 0, each*len(cluster); missing > 0; i++ {
		node := int(slotOf(t, cluster, fmt.Sprintf("{%d}", i))) * len(cluster) / store.SlotCount
		if len(keys[node]) < each {
			keys[node] = append(keys[node], fmt.Sprint(i))
			missing--
		}
	}
	return keys
}

func breakerOpen(a limits.Answer) bool { return errors.Is(a.Err(), ErrBreakerOpen) }

// breakerOfANode loses a node of three, and has calls fail for its keys:
//
//  1. the breaker opens for these keys alone, and units let pass for others are charged;
//  2. Health, the event and Stats name the node;
//  3. the node is asked again when it is back, even without calls for it.
func breakerOfANode(t *testing.T, cluster []*redistest.Server, lines []*redistest.Line, keys [][]string) {
	var events log
	c := overAll(lines, policy.Must(policy.FixedWindow(1000, 366*24*time.Hour)))
	c.OnEvent = events.add
	// The first node counts servers.
	for slotOf(t, cluster, "ral:"+c.Name+":servers") >= store.SlotCount/3 {
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
	for i, key := range slices.Repeat(there, 5) {
		r := must.Get(l.Reserve(t.Context(), key, 1, 0))
		require.NoError(t, r.Cancel(t.Context()))
		back := must.Get(l.Refund(t.Context(), key, 0))
		for _, a := range []limits.Answer{take(t, l, key, 1), r.Answer, back} {
			require.Equal(t, limits.SourceRedis, a.Source(), "%v", a.Err())
		}
		require.Equal(t, limits.SourceShare, take(t, l, keys[2][i%len(keys[2])], 1).Source())
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
	at := policy.Instant(time.Since(l.config.Epoch)) // wall: in bubbles alone
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
}

func leasesOfANode(t *testing.T, _ []*redistest.Server, lines []*redistest.Line, keys [][]string) {
	c := inLeases(overAll(lines, policy.Must(policy.FixedWindow(1_000_000, 366*24*time.Hour))))
	c.Outage = FallbackClosed
	l := open(t, c)
	lines[2].Set(gone)
	eventually(t, func() bool { return breakerOpen(take(t, l, keys[2][0], 1)) }, "the breaker of its node opens")
	before := l.Stats()
	for range 500 {
		require.Equal(t, limits.SourceClosed, take(t, l, keys[2][0], 1).Source())
		for _, key := range []string{keys[0][0], keys[1][0]} {
			a := take(t, l, key, 1)
			require.True(t, a.Allowed, "%v", a.Err())
			require.Contains(t, []limits.Source{limits.SourceRedis, limits.SourceLease}, a.Source())
		}
	}
	after := l.Stats()
	require.Greater(t, after.Leased, before.Leased)
	require.EqualValues(t, 500, after.Closed-before.Closed)
	grants := bank{&l.access, &l.catalog, nil, l.known, l.warned}.Lease(t.Context(), []lease.Ask{{Key: keys[0][0], Need: 1, Most: 1}, {Key: keys[2][0], Need: 1, Most: 1}, {Key: keys[1][0], Need: 1, Most: 1}})
	require.NoError(t, grants[0].Err)
	require.ErrorIs(t, grants[1].Err, ErrOutage)
	require.NoError(t, grants[2].Err)
	require.ErrorIs(t, l.Health(), ErrOutage)
	lines[2].Set(well)
	eventually(t, func() bool { return l.Health() == nil }, "it is asked, though no call comes and nothing is to be charged")
}

// A limiter that starts without one of three nodes uses the others, even if the roll is on it and
// no calls come.
func partOfAClusterIsAway(t *testing.T, cluster []*redistest.Server, lines []*redistest.Line, _ [][]string) {
	const lost = 1 << 14 * 2 / 3
	// key is a key on a node that stays.
	key := "0"
	for i := 1; slotOf(t, cluster, "{"+key+"}") >= lost-1; i++ {
		key = fmt.Sprint(i)
	}
	with := func(rollAway bool) Config {
		c := overAll(lines, funnel(1000, 1, time.Hour))
		for slotOf(t, cluster, "ral:"+c.Name+":servers") > lost != rollAway {
			c.Name = name()
		}
		return c
	}
	old := open(t, with(true))
	require.Equal(t, limits.SourceRedis, take(t, old, key, 1).Source())
	lines[2].Set(gone)
	all := []*Limiter{old, open(t, with(false)), open(t, with(true))}
	for _, l := range all {
		eventually(t, func() bool { return take(t, l, key, 1).Source() == limits.SourceRedis }, "the others are asked")
	}
	opened := func() (sum uint64) {
		for _, l := range all {
			sum += l.Stats().Openings
		}
		return sum
	}
	before := opened()
	// Each beat misses the node that is away.
	for range failures + 2 {
		time.Sleep(beat) // wall: in bubbles alone
		for _, l := range all {
			require.NoError(t, l.Health())
		}
	}
	require.Equal(t, before, opened())
	for i, l := range all {
		require.Equal(t, limits.SourceRedis, take(t, l, key, 1).Source())
		require.Equal(t, []int{1, 1, 0}[i], l.Stats().Servers, "the last limiter must count no server, as the roll was out of reach")
	}
	lines[0].Set(gone)
	lines[1].Set(gone)
	for _, l := range all {
		eventually(t, func() bool { return l.Health() != nil }, "it is noticed that no node is there")
		require.Equal(t, limits.SourceShare, take(t, l, key, 1).Source())
	}
}

func blocksInACluster(t *testing.T, _ []*redistest.Server, lines []*redistest.Line, keys [][]string) {
	for _, tag := range []string{"", "tag"} {
		c := overAll(lines, funnel(2, 1, time.Hour))
		c.Tag, c.Penalty = tag, engine.Penalty{Refusals: 1, Within: time.Hour, For: time.Hour}
		a, b := open(t, c), open(t, c)
		for _, of := range keys {
			key := of[0]
			require.NoError(t, a.Block(t.Context(), key, time.Hour))
			require.ErrorIs(t, take(t, b, key, 1).Err(), limits.ErrBlocked)
			must.Get(b.Reset(t.Context(), key))
			require.True(t, take(t, a, key, 2).Allowed)
			require.NotErrorIs(t, take(t, b, key, 1).Err(), limits.ErrBlocked, "the refusal that begins the block must not be one by the block")
			require.ErrorIs(t, take(t, a, key, 1).Err(), limits.ErrBlocked)
		}
		if tag != "" {
			out := must.Get(TakeAll(t.Context(), b.Claim(keys[0][0], 1), b.Claim("y", 1)))
			require.False(t, out.Allowed)
			require.ErrorIs(t, out.Answers[0].Err(), limits.ErrBlocked)
			require.True(t, out.Answers[1].Allowed)
		}
	}
}

// A limit in flight has all its keys on one node of a cluster, of its Tag or its Name. So one script takes its
// units and those of a rate only if they have the same Tag.
func inFlightInACluster(t *testing.T, lines []*redistest.Line, keys [][]string) {
	for _, tag := range []string{"", "tag"} {
		c := overAll(lines, inFlightOf(2, time.Hour))
		c.Tag = tag
		all := openInFlight(t, c, 2)
		c = via(all[1], funnel(5, 1, time.Hour))
		c.Tag, c.clock = tag, now
		rate := open(t, c)
		held := map[string]Reservation{}
		for _, ofNode := range keys {
			key := ofNode[0]
			held[key] = reserve(t, all[0], key, 1)
			require.Equal(t, limits.SourceRedis, take(t, all[1], key, 0).Source())
		}
		time.Sleep(3 * all[0].config.Term)
		for key, r := range held {
			require.EqualValues(t, 1, take(t, all[1], key, 0).Remaining, "the unit must be confirmed")
			out, err := TakeAll(t.Context(), rate.Claim(key, 1), all[1].Claim(key, 1))
			if tag == "" {
				require.ErrorIs(t, err, ErrCrossSlot)
				require.EqualValues(t, 1, take(t, all[1], key, 0).Remaining, "a unit entered although its call was refused")
				continue
			}
			require.NoError(t, err)
			require.True(t, out.Allowed)
			require.False(t, reserve(t, all[0], key, 1).Allowed)
			require.NoError(t, out.Release(t.Context()))
			require.EqualValues(t, 4, take(t, rate, key, 0).Remaining)
			require.NoError(t, r.Release(t.Context()))
			require.EqualValues(t, 2, take(t, all[1], key, 0).Remaining)
		}
	}
}

// Moved slots are guarded by their new node. A node without slots is forgotten, its openings not.
func TestNodesThatComeAndGo(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := open(t, on(redis, funnel(10, 1, time.Hour)))
		other := &Limiter{catalog: catalog{config: l.config}, access: access{guarded: l.guarded, guard: l.guard}}
		own := l.own.Load()
		t.Cleanup(func() {
			for _, n := range other.nodes.Load().all {
				n.guard.Close()
			}
			other.forgotten.Wait()
		})
		half := store.SlotCount / 2
		other.learnNodes([]store.SlotRange{{First: 0, Last: half - 1, Node: "a:1"}, {First: half, Last: store.SlotCount - 1, Node: "b:2"}}, l.maker)
		require.Len(t, other.nodes.Load().all, 2)
		a, b := other.nodes.Load().all[0], other.nodes.Load().all[1]
		require.Equal(t, "b:2", b.addr)
		for _, n := range []*node{a, b} {
			probe := *n.probe.Load()
			_, tag, _ := strings.Cut(probe, "{")
			require.Same(t, n.guard, other.guardOf(own, strings.TrimSuffix(tag, "}")), "the probe's key must have the guard of its node")
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
			other.learnNodes([]store.SlotRange{{First: 0, Last: store.SlotCount - 2, Node: "a:1"}}, l.maker)
		}
		require.Len(t, other.nodes.Load().all, 1)
		require.EqualValues(t, 1, other.Stats().Openings)
		for i := range 100 {
			require.Same(t, a.guard, other.guardOf(own, fmt.Sprint(i)))
		}
		require.Same(t, other.guard, other.guardAt(other.nodes.Load(), own, tailIn(store.SlotCount-1, own)), "a slot that no node has must have the guard of the client")
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
