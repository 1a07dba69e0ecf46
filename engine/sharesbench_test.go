package engine

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/policy"
)

const benchTenants = 100_000

// sharesBesideChoke returns calls of one of 100,000 tenants, and Choke on an engine with the same keys, by kind. Each has
// an entry for all names then.
func sharesBesideChoke(tb testing.TB, names []string) (order []string, opens map[string]func() func(string) bool) {
	shares := func(limit, ceiling policy.Policy) func() func(string) bool {
		return func() func(string) bool {
			return newShares(tb, SharesConfig[string]{
				Total:     funnel(1<<49, 15_000_000, time.Second),
				Reserved:  funnel(1<<48, 14_000_000, time.Second),
				Guarantee: func(string) policy.Policy { return limit },
				Ceiling:   func(string) policy.Policy { return ceiling },
			}).Choke
		}
	}
	filled := func(start func() func(string) bool) func() func(string) bool {
		return func() func(string) bool {
			call := start()
			// The first call uses up a guarantee of one unit.
			for range 2 {
				for _, name := range names {
					call(name)
				}
			}
			return call
		}
	}
	unit := funnel(1, 1, 100*24*time.Hour)
	return []string{"Choke", "guaranteed", "borrowed", "ceiling"}, map[string]func() func(string) bool{
		"Choke": filled(func() func(string) bool {
			return open[string](tb, Config{Policy: funnel(1<<40, 1<<20, time.Second)}).Choke
		}),
		"guaranteed": filled(shares(funnel(1<<30, 100, time.Second), nil)),
		"borrowed":   filled(shares(unit, nil)),
		"ceiling":    filled(shares(unit, funnel(1<<40, 1<<20, time.Second))),
	}
}

// BenchmarkShares measures calls of tenants drawn at random beside Choke. An iteration has 2,000 calls of each kind, one kind
// after the other, by one caller and by two. They take less than a turn of the processor, so that the shortest of many times is
// that of calls that no other program interrupted. A ratio is that of the shortest times.
func BenchmarkShares(b *testing.B) {
	names := keys(benchTenants)
	order, opens := sharesBesideChoke(b, names)
	const calls = 2000
	for _, callers := range []int{1, 2} {
		b.Run([]string{"one caller", "two callers"}[callers-1], func(b *testing.B) {
			shortest, kinds := map[string]time.Duration{}, map[string]func(string) bool{}
			for _, name := range order {
				kinds[name] = opens[name]()
			}
			b.ResetTimer()
			for i := range b.N {
				for _, name := range order {
					call, began := kinds[name], time.Now()
					together(callers, func(caller int) {
						random := rand.NewPCG(uint64(caller), uint64(i))
						for range calls / callers {
							if !call(names[random.Uint64()%benchTenants]) {
								b.Error("refused")
							}
						}
					})
					if took := time.Since(began); shortest[name] == 0 || took < shortest[name] {
						shortest[name] = took
					}
				}
			}
			for _, name := range order {
				b.ReportMetric(float64(shortest[name])/calls, name+"-ns/call")
				b.ReportMetric(float64(shortest[name])/float64(shortest["Choke"]), name+"/Choke")
			}
		})
	}
}

// Promise: A tenant of `Shares` takes at most 1.2 times the memory of a key of an engine, and 2.2 times with a ceiling.
func TestTenantTakesLittleMoreThanAKey(t *testing.T) {
	names := keys(benchTenants)
	bytes := map[string]float64{}
	order, opens := sharesBesideChoke(t, names)
	for _, name := range order {
		var calls []func(string) bool
		before := heapInUse()
		calls = append(calls, opens[name]())
		bytes[name] = float64(heapInUse()-before) / benchTenants
		runtime.KeepAlive(calls)
	}
	t.Log(bytes)
	assert.LessOrEqual(t, bytes["guaranteed"], 1.2*bytes["Choke"])
	assert.LessOrEqual(t, bytes["borrowed"], 1.2*bytes["Choke"])
	assert.LessOrEqual(t, bytes["ceiling"], 2.2*bytes["Choke"])
}
