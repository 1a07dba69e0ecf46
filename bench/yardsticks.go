package bench

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
)

const refusedBit = 1 << 63

// Floor returns the minimum for any limiter by key, in the leanest layout: hash the key, read the
// clock, load the key's word, and advance it by one compare-and-swap, successful or not. The hash
// is the index into an array of words. Keys are not compared, so two may share a word. Keys of
// Setup.Refuse have no compare-and-swap, as a refusal need not write.
//
// It limits nothing. On known keys it answers like a limiter that knew which calls to refuse.
func Floor() Contender {
	return Contender{
		Name: "floor", Yardstick: YardstickFloor,
		About: "hash + clock + compare-and-swap in an array made beforehand; no map, no limiter",
		Needs: func(w Workload) bool {
			return w.MaxKeys == 0 && w.Draw != DrawSameOrder && !w.AuditOnly && !w.OneTimedPass
		},
		New: func(setup Setup) (Limiter, error) {
			f := &floor{words: make([]atomic.Uint64, max(setup.Keys, 1)), seed: maphash.MakeSeed(), epoch: time.Now()}
			for key := range setup.Refuse {
				f.word(key).Store(refusedBit)
			}
			return Limiter{Ask: func(keys []string) int {
				return AskEach(keys, func(key string) bool { return f.choke(key) })
			}}, nil
		},
	}
}

type floor struct {
	words []atomic.Uint64
	seed  maphash.Seed
	epoch time.Time
}

func (f *floor) word(key string) *atomic.Uint64 {
	index, _ := bits.Mul64(maphash.String(f.seed, key), uint64(len(f.words)))
	return &f.words[index]
}

// Hashing before reading the clock is fastest.
func (f *floor) choke(key string) bool {
	word := f.word(key)
	now := uint64(time.Since(f.epoch))
	old := word.Load()
	if old&refusedBit != 0 {
		return false
	}
	word.CompareAndSwap(old, now)
	return true
}

// XsyncMap returns about the minimum for a limiter on an xsync MapOf. A known key costs one clock
// read, one Load and one compare-and-swap, successful or not, and none if in Setup.Refuse. A new
// key costs a clock read, a Load and a LoadOrStore of a new word, in a map that never grows.
//
// It limits nothing and is no lower bound: a limiter with its own map may cost less.
func XsyncMap() Contender {
	return Contender{
		Name: "xsync map", Yardstick: YardstickMap, About: "xsync map load + clock + compare-and-swap; no limiter",
		Needs: func(w Workload) bool { return w.MaxKeys == 0 && w.Draw != DrawSameOrder },
		New: func(setup Setup) (Limiter, error) {
			// xsync grows at three quarters of its size.
			words := xsync.NewMapOf[string, *atomic.Uint64](xsync.WithPresize(setup.Keys * 4 / 3))
			x := &xsyncMap{words: words, epoch: time.Now(), refuse: setup.Refuse}
			return Limiter{Ask: func(keys []string) int {
				return AskEach(keys, func(key string) bool { return x.choke(key) })
			}}, nil
		},
	}
}

type xsyncMap struct {
	words  *xsync.MapOf[string, *atomic.Uint64]
	epoch  time.Time
	refuse map[string]struct{}
}

// The clock is read first because that is faster.
func (x *xsyncMap) choke(key string) bool {
	now := uint64(time.Since(x.epoch))
	word, known := x.words.Load(key)
	if !known {
		return x.open(key, now)
	}
	old := word.Load()
	if old&refusedBit != 0 {
		return false
	}
	word.CompareAndSwap(old, now)
	return true
}

func (x *xsyncMap) open(key string, now uint64) bool {
	word := new(atomic.Uint64)
	if _, no := x.refuse[key]; no {
		now |= refusedBit
	}
	word.Store(now)
	x.words.LoadOrStore(key, word)
	return now&refusedBit == 0
}
