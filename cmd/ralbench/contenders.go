package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/peers"
	"github.com/ral-limiter/ral/internal/testkit/child"
)

// always returns the yardsticks and Ral.
func always() []bench.Contender {
	return []bench.Contender{peers.CFloor(), bench.Floor(), bench.XsyncMap(), bench.Ral()}
}

// peerNames returns the names of all peers, other limits and verbs last.
func peerNames() (names []string) {
	for _, contender := range append(candidates(), peers.Calls()...) {
		if name := flagName(contender.Name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// candidates returns the peers, the nearest first, with Redis even if not installed, and Ral by
// package time's clock.
func candidates() []bench.Contender {
	server, _ := child.FindRedis("")
	return append(peers.All(), bench.RalQueued(), peers.Redis(server), bench.RalPackageTime())
}

// flagName returns a contender's name for the command line.
func flagName(name string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimSpace(name), " ", "-"))
}

const (
	allPeers = "all"
	noPeers  = "none"
)

// choose returns the yardsticks and Ral, the peers of these names, and the rows of the workloads of
// calls. Without names the peers are the nearest, or all with full. The error lists an unknown peer
// and the known ones, or a peer not installed. missing are peers not installed and left out.
func choose(names []string, full bool, workloads []bench.Workload) (chosen []bench.Contender, missing []string, err error) {
	known := append([]string{allPeers, noPeers}, peerNames()...)
	for _, contender := range always() {
		known = append(known, flagName(contender.Name))
	}
	var given []string
	for _, name := range names {
		if given = append(given, flagName(name)); !slices.Contains(known, flagName(name)) {
			return nil, nil, fmt.Errorf("unknown peer %q; known are %s, and %s and %s", name, strings.Join(peerNames(), ", "), allPeers, noPeers)
		}
	}
	isNamed := func(contender bench.Contender) bool { return slices.Contains(given, flagName(contender.Name)) }
	full = full && names == nil || slices.Contains(given, allPeers)

	_, noRedis := child.FindRedis("")
	chosen = always()
	for i, contender := range candidates() {
		switch {
		case !isNamed(contender) && !full && (names != nil || i >= peers.Nearest):
		case !contender.Elsewhere || noRedis == nil:
			chosen = append(chosen, contender)
		case isNamed(contender):
			return nil, nil, fmt.Errorf("%s needs redis-server, which is not installed here", contender.Name)
		default:
			missing = append(missing, contender.Name)
		}
	}
	for _, contender := range append(bench.RalCalls(), peers.Calls()...) {
		isWanted := contender.Like == "" || full || names == nil || isNamed(contender)
		if isWanted && slices.ContainsFunc(workloads, func(w bench.Workload) bool { return slices.Contains(contender.For, w.Name) }) {
			chosen = append(chosen, contender)
		}
	}
	return chosen, missing, nil
}
