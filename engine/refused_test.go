package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/race"
)

// refusing returns an engine with a full table, which refuses every key.
func refusing(t testing.TB) *Engine[string] {
	e := open[string](t, Config{Policy: funnel(1, 1, 24*time.Hour), MaxKeys: 1, WhenFull: RefuseNew})
	require.True(t, e.Choke("known"))
	settled(t, e)
	return e
}

// within checks a list against the exact number of refusals of each key:
//
//  1. No key is below its Least or above its Most.
//  2. No key that is not in the list is above OthersMost.
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
		require.False(t, listed[k.Key], "%s is in the list once", k.Key)
		listed[k.Key] = true
		require.LessOrEqual(t, k.Least, exact[k.Key], "%+v", k)
		require.LessOrEqual(t, exact[k.Key], k.Most, "%+v", k)
		require.LessOrEqual(t, k.Least, k.Refusals, "%+v", k)
		require.LessOrEqual(t, k.Refusals, k.Most, "%+v", k)
		if i > 0 {
			require.GreaterOrEqual(t, list.Keys[i-1].Least, k.Least)
		}
	}
	for key, n := range exact {
		if !listed[key] {
			require.LessOrEqual(t, n, list.OthersMost, key)
		}
	}
}

// Promise: A list of 1,000 refusals a minute is exact.
func TestRefusedListOfFewIsExact(t *testing.T) {
	e := refusing(t)
	exact := map[string]uint64{}
	var mu sync.Mutex
	together(8, func(i int) {
		for j := range 120 {
			key := fmt.Sprint("key ", (i+j*j)%50)
			assert.False(t, e.Choke(key))
			mu.Lock()
			exact[key]++
			mu.Unlock()
		}
	})
	list := e.MostRefused(100)
	require.Len(t, list.Keys, len(exact))
	for _, k := range list.Keys {
		n := exact[k.Key]
		assert.Equal(t, RefusedKey[string]{Key: k.Key, Refusals: n, Least: n, Most: n, Last: k.Last}, k)
	}
	within(t, list, exact)
	assert.Zero(t, list.OthersMost)

	short := e.MostRefused(7)
	require.Len(t, short.Keys, 7)
	assert.Equal(t, list.Keys[7].Refusals, short.OthersMost, "that of the first key that is cut off")
	within(t, short, exact)
	assert.Empty(t, e.MostRefused(0).Keys)
	assert.Empty(t, e.MostRefused(-1).Keys)
}

// Promise: Refusal counts are within their bounds in any flood.
func TestRefusedFiguresAreWithinTheirBounds(t *testing.T) {
	calls := repeated(300_000) / raceFactor
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
		t.Run(name, func(t *testing.T) {
			e := refusing(t)
			exact := map[string]uint64{}
			for i := range calls {
				key := next(i)
				exact[key]++
				e.Choke(key)
				if i%(calls/4) == 0 {
					within(t, e.MostRefused(50), exact)
				}
			}
			within(t, e.MostRefused(1<<20), exact)
			list := e.MostRefused(10)
			within(t, list, exact)
			if exact["offender"] > 0 {
				assert.Equal(t, "offender", list.Keys[0].Key, "no flood washes it out")
				assert.NotZero(t, list.Keys[0].Least) // for its tightness see cell.TestBoundsOfASample
			}
		})
	}
}

func TestRefusedFiguresAreWithinTheirBoundsOfManyCallers(t *testing.T) {
	e := refusing(t)
	const callers = 8
	calls := 50_000
	if race.Enabled {
		calls = 3_000
	}
	var counts [callers]map[string]uint64
	together(callers, func(i int) {
		counts[i] = map[string]uint64{}
		r := rand.New(rand.NewPCG(3, uint64(i)))
		zipf := rand.NewZipf(r, 1.1, 1, 10_000)
		for range calls {
			key := fmt.Sprint(zipf.Uint64())
			counts[i][key]++
			e.Choke(key)
			if r.IntN(5000) == 0 {
				e.MostRefused(10)
			}
		}
	})
	exact := map[string]uint64{}
	for _, some := range counts {
		for key, n := range some {
			exact[key] += n
		}
	}
	within(t, e.MostRefused(1000), exact)
}

func TestRefusalsOfEveryVerbAreInTheList(t *testing.T) {
	ctx := context.Background()
	for name, refuse := range map[string]func(e *Engine[string], key string){
		"Choke":      func(e *Engine[string], key string) { e.Choke(key) },
		"Take":       func(e *Engine[string], key string) { e.Take(key, 1) },
		"Take never": func(e *Engine[string], key string) { e.Take(key, 100) },
		"TakeWith":   func(e *Engine[string], key string) { e.TakeWith(funnel(2, 1, 24*time.Hour), key, 2) },
		"Reserve":    func(e *Engine[string], key string) { e.Reserve(key, 1, 0) },
		"Ask":        func(e *Engine[string], key string) { _, _ = e.Ask(ctx, key, 1) },
		"TakeAll":    func(e *Engine[string], key string) { TakeAll(e.Claim(key, 1)) },
		"TakeAll of many": func(e *Engine[string], key string) {
			TakeAll(e.Claim(key, 1), e.Claim("a", 1), e.Claim("b", 1), e.Claim("c", 1))
		},
		"Tiered": func(e *Engine[string], key string) {
			(&Tiered[string]{engines: []*Engine[string]{e}}).Choke(key)
		},
		"Wait": func(e *Engine[string], key string) {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			_ = e.Wait(ended, key, 1)
		},
		"Acquire": func(e *Engine[string], key string) { _, _ = e.Acquire(ctx, key, 1, 0) },
	} {
		for _, blocked := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", blocked ", blocked), func(t *testing.T) {
				e := open[string](t, Config{Policy: funnel(1, 1, 24*time.Hour)})
				require.True(t, e.Choke("key"))
				settled(t, e)
				if blocked {
					require.NoError(t, e.Block("key", time.Hour))
				}
				for range 7 {
					refuse(e, "key")
				}
				require.EqualValues(t, 7, e.Stats().Refused)
				list := e.MostRefused(10)
				require.Len(t, list.Keys, 1)
				assert.Equal(t, RefusedKey[string]{Key: "key", Refusals: 7, Least: 7, Most: 7, Last: list.Keys[0].Last}, list.Keys[0])
			})
		}
	}
}

func TestRefusedListIsOfTheLastMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := refusing(t)
		for range 50_000 { // so that most are not in the sample
			e.Choke("early")
		}
		time.Sleep(70 * time.Second)
		for range 3 {
			e.Choke("late")
		}
		list := e.MostRefused(10)
		require.Len(t, list.Keys, 2)
		assert.Equal(t, "early", list.Keys[0].Key)
		assert.InDelta(t, 70*time.Second, list.Keys[0].Last, float64(2*time.Second))
		assert.EqualValues(t, 50_003, list.Total)
		assert.InDelta(t, 70*time.Second, list.For, float64(2*time.Second))

		time.Sleep(60 * time.Second)
		list = e.MostRefused(10)
		require.Len(t, list.Keys, 1, "the first minute is over for a minute")
		assert.Equal(t, "late", list.Keys[0].Key)
		assert.EqualValues(t, 3, list.Keys[0].Least, "a flood in an earlier minute costs no accuracy")
		assert.EqualValues(t, 3, list.Keys[0].Most)
		assert.EqualValues(t, 3, list.Total)

		time.Sleep(2 * time.Minute)
		list = e.MostRefused(10)
		assert.Empty(t, list.Keys)
		assert.Zero(t, list.Total)
		assert.Zero(t, list.OthersMost)
	})
}

func TestRefusedListMayBeLeftOut(t *testing.T) {
	e := open[string](t, Config{Policy: funnel(1, 1, time.Hour), NoRefusedKeys: true})
	for range 10 {
		e.Choke("key")
	}
	assert.Equal(t, RefusedList[string]{Keys: []RefusedKey[string]{}}, e.MostRefused(10))
}

func TestRefusedListLeavesOutKeysWithoutAHash(t *testing.T) {
	e := open[any](t, Config{Policy: funnel(1, 1, time.Hour), WhenUnavailable: Refuse})
	assert.False(t, e.Choke([]int{1}))
	list := e.MostRefused(10)
	assert.Empty(t, list.Keys)
	assert.EqualValues(t, 1, list.Total)
}
