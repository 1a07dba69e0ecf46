package fleetbench

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ral-limiter/ral/bench"
)

// Callers is the number of goroutines that ask at once.
const Callers = 64

// With manyKeys, calls for a key are too rare for leases. With someKeys, each key holds a lease.
const manyKeys, someKeys = 10_000, 100

const (
	Hot     = "fleet-hot"
	Some    = "fleet-some"
	Keys    = "fleet-keys"
	Refused = "fleet-refused"

	MemoryInRedis = "fleet-memory"
)

// memoryKeys is the number of keys that memory in Redis is measured with.
const memoryKeys = 10_000

// The usable share is measured under these limits, the second with -full only.
var shareLimits = []bench.Limit{bench.Tight, {Capacity: 50, Count: 50, Per: time.Second}}

// Workloads returns the workloads. scale multiplies the number of keys, if many.
func Workloads(scale float64) []bench.Workload {
	all := []bench.Workload{{
		Name: Hot, About: "64 callers on one hot key, every call passes",
		Why:   "A busy client of several servers: all calls meet at one key in Redis.",
		Limit: bench.Loose, Keys: 1, Callers: Callers,
	}, {
		Name: Some, About: "64 callers on 100 known keys, evenly; every call passes, and a lease lasts for many",
		Why:   "Some busy clients: leased mode decides nearly all calls without Redis.",
		Limit: bench.Loose, Keys: someKeys, Callers: Callers,
	}, {
		Name: Keys, About: "64 callers on 10,000 known keys, evenly; every call passes, and a lease lasts for few",
		Why:   "Many clients with few calls each: leased mode has Redis decide the calls, as exact mode does.",
		Limit: bench.Loose, Keys: keys(manyKeys, scale), Callers: Callers,
	}, {
		Name: Refused, About: "64 callers on one hot key, almost every call is refused",
		Why:   "A client far above its limit: the audit finds what passes too many.",
		Limit: bench.Tight, Keys: 1, Refused: 1, Callers: Callers,
	}, {
		Name: MemoryInRedis, About: "bytes of used_memory by key in Redis, and MEMORY USAGE, names included; each key is asked once",
		Why:  "The memory that many clients hold in Redis.",
		Draw: bench.DrawElsewhere, Limit: owing, Keys: keys(memoryKeys, scale), Callers: Callers, Rounds: 1, Apart: true,
		Duration: max(time.Duration(memoryKeys*scale)*100*time.Microsecond, 1),
	}}
	for _, limit := range shareLimits {
		for _, load := range loads {
			all = append(all, bench.Workload{
				Name:  shareName(load, limit),
				About: "usable share: what 4 servers admit of capacity + rate x time, asked for three times the rate: " + load.about,
				Why:   "Servers that take units ahead must not keep them from each other. The audit is over every window of time.",
				Draw:  bench.DrawElsewhere, Limit: limit, Keys: 1, Callers: Servers, Rounds: 1, Apart: true,
			})
		}
	}
	return all
}

func shareName(load load, limit bench.Limit) string {
	return fmt.Sprintf("%s%s-%d", sharePrefix, load.name, limit.Count)
}

const sharePrefix = "fleet-share-"

func isShare(w bench.Workload) bool { return strings.HasPrefix(w.Name, sharePrefix) }

// IsLong reports whether a workload is measured in long runs only: a share of the small limit.
func IsLong(w bench.Workload) bool { return isShare(w) && w.Limit == shareLimits[1] }

func keys(n, scale float64) int { return max(int(math.Round(n*scale)), 1) }

// Shares returns the names of the workloads of a load's usable shares.
func Shares(load string) (names []string) {
	for _, w := range Workloads(1) {
		if strings.HasPrefix(w.Name, sharePrefix+load) {
			names = append(names, w.Name)
		}
	}
	return names
}

// Servers is the number of limiters that share a limit, each with its own client.
const Servers = 4

// load spreads calls over the servers: at each time the parts add up to 1.
type load struct {
	name, about string
	part        func(server int, instant time.Duration) float64
}

// busy is the part of the load on the busy server.
const busy = 0.85

var loads = []load{
	{"even", "evenly", func(int, time.Duration) float64 { return 1.0 / Servers }},
	{"skewed", "one for 85% of it", func(server int, _ time.Duration) float64 { return partOf(server == 0) }},
	// The busy server changes each second.
	{"shifting", "each second another for 85% of it", func(server int, instant time.Duration) float64 {
		return partOf(int(instant/time.Second)%Servers == server)
	}},
}

func partOf(isBusy bool) float64 {
	if isBusy {
		return busy
	}
	return (1 - busy) / (Servers - 1)
}

// asker is a fleet.Limiter whose share is measured, or a fake in tests.

// owing is a limit under which a key owes for an hour, so that none expires while counted.
var owing = bench.Limit{Capacity: 1000, Count: 1, Per: time.Hour}
