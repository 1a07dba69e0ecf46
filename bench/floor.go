package bench

import (
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
)

// Floor returns the least that a limiter on a concurrent map can cost: for a
// known key, one clock read, one Load from an xsync MapOf and one
// compare-and-swap, whether it succeeds or not. Keys of Setup.Refuse have no
// compare-and-swap, because a refusal need not write. A new key costs a clock
// read, a Load and a LoadOrStore of a new word, in a map that was made large
// enough for all of them and never has to grow.
//
// It limits nothing. Where calls are on known keys its answers are those of a
// limiter that knew beforehand whom to refuse.
func Floor() Contender {
	return Contender{
		Name:  "floor",
		About: "xsync Load + clock + compare-and-swap; no limiter",
		Floor: true,
		Needs: func(w Workload) bool { return w.MaxKeys == 0 && w.Draw != Together },
		New: func(s Setup) (Limiter, error) {
			return &floor{
				// xsync begins to grow at three quarters of what it was made for.
				words:  xsync.NewMapOf[string, *atomic.Uint64](xsync.WithPresize(s.Keys * 4 / 3)),
				epoch:  time.Now(),
				refuse: s.Refuse,
			}, nil
		},
	}
}

// refused marks the word of a key that is always refused.
const refused = 1 << 63

type floor struct {
	words  *xsync.MapOf[string, *atomic.Uint64]
	epoch  time.Time
	refuse map[string]struct{}
}

// Choke implements Limiter. The clock is read first because that is faster.
func (f *floor) Choke(key string) bool {
	now := uint64(time.Since(f.epoch))
	word, known := f.words.Load(key)
	if !known {
		return f.open(key, now)
	}
	old := word.Load()
	if old&refused != 0 {
		return false
	}
	word.CompareAndSwap(old, now)
	return true
}

func (f *floor) open(key string, now uint64) bool {
	word := new(atomic.Uint64)
	if _, no := f.refuse[key]; no {
		now |= refused
	}
	word.Store(now)
	f.words.LoadOrStore(key, word)
	return now&refused == 0
}

// ChokeAll implements Limiter.
func (f *floor) ChokeAll(keys []string) (passed int) {
	for _, key := range keys {
		if f.Choke(key) {
			passed++
		}
	}
	return passed
}

// Close implements Limiter.
func (f *floor) Close() error { return nil }
