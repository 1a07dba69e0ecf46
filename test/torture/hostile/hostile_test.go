package hostile

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
)

var lasting = flag.Duration("for", 0, "how long TestCost runs; 0 skips it")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

func limit(capacity int64) policy.Policy { return policy.Must(policy.Funnel(capacity, 1, time.Hour)) }

func open[K comparable](t testing.TB, config engine.Config) *engine.Engine[K] {
	t.Helper()
	e, err := engine.New[K](config)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	return e
}

// Goroutines call every verb with every kind of key. Checked:
//
//  1. nothing panics;
//  2. the table never holds more than it may, and no key that cannot be recorded;
//  3. every call is counted as admitted or refused;
//  4. keys that were not recorded leave memory: a NaN in a map could never be removed.
func TestNoVerbPanics(t *testing.T) {
	every(t, strs)
	every(t, words)
	every(t, ipv4)
	every(t, addresses)
	every(t, floats)
	every(t, complexes)
	every(t, anything)
	every(t, deeps)
	every(t, arrays)
	every(t, nothings)
}

func every[K comparable](t *testing.T, kinds []kind[K]) {
	for _, k := range kinds {
		for _, refuse := range []bool{false, true} {
			t.Run(fmt.Sprintf("%T/%s, refuse %v", *new(K), k.name, refuse), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { // no real time for calls that wait
					const most, callers = 32, 4
					rounds := 200 / testenv.RaceSlowdown
					config := engine.Config{Policy: limit(2), MaxKeys: most, OpenTimeout: time.Minute, Idle: time.Nanosecond}
					if refuse {
						config.WhenUnavailable = engine.Refuse
					}
					e := open[K](t, config)
					var counted atomic.Uint64
					var all sync.WaitGroup
					for i := range uint64(callers) {
						all.Go(func() {
							for n := range uint64(rounds) {
								counted.Add(calls(t, e, k, i+callers*n))
								if n := e.Len(); n > most {
									t.Errorf("%d keys in a table of %d", n, most)
								}
							}
						})
					}
					all.Wait()
					stats := e.Stats()
					assert.Equal(t, counted.Load(), stats.Admitted+stats.Refused)
					if k.lost {
						assert.Zero(t, stats.Keys)
						assert.Positive(t, stats.Unavailable)
					} else {
						assert.Zero(t, stats.Unavailable)
					}
					for key := range e.All() {
						assert.True(t, key == key) //nolint:gocritic // false for NaN
					}
				})
			})
		}
	}
}

// calls calls every verb, and returns the number of counted calls.
func calls[K comparable](t *testing.T, e *engine.Engine[K], k kind[K], n uint64) (counted uint64) {
	key, other := k.key(n), k.key(n+1)
	e.Choke(key)
	e.Take(key, 1)
	d := e.Take(key, 3)
	if d.Allowed || d.RetryAfter != policy.Never {
		t.Errorf("three of at most two: %+v", d)
	}
	e.TakeWith(limit(3), key, 1)
	e.Peek(key, 0)
	e.Refund(key, 1)
	e.Refund(key, -1)
	r := e.Reserve(key, 1, time.Hour)
	r.Cancel()
	r.Cancel()
	e.Reset(key)
	counted = 5

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // a turn is an hour away
	for range 3 {
		err := e.Wait(ctx, key, 1)
		if _, full := ctx.Deadline(); err == nil && !full {
			t.Error("it passed without a deadline")
		}
		counted++
	}
	cancel()

	var claims []engine.Claim
	for _, key := range []K{key, other, key} {
		claims = append(claims, e.Claim(key, 1))
	}
	was := engine.TakeAll(claims...)
	seen := map[int]bool{}
	for i, d := range was.Decisions {
		same := k.same(n, i)
		if !seen[same] && d.Allowed == was.Allowed {
			counted++
		}
		seen[same] = true
	}
	return counted
}

// same names the claim on the same key as the ith of calls: the key, another, and the key again.
func (k kind[K]) same(n uint64, i int) int {
	a, b := k.key(n), k.key(n+1)
	switch {
	case k.lost:
		return i // never equal to themselves
	case i == 2 || i == 1 && equal(a, b):
		return 0
	}
	return i
}

func equal[K comparable](a, b K) bool { return a == b }

func TestKeysAreToldApart(t *testing.T) {
	apart(t, strs)
	apart(t, words)
	apart(t, ipv4)
	apart(t, addresses)
	apart(t, floats)
	apart(t, deeps)
	apart(t, arrays)

	zeros := open[float64](t, engine.Config{Policy: limit(1)})
	assert.True(t, zeros.Choke(0))
	assert.False(t, zeros.Choke(math.Copysign(0, -1)), "0 and -0 are equal")

	types := open[any](t, engine.Config{Policy: limit(1)})
	for _, key := range []any{1, int64(1), uint8(1), 1.0, float32(1), "1", true, [1]int{1}, struct{ n int }{1}, nil} {
		assert.True(t, types.Choke(key), "%T", key)
		assert.False(t, types.Choke(key), "%T", key)
	}
}

func apart[K comparable](t *testing.T, kinds []kind[K]) {
	for _, k := range kinds {
		if !k.unique {
			continue
		}
		e := open[K](t, engine.Config{Policy: limit(2), OpenTimeout: time.Minute})
		for range 2 {
			for n := range uint64(500) {
				require.True(t, e.Choke(k.key(n)), k.name)
			}
		}
		for n := range uint64(500) {
			require.False(t, e.Choke(k.key(n)), k.name)
		}
		assert.Equal(t, 500, e.Len(), k.name)
	}
}

func TestLongKeysLeaveMemory(t *testing.T) {
	const most, size = 64, 64 << 10
	var clock atomic.Int64
	e := open[string](t, engine.Config{
		Policy: limit(1), MaxKeys: most, OpenTimeout: time.Minute, Idle: time.Nanosecond,
		Clock: func() policy.Instant { return policy.Instant(clock.Load()) },
	})
	before := heap()
	for n := range uint64(1000) {
		require.True(t, e.Choke(long+eight(n)))
	}
	// A key that was given up may still be in a waiting command, or just be made.
	assert.Less(t, heap()-before, int64(2*most*size), "more than the table may hold")
	assert.Greater(t, heap()-before, int64(most*size/2), "the check sees nothing")

	clock.Store(int64(2 * time.Hour)) // all have drained
	must.Await(t, func() bool { return e.Len() == 0 }, "all keys leave")
	assert.Less(t, heap()-before, int64(4*size), "the memory of hostile keys is not given back")
}

func TestLostKeysTakeNoMemory(t *testing.T) {
	lost(t, func(uint64) float64 { return math.NaN() })
	lost(t, func(n uint64) any { return []uint64{n} })
}

func lost[K comparable](t *testing.T, key func(uint64) K) {
	e := open[K](t, engine.Config{Policy: limit(1), WhenUnavailable: engine.Refuse})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	before := heap()
	for n := range uint64(20_000 / testenv.RaceSlowdown) {
		k := key(n)
		require.False(t, e.Choke(k))
		require.ErrorIs(t, e.Wait(ctx, k, 1), engine.ErrUnavailable)
		e.Refund(k, -1)
		require.False(t, engine.TakeAll(e.Claim(k, 1)).Allowed)
	}
	assert.Less(t, heap()-before, int64(64<<10))
	assert.Zero(t, e.Len())
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return int64(memory.HeapAlloc)
}

// pair has calls on hostile and ordinary keys to compare. bare and bareOthers use Go's map.
type pair struct {
	name                                string
	hostile, ordinary, bare, bareOthers func(n uint64)
}

const costKeys = 512

func pairs(t testing.TB) []pair {
	return slices.Concat(
		costs(t, strs, func(n uint64) string { return "client-" + eight(n) }),
		costs(t, words, func(n uint64) uint64 { return n * 0x9E3779B97F4A7C15 }),
		costs(t, ipv4, func(n uint64) uint32 { return uint32(n * 0x9E3779B1) }),
		costs(t, floats, func(n uint64) float64 { return float64(n) * math.Pi }),
		costs(t, anything[:1], func(n uint64) any { return n }),
	)
}

func costs[K comparable](t testing.TB, kinds []kind[K], ordinary func(uint64) K) (all []pair) {
	for _, k := range kinds {
		if !k.unique && !k.lost {
			continue
		}
		on := func(key func(uint64) K, lost bool) (call, bare func(uint64)) {
			e := open[K](t, engine.Config{Policy: policy.Must(policy.Funnel(1_000_000, 1_000_000, time.Second))})
			keys := make([]K, costKeys)
			plain := map[K]int{}
			for n := range keys {
				keys[n] = key(uint64(n))
				e.Choke(keys[n])
				if !lost {
					plain[keys[n]] = n
				}
			}
			call = func(n uint64) { e.Choke(keys[n%costKeys]) }
			bare = func(n uint64) {
				if !lost && plain[keys[n%costKeys]] != int(n%costKeys) {
					panic("the map has lost a key")
				}
			}
			return call, bare
		}
		p := pair{name: fmt.Sprintf("%T %s", *new(K), k.name)}
		p.hostile, p.bare = on(k.key, k.lost)
		p.ordinary, p.bareOthers = on(ordinary, false)
		all = append(all, p)
	}
	return all
}

// A hostile key costs at most twice an ordinary key of its type, plus the cost of any table:
// hashing and comparing it. Both are measured in turns; medians are compared.
func TestCost(t *testing.T) {
	if *lasting == 0 {
		t.Skip("a measurement, of the long part: -for says how long it may take")
	}
	all := pairs(t)
	turn := *lasting / time.Duration(len(all))
	for _, p := range all {
		var cost [4][]float64
		for begin := time.Now(); time.Since(begin) < turn || len(cost[0]) < 9; {
			for i, call := range []func(uint64){p.hostile, p.ordinary, p.bare, p.bareOthers} {
				const times = 4096
				from := time.Now()
				for n := range uint64(times) {
					call(n)
				}
				cost[i] = append(cost[i], float64(time.Since(from).Nanoseconds())/times)
			}
		}
		var ns [4]float64
		for i := range cost {
			slices.Sort(cost[i])
			ns[i] = cost[i][len(cost[i])/2]
		}
		fmt.Fprintf(os.Stderr, "hostile: %-45s %8.0f ns, ordinary %4.0f ns; Go's map %8.0f and %3.0f ns\n",
			p.name, ns[0], ns[1], ns[2], ns[3])
		assert.LessOrEqual(t, ns[0], 2*ns[1]+2*max(ns[2]-ns[3], 0), p.name)
	}
}
