package simulation

import (
	"hash/maphash"
	"sync"
)

type key uint64

// hashSeed seeds all tables of this process. Hashes differ by process, so keys are chosen by hash.
var hashSeed = maphash.MakeSeed()

const (
	poolSize = 16
	// Low bits of a hash choose a nursery slot, a tag in the map and a lock for waiting lines. High
	// bits choose a shard and a bucket. Bits that matter to a run are the same in each process.
	lowBits, highBits = 12, 7
)

// pool are keys with hashes that begin and end alike in every process: pool()[i] ends in i and
// begins with 8*(5*i mod 16). Four in a row have slots of their own in a nursery of four.
var pool = sync.OnceValue(func() (keys [poolSize]key) {
	found := 0
	for k := key(1); found < poolSize; k++ {
		hash := maphash.Comparable(hashSeed, k)
		i := hash & (poolSize - 1)
		if hash&(1<<lowBits-1) == i && hash>>(64-highBits) == 8*(5*i%poolSize) && keys[i] == 0 {
			keys[i] = k
			found++
		}
	}
	return keys
})
