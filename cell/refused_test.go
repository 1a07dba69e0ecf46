package cell

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/frequent"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// tails returns the chances that a Poisson variable is at most x and at least x. A sample's, beyond
// its mean, are no larger.
func tails(mean float64, x int) (atMost, atLeast float64) {
	chance := func(k int) float64 {
		of, _ := math.Lgamma(float64(k) + 1)
		return math.Exp(float64(k)*math.Log(mean) - mean - of)
	}
	for k := 0; k <= x; k++ {
		atMost += chance(k)
	}
	for k := x; k <= x+1000; k++ {
		atLeast += chance(k)
	}
	return atMost, atLeast
}

// A count is as good as impossible outside lowerBound and upperBound, which are hardly wider than needed.
func TestBoundsOfASample(t *testing.T) {
	for _, weight := range []uint64{2, 64, frequent.MaxWeight} {
		for _, samples := range []int{0, 1, 2, 5, 30, 100, 1000} {
			count := uint64(samples) * weight
			least, most := lowerBound(count, weight), upperBound(count, weight)
			require.LessOrEqual(t, least, count)
			require.GreaterOrEqual(t, most, count)
			atMost, _ := tails(float64(most+1)/float64(weight), samples)
			assert.LessOrEqual(t, atMost, errorChance*1.01, "%d refusals of weight %d: %d is too low as an upper bound", samples, weight, most)
			assert.Greater(t, atMost, errorChance/1000)
			// Otherwise the bound is certain.
			if least > uint64(samples) {
				_, atLeast := tails(float64(least-1)/float64(weight), samples)
				assert.LessOrEqual(t, atLeast, errorChance*1.01, "%d refusals of weight %d: %d is too high as a lower bound", samples, weight, least)
				assert.Greater(t, atLeast, errorChance/1000)
			}
			assert.GreaterOrEqual(t, least, uint64(samples), "each sample must be a refusal")
		}
	}
	assert.EqualValues(t, []uint64{0, 7}, []uint64{lowerBound(0, 1), lowerBound(7, 1)}, "the bound is not exact although all refusals were counted")
	assert.EqualValues(t, []uint64{0, 7}, []uint64{upperBound(0, 1), upperBound(7, 1)})
	assert.Zero(t, lowerBound(0, 64))
}

// counting returns a cell that counts refused keys, and its clock.
func counting[K comparable](on bool) (*Cell[K], *atomic.Int64) {
	limit := policy.Must(policy.Funnel(1, 1, time.Hour))
	var now atomic.Int64
	now.Store(1)
	c, _ := New(Options[K]{
		View:  table.New[K](table.Options{Policy: limit, Idle: time.Hour, MaxKeys: 1}).View(),
		First: 1, Clock: func() policy.Instant { return policy.Instant(now.Load()) },
		RefusedKeys: on, MaxWaiting: 1, MaxWaitingTotal: 1,
	})
	return c, &now
}

// ways are ways to count a refusal: by the limit, with a number in its stripe, and for another
// reason.
var ways = map[string]func(c *Cell[string], key string){
	"limit": func(c *Cell[string], key string) { c.Count(key, &policy.Decision{}, Basis{}) },
	"full":  func(c *Cell[string], key string) { c.Count(key, &policy.Decision{}, Basis{reason: full}) },
}

// within checks a list against the exact number of refusals of each key:
//
//  1. No key is below its Least or above its Most.
//  2. No key that is not in the list is above Others.
//  3. Total is exact, and the list is in its order.
func within(t testing.TB, list RefusedList[string], exact map[string]uint64) {
	t.Helper()
	var total uint64
	for _, n := range exact {
		total += n
	}
	assert.Equal(t, total, list.Total)
	listed := map[string]bool{}
	for i, k := range list.Keys {
		require.False(t, listed[k.Key], "%s must be in the list once", k.Key)
		listed[k.Key] = true
		require.LessOrEqual(t, k.Least, exact[k.Key], "%+v", k)
		require.LessOrEqual(t, exact[k.Key], k.Most, "%+v", k)
		require.LessOrEqual(t, k.Least, k.Count, "%+v", k)
		require.LessOrEqual(t, k.Count, k.Most, "%+v", k)
		if i > 0 {
			require.GreaterOrEqual(t, list.Keys[i-1].Least, k.Least)
		}
	}
	for key, n := range exact {
		if !listed[key] {
			require.LessOrEqual(t, n, list.Others, key)
		}
	}
}

// Promise: A list of 1,000 refusals a minute is exact.
func TestRefusedListOfFewIsExact(t *testing.T) {
	for name, refuse := range ways {
		t.Run(name, func(t *testing.T) {
			c, _ := counting[string](true)
			exact := map[string]uint64{}
			var mu sync.Mutex
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for j := range 120 {
						key := fmt.Sprint("key ", (i+j*j)%50)
						refuse(c, key)
						mu.Lock()
						exact[key]++
						mu.Unlock()
					}
				})
			}
			all.Wait()
			list := c.RefusedMost(100)
			require.Len(t, list.Keys, len(exact))
			for _, k := range list.Keys {
				n := exact[k.Key]
				assert.Equal(t, Refused[string]{Key: k.Key, Count: n, Least: n, Most: n, Last: k.Last}, k)
			}
			within(t, list, exact)
			assert.Zero(t, list.Others)

			short := c.RefusedMost(7)
			require.Len(t, short.Keys, 7)
			assert.Equal(t, list.Keys[7].Count, short.Others, "the list must end with the count of the first key that is cut off")
			within(t, short, exact)
			assert.Empty(t, c.RefusedMost(0).Keys)
			assert.Empty(t, c.RefusedMost(-1).Keys)
		})
	}
}

// Promise: Refusal counts are within their bounds in any flood.
func TestRefusedFiguresAreWithinTheirBounds(t *testing.T) {
	calls := 100_000 / testenv.RaceSlowdown
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.2, 1, 1<<20)
	for name, next := range map[string]func(i int) string{
		"zipf":    func(int) string { return fmt.Sprint(zipf.Uint64()) },
		"uniform": func(int) string { return fmt.Sprint(rand.IntN(3000)) },
		// Keys at a fixed interval could hide from a periodic sample.
		"periodic": func(i int) string {
			for _, period := range []int{1024, 256, 64, 16, 4} {
				if i%period == 0 {
					return fmt.Sprint("each ", period)
				}
			}
			return "the rest"
		},
		"fresh keys": func(i int) string {
			if i%50 == 0 {
				return "offender"
			}
			return fmt.Sprint(i)
		},
		// An offender is quiet until others have all counters.
		"late": func(i int) string {
			if i > calls/2 && i%20 == 0 {
				return "offender"
			}
			return fmt.Sprint(i % 5000)
		},
	} {
		for way, refuse := range ways {
			t.Run(name+", "+way, func(t *testing.T) {
				c, _ := counting[string](true)
				exact := map[string]uint64{}
				for i := range calls {
					key := next(i)
					exact[key]++
					refuse(c, key)
					if i%(calls/4) == 0 {
						within(t, c.RefusedMost(50), exact)
					}
				}
				within(t, c.RefusedMost(1<<20), exact)
				list := c.RefusedMost(10)
				within(t, list, exact)
				if exact["offender"] > 0 {
					assert.Equal(t, "offender", list.Keys[0].Key, "a flood washed the offender out of the list")
					// TestBoundsOfASample tests the tightness of Least.
					assert.NotZero(t, list.Keys[0].Least)
				}
			})
		}
	}
}

// While goroutines refuse keys in all ways, and others list them.
func TestRefusedFiguresOfManyCallers(t *testing.T) {
	c, _ := counting[string](true)
	const callers = 8
	var counts [callers]map[string]uint64
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			counts[i] = map[string]uint64{}
			r := rand.New(rand.NewPCG(3, uint64(i)))
			zipf := rand.NewZipf(r, 1.1, 1, 10_000)
			for range 20_000 / testenv.RaceSlowdown {
				for _, refuse := range ways {
					key := fmt.Sprint(zipf.Uint64())
					counts[i][key]++
					refuse(c, key)
				}
				if r.IntN(5000) == 0 {
					c.RefusedMost(10)
				}
			}
		})
	}
	all.Wait()
	exact := map[string]uint64{}
	for _, some := range counts {
		for key, n := range some {
			exact[key] += n
		}
	}
	within(t, c.RefusedMost(1000), exact)
}

// Promise: Refusals leave the list after two minutes.
func TestRefusedListIsOfTheLastMinutes(t *testing.T) {
	for name, refuse := range ways {
		t.Run(name, func(t *testing.T) {
			c, now := counting[string](true)
			// Most refusals are not in the sample then.
			for range 50_000 {
				refuse(c, "early")
			}
			pass := func(d time.Duration) RefusedList[string] {
				now.Add(int64(d))
				return c.RefusedMost(10)
			}
			pass(70 * time.Second)
			for range 3 {
				refuse(c, "late")
			}
			list := c.RefusedMost(10)
			require.Len(t, list.Keys, 2)
			assert.Equal(t, "early", list.Keys[0].Key)
			assert.EqualValues(t, 1, list.Keys[0].Last)
			assert.EqualValues(t, 50_003, list.Total)
			assert.EqualValues(t, 70*time.Second, list.To-list.From)

			list = pass(time.Minute)
			require.Len(t, list.Keys, 1, "the first minute must count until a minute after its end")
			assert.Equal(t, "late", list.Keys[0].Key)
			assert.EqualValues(t, 3, list.Keys[0].Least, "a flood in an earlier minute must cost no accuracy")
			assert.EqualValues(t, 3, list.Keys[0].Most)
			assert.EqualValues(t, 3, list.Total)

			list = pass(2 * time.Minute)
			assert.Empty(t, list.Keys)
			assert.Zero(t, list.Total)
			assert.Zero(t, list.Others)
		})
	}
}

func TestRefusedListMayBeLeftOut(t *testing.T) {
	c, now := counting[string](false)
	now.Store(9)
	for _, refuse := range ways {
		refuse(c, "key")
	}
	assert.Equal(t, RefusedList[string]{Keys: []Refused[string]{}, From: 9, To: 9}, c.RefusedMost(10))
}

func TestRefusedListLeavesOutKeysWithoutAHash(t *testing.T) {
	c, _ := counting[any](true)
	c.Count([]int{1}, &policy.Decision{}, Basis{reason: unavailable})
	list := c.RefusedMost(10)
	assert.Empty(t, list.Keys)
	assert.EqualValues(t, 1, list.Total)
}
