package frequent

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// check checks Keys against exact counts:
//
//  1. A counter is at most its Over too high, and never too low.
//  2. The count of a key without a counter is at most Floor.
//  3. Over and Floor are at most the sum of all weights, divided by the number of counters.
//  4. Find finds every counter, and no other key.
func check(t *testing.T, k *Keys[int], exact map[int]uint64, hash func(int) uint64) {
	t.Helper()
	var sum uint64
	for _, n := range exact {
		sum += n
	}
	bound := sum / uint64(cap(k.counters))
	require.LessOrEqual(t, k.Floor(), bound)
	counted := map[int]bool{}
	for _, c := range k.All() {
		require.False(t, counted[c.Key], "one counter a key")
		counted[c.Key] = true
		require.LessOrEqual(t, exact[c.Key], c.Count)
		require.LessOrEqual(t, c.Count-c.Over, exact[c.Key])
		require.LessOrEqual(t, c.Over, bound)
		found, ok := k.Find(&c)
		require.True(t, ok)
		require.Equal(t, c, found)
	}
	for key, n := range exact {
		if counted[key] {
			continue
		}
		require.LessOrEqual(t, n, k.Floor())
		c, ok := k.Find(&Counter[int]{Key: key, hash: hash(key)})
		require.False(t, ok)
		require.Equal(t, Counter[int]{Key: key, Count: k.Floor(), Over: k.Floor(), hash: hash(key)}, c)
	}
}

func TestCountsAreWithinTheirBounds(t *testing.T) {
	hashes := map[string]func(int) uint64{
		"spread":    func(key int) uint64 { return uint64(key+1) * 0x9E3779B97F4A7C15 },
		"all alike": func(int) uint64 { return 1<<64 - 1 },
		"two slots": func(key int) uint64 { return uint64(key % 2) },
	}
	for name, hash := range hashes {
		for _, counters := range []int{1, 2, 7, 64} {
			t.Run(fmt.Sprint(name, " ", counters), func(t *testing.T) {
				r := rand.New(rand.NewPCG(1, uint64(counters)))
				zipf := rand.NewZipf(r, 1.1, 1, 1000)
				streams := map[string]func(i int) int{
					"zipf":    func(int) int { return int(zipf.Uint64()) },
					"uniform": func(int) int { return r.IntN(500) },
					// A frequent key comes again and again, and all others once.
					"fresh": func(i int) int {
						if i%8 == 0 {
							return -1
						}
						return i
					},
					// Each key has just lost its counter.
					"in turns": func(i int) int { return i % (counters + 1) },
				}
				for stream, next := range streams {
					k, exact := New[int](counters), map[int]uint64{}
					for i := range 1200 {
						key, weight := next(i), 1+r.Uint64N(4)
						exact[key] += weight
						k.Add(hash(key), key, weight, int64(i))
						if i%199 == 0 {
							check(t, k, exact, hash)
						}
					}
					check(t, k, exact, hash)
					if stream == "fresh" && counters == 64 {
						_, ok := k.Find(&Counter[int]{Key: -1, hash: hash(-1)})
						assert.True(t, ok, "1 of 8 is more than 1 of 64: it has a counter")
					}
				}
			})
		}
	}
}

func TestLastIsTheLatestInstant(t *testing.T) {
	k := New[string](2)
	k.Add(1, "a", 1, 20)
	k.Add(1, "a", 1, 10)
	assert.Equal(t, int64(20), k.All()[0].Last)
}

func TestClearForgetsAll(t *testing.T) {
	k := New[int](4)
	for i := range 10 {
		k.Add(uint64(i), i, 1, 1)
	}
	k.Clear()
	assert.Empty(t, k.All())
	assert.Zero(t, k.Floor())
	k.Add(1, 7, 3, 1)
	require.Len(t, k.All(), 1)
	assert.Equal(t, uint64(3), k.All()[0].Count)
	assert.Zero(t, k.All()[0].Over)
}

func TestAddAllocatesNothing(t *testing.T) {
	k := New[int](16)
	i := 0
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		i++
		k.Add(uint64(i)*0x9E3779B97F4A7C15, i, 1, 1)
	}))
}
