package fleetbench

import (
	"math"
	"time"

	"github.com/ral-limiter/ral/bench"
)

// Callers is the number of goroutines that ask at once.
const Callers = 64

// With manyKeys, calls for a key are too rare for leases. With someKeys, each key holds a lease.
const manyKeys, someKeys = 10_000, 100

// The loose limit is never reached, the tight one at once.
var (
	loose = bench.Limit{Capacity: 1 << 40, Count: 1_000_000, Per: time.Second}
	tight = bench.Limit{Capacity: 1000, Count: 1000, Per: time.Second}
)

const (
	Hot     = "fleet-hot"
	Some    = "fleet-some"
	Keys    = "fleet-keys"
	Refused = "fleet-refused"
)

// Workloads returns the workloads. scale multiplies the number of keys, if many.
func Workloads(scale float64) []bench.Workload {
	return []bench.Workload{{
		Name: Hot, About: "64 callers on one hot key, every call passes",
		Why:   "A busy client of several servers: all calls meet at one key in Redis.",
		Limit: loose, Keys: 1, Callers: Callers,
	}, {
		Name: Some, About: "64 callers on 100 known keys, evenly; every call passes, and a lease lasts for many",
		Why:   "Some busy clients: leased mode decides nearly all calls without Redis.",
		Limit: loose, Keys: someKeys, Callers: Callers,
	}, {
		Name: Keys, About: "64 callers on 10,000 known keys, evenly; every call passes, and a lease lasts for few",
		Why:   "Many clients with few calls each: leased mode has Redis decide the calls, as exact mode does.",
		Limit: loose, Keys: keys(scale), Callers: Callers,
	}, {
		Name: Refused, About: "64 callers on one hot key, almost every call is refused",
		Why:   "A client far above its limit: the audit finds what passes too many.",
		Limit: tight, Keys: 1, Refused: 1, Callers: Callers,
	}}
}

func keys(scale float64) int { return max(int(math.Round(manyKeys*scale)), 1) }
