package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/peers"
	"github.com/ral-limiter/ral/internal/testkit/redisd"
)

// rals returns Ral, and beside it Ral by package time's clock if that is not the default
// here. Goals and verdict are about the first.
func rals() []bench.Contender {
	if bench.ReadsCounter() {
		return []bench.Contender{bench.Ral(), bench.RalPackageTime()}
	}
	return []bench.Contender{bench.Ral()}
}

// always returns what is measured in any case: the yardsticks, and Ral itself.
func always() []bench.Contender {
	return append([]bench.Contender{bench.Floor(), bench.XsyncMap()}, rals()...)
}

// calls returns Ral's other limits and verbs, and of their peers those that are wanted, as
// far as they take part in the workloads.
func calls(workloads []bench.Workload, wanted func(bench.Contender) bool) (some []bench.Contender) {
	all := bench.RalCalls()
	for _, c := range peers.Calls() {
		if wanted(c) {
			all = append(all, c)
		}
	}
	for _, c := range all {
		if slices.ContainsFunc(workloads, func(w bench.Workload) bool { return slices.Contains(c.For, w.Name) }) {
			some = append(some, c)
		}
	}
	return some
}

// isNamed returns a function that reports whether a contender is among the names.
func isNamed(names []string) func(bench.Contender) bool {
	return func(c bench.Contender) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			return flagName(name) == flagName(c.Name) || flagName(name) == allPeers
		})
	}
}

// peerNames returns the names of all peers, those of the other limits and verbs last.
func peerNames() (names []string) {
	for _, c := range append(candidates(), peers.Calls()...) {
		if name := flagName(c.Name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// candidates returns what Ral may be measured beside, the nearest first. Redis is among
// them even if it is not installed; see present.
func candidates() []bench.Contender {
	server, _ := redisd.Find("")
	return append(peers.All(), bench.RalQueued(), peers.Redis(server))
}

// contenders returns everything that can be measured side by side.
func contenders() []bench.Contender { return append(always(), candidates()...) }

// nearest returns what Ral is measured beside by default.
func nearest() []bench.Contender { return candidates()[:peers.Nearest] }

// present returns those of the contenders that can be measured on this machine,
// and the names of the others.
func present(all []bench.Contender) (some []bench.Contender, missing []string) {
	_, err := redisd.Find("")
	for _, c := range all {
		if c.Elsewhere && err != nil {
			missing = append(missing, c.Name)
		} else {
			some = append(some, c)
		}
	}
	return some, missing
}

// flagName returns a contender's name as it is written on the command line.
func flagName(name string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimSpace(name), " ", "-"))
}

// Names that stand for several peers.
const (
	allPeers = "all"
	noPeers  = "none"
)

// choose returns the contenders of these names, with those that are measured in any
// case, in the order of all. The error names an unknown peer and the known ones, or one
// that is not installed.
func choose(names []string) ([]bench.Contender, error) {
	for _, name := range names {
		name = flagName(name)
		exists := slices.Contains(peerNames(), name) ||
			slices.ContainsFunc(always(), func(c bench.Contender) bool { return flagName(c.Name) == name })
		if !exists && name != allPeers && name != noPeers {
			return nil, fmt.Errorf("unknown peer %q; known are %s, and %s and %s", name, strings.Join(peerNames(), ", "), allPeers, noPeers)
		}
	}
	chosen := always()
	for _, c := range candidates() {
		byName := slices.ContainsFunc(names, func(name string) bool { return flagName(name) == flagName(c.Name) })
		if here, _ := present([]bench.Contender{c}); len(here) == 0 {
			if byName {
				return nil, fmt.Errorf("%s needs redis-server, which is not installed here", c.Name)
			}
			continue
		}
		if isNamed(names)(c) {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}
