package fleetbench

import (
	"math"
	"time"

	"github.com/ral-limiter/ral/bench"
)

// Callers is how many goroutines ask at once.
const Callers = 64

// manyKeys is how many keys there are where there are many: of 64 callers so few calls
// come for each in the time that a lease lasts that leases hardly help. Of someKeys
// each holds one.
const manyKeys, someKeys = 10_000, 100

// The limits of the workloads: one is never reached, the other at once.
var (
	loose = bench.Limit{Capacity: 1 << 40, Count: 1_000_000, Per: time.Second}
	tight = bench.Limit{Capacity: 1000, Count: 1000, Per: time.Second}
)

// The names of the workloads.
const (
	Hot     = "fleet-hot"
	Some    = "fleet-some"
	Keys    = "fleet-keys"
	Refused = "fleet-refused"
)

// Workloads returns what the contenders do. scale multiplies how many keys there are
// where there are many: 1 is what the descriptions say.
func Workloads(scale float64) []bench.Workload {
	return []bench.Workload{{
		Name: Hot, About: "64 callers on one hot key, every call passes",
		Limit: loose, Keys: 1, Callers: Callers,
	}, {
		Name: Some, About: "64 callers on 100 known keys, evenly; every call passes, and a lease lasts for many",
		Limit: loose, Keys: someKeys, Callers: Callers,
	}, {
		Name: Keys, About: "64 callers on 10,000 known keys, evenly; every call passes, and a lease lasts for few",
		Limit: loose, Keys: keys(scale), Callers: Callers,
	}, {
		Name: Refused, About: "64 callers on one hot key, almost every call is refused",
		Limit: tight, Keys: 1, Refused: 1, Callers: Callers,
	}}
}

func keys(scale float64) int { return max(int(math.Round(manyKeys*scale)), 1) }
