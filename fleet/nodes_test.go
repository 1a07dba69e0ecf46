package fleet

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/guard"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
)

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
