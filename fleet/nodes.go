package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/guard"
	"github.com/ral-limiter/ral/fleet/internal/store"
)

// node is a primary of a cluster, with its own breaker.
type node struct {
	addr  string
	guard *guard.Guard
	probe atomic.Pointer[string] // a key that it has
	gone  int                    // how often in a row it was no primary; the keeper alone looks at it
}

// nodes are a cluster's, by slot. They do not change.
type nodes struct {
	all []*node
	of  [store.SlotCount]*node // nil where no node is known
}

// forgetNode looks in a row without slots forget a node. Calls to it have ended by then.
const forgetNode = 12

// guardOf returns the guard of calls for the key. Each node of a cluster has its own.
func (l *Limiter) guardOf(of *terms, key string) *guard.Guard {
	all := l.nodes.Load()
	if all == nil || store.CheckKey(key) != nil {
		return l.guard
	}
	return l.guardAt(all, of, store.Tail(key))
}

func (l *Limiter) guardAt(all *nodes, of *terms, tail string) *guard.Guard {
	if n := all.of[of.limit.Slot(tail)]; n != nil {
		return n.guard
	}
	return l.guard
}

// byGuard calls do at once for each guard of the keys, with their indices, or nil for all.
func (l *Limiter) byGuard(of *terms, keys int, tail func(i int) string, do func(g *guard.Guard, at []int)) {
	nodes := l.nodes.Load()
	if nodes == nil {
		do(l.guard, nil)
		return
	}
	sorted := map[*guard.Guard][]int{}
	for i := range keys {
		g := l.guardAt(nodes, of, tail(i))
		sorted[g] = append(sorted[g], i)
	}
	var all sync.WaitGroup
	for g, at := range sorted {
		all.Go(func() { do(g, at) })
	}
	all.Wait()
}

// pick returns the elements at the indices, or all for nil.
func pick[T any](all []T, at []int) []T {
	if at == nil {
		return all
	}
	some := make([]T, len(at))
	for i, j := range at {
		some[i] = all[j]
	}
	return some
}

// place puts elements at the indices, or at all for nil.
func place[T any](all, some []T, at []int) {
	if at == nil {
		copy(all, some)
		return
	}
	for i, j := range at {
		all[j] = some[i]
	}
}

// learn asks a cluster for its nodes, and keeps the old on failure.
func (k *keeper) learn(budget time.Duration) {
	ctx, cancel := context.WithTimeout(k.ctx, budget)
	defer cancel()
	if ranges, err := k.remote.Load().store.Slots(ctx); err == nil {
		k.learnNodes(ranges)
	}
}

func (k *keeper) learnNodes(ranges []store.SlotRange) {
	old := k.nodes.Load()
	next := &nodes{}
	if old != nil {
		next.all = slices.Clone(old.all)
	}
	for _, r := range ranges {
		at := slices.IndexFunc(next.all, func(n *node) bool { return n.addr == r.Node })
		if at < 0 {
			at = len(next.all)
			next.all = append(next.all, &node{addr: r.Node, guard: guard.New(k.guarded)})
		}
		n := next.all[at]
		for slot := r.First; slot <= r.Last; slot++ {
			next.of[slot] = n
		}
	}
	next.all = slices.DeleteFunc(next.all, func(n *node) bool {
		if slices.Contains(next.of[:], n) {
			n.gone = 0
			return false
		}
		if n.gone++; n.gone < forgetNode {
			return false
		}
		k.openingsBefore.Add(n.guard.Openings())
		k.forgotten.Go(n.guard.Close)
		return true
	})
	if old != nil && old.of == next.of && len(old.all) == len(next.all) {
		return
	}
	for _, n := range next.all {
		if n.gone == 0 {
			probe := k.maker.ProbeIn(func(slot int) bool { return next.of[slot] == n })
			n.probe.Store(&probe)
		}
	}
	k.nodes.Store(next)
}

// openNodes returns the nodes with an open breaker, and why the first is.
func (l *Limiter) openNodes() (open []*node, why error) {
	all := l.nodes.Load()
	if all == nil {
		return nil, nil
	}
	for _, n := range all.all {
		if is, cause := n.guard.Open(); is {
			open = append(open, n)
			if why == nil {
				why = asOutage(fmt.Errorf("node %s of the cluster: %w", n.addr, cause))
			}
		}
	}
	return open, why
}

// probeNodes probes each node with an open breaker, so that it closes without a caller.
func (k *keeper) probeNodes() {
	open, _ := k.openNodes()
	r := k.remote.Load()
	var all sync.WaitGroup
	for _, n := range open {
		all.Go(func() {
			_, _ = guard.DoPatiently(k.ctx, n.guard, max(k.config.Budget, beatBudget), func(ctx context.Context) (struct{}, error) {
				return struct{}{}, r.store.Probe(ctx, *n.probe.Load())
			})
		})
	}
	all.Wait()
}

// guards returns all guards: Redis's, and each node's.
func (l *Limiter) guards() []*guard.Guard {
	all := []*guard.Guard{l.guard}
	if nodes := l.nodes.Load(); nodes != nil {
		for _, n := range nodes.all {
			all = append(all, n.guard)
		}
	}
	return all
}

// breakers returns how many breakers there are, are open, and probe, and how often they opened.
func (l *Limiter) breakers() (all, open, probing int, openings uint64) {
	guards, openings := l.guards(), l.openingsBefore.Load()
	for _, g := range guards {
		if is, _ := g.Open(); is {
			open++
		}
		if g.Probing() {
			probing++
		}
		openings += g.Openings()
	}
	return len(guards), open, min(probing, open), openings
}

// closeGuards ends all guards, after the keeper.
func (l *Limiter) closeGuards() {
	for _, g := range l.guards() {
		g.Close()
	}
	l.forgotten.Wait()
}
