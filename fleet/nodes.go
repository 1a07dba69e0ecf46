package fleet

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ral-limiter/ral/fleet/internal/guard"
	"github.com/ral-limiter/ral/fleet/internal/store"
)

// node is a primary of a cluster, with its own breaker.
type node struct {
	addr  string
	guard *guard.Guard
	// probe is a key that the node has.
	probe atomic.Pointer[string]
	// gone counts how often in a row the node was no primary. The keeper alone uses gone.
	gone int
}

// nodes are a cluster's, by slot. A nodes does not change.
type nodes struct {
	all []*node
	// bySlot is nil where no node is known.
	bySlot [store.SlotCount]*node
}

// forgetNode looks in a row without slots forget a node. Calls to it have ended by then.
const forgetNode = 12

// guardOf returns the guard of calls for the key. Each node of a cluster has its own.
func (a *access) guardOf(terms *terms, key string) *guard.Guard {
	all := a.nodes.Load()
	if all == nil || store.CheckKey(key) != nil {
		return a.guard
	}
	return a.guardAt(all, terms, store.Tail(key))
}

func (a *access) guardAt(all *nodes, terms *terms, tail string) *guard.Guard {
	if n := all.bySlot[terms.limit.Slot(tail)]; n != nil {
		return n.guard
	}
	return a.guard
}

// byGuard has do answer the asks for each guard at once, and returns the answers in the order of the
// asks. tail is of an ask's key.
func byGuard[Q, A any](access *access, terms *terms, asks []Q, tail func(Q) string, do func(breaker *guard.Guard, asks []Q) []A) []A {
	nodes := access.nodes.Load()
	if nodes == nil {
		return do(access.guard, asks)
	}
	sorted := map[*guard.Guard][]int{}
	for i, ask := range asks {
		breaker := access.guardAt(nodes, terms, tail(ask))
		sorted[breaker] = append(sorted[breaker], i)
	}
	answers := make([]A, len(asks))
	var all sync.WaitGroup
	for breaker, indices := range sorted {
		all.Go(func() {
			some := make([]Q, len(indices))
			for i, index := range indices {
				some[i] = asks[index]
			}
			for i, answer := range do(breaker, some) {
				answers[indices[i]] = answer
			}
		})
	}
	all.Wait()
	return answers
}

// learnNodes keeps the nodes of these slots, and probes each by a key of the maker's in one of them.
func (a *access) learnNodes(ranges []store.SlotRange, maker *store.Store) {
	old := a.nodes.Load()
	next := &nodes{}
	if old != nil {
		next.all = slices.Clone(old.all)
	}
	for _, slotRange := range ranges {
		index := slices.IndexFunc(next.all, func(n *node) bool { return n.addr == slotRange.Node })
		if index < 0 {
			index = len(next.all)
			next.all = append(next.all, &node{addr: slotRange.Node, guard: guard.New(a.guarded)})
		}
		n := next.all[index]
		for slot := slotRange.First; slot <= slotRange.Last; slot++ {
			next.bySlot[slot] = n
		}
	}
	next.all = slices.DeleteFunc(next.all, func(n *node) bool {
		if slices.Contains(next.bySlot[:], n) {
			n.gone = 0
			return false
		}
		if n.gone++; n.gone < forgetNode {
			return false
		}
		a.openingsBefore.Add(n.guard.Openings())
		a.forgotten.Go(n.guard.Close)
		return true
	})
	if old != nil && old.bySlot == next.bySlot && len(old.all) == len(next.all) {
		return
	}
	for _, n := range next.all {
		if n.gone == 0 {
			probe := maker.ProbeIn(func(slot int) bool { return next.bySlot[slot] == n })
			n.probe.Store(&probe)
		}
	}
	a.nodes.Store(next)
}

// openNodes returns the nodes with an open breaker, and why the first is.
func (a *access) openNodes() (open []*node, why error) {
	all := a.nodes.Load()
	if all == nil {
		return nil, nil
	}
	for _, node := range all.all {
		if is, cause := node.guard.Open(); is {
			open = append(open, node)
			if why == nil {
				why = asOutage(fmt.Errorf("node %s of the cluster: %w", node.addr, cause))
			}
		}
	}
	return open, why
}

// guards returns all guards: Redis's, and each node's.
func (a *access) guards() []*guard.Guard {
	all := []*guard.Guard{a.guard}
	if nodes := a.nodes.Load(); nodes != nil {
		for _, n := range nodes.all {
			all = append(all, n.guard)
		}
	}
	return all
}

// breakers returns how many breakers there are, are open, and probe, and how often they opened.
func (a *access) breakers() (all, open, probing int, openings uint64) {
	guards, openings := a.guards(), a.openingsBefore.Load()
	for _, breaker := range guards {
		if is, _ := breaker.Open(); is {
			open++
		}
		if breaker.Probing() {
			probing++
		}
		openings += breaker.Openings()
	}
	return len(guards), open, min(probing, open), openings
}

// closeGuards ends all guards, after the keeper.
func (a *access) closeGuards() {
	for _, breaker := range a.guards() {
		breaker.Close()
	}
	a.forgotten.Wait()
}
