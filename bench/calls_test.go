package bench

import (
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

func TestBriefShortensCallsAndIdling(t *testing.T) {
	all := All(1)
	brief := Brief(all)
	for i, w := range brief {
		if !w.Apart || w.OneTimedPass {
			want := all[i]
			want.Idle = min(want.Idle, 250*time.Millisecond)
			assert.Equal(t, want, w)
			continue
		}
		assert.Equal(t, 5, w.Rounds, w.Name)
		assert.Positive(t, w.Duration, w.Name)
		assert.True(t, w.AuditOnly, w.Name)
		assert.Zero(t, all[i].Duration, "the workload given is as it was")
	}
}

func TestWorkloadMayHaveADurationOfItsOwn(t *testing.T) {
	o := quick()
	w := Workload{Name: "short", Limit: Loose, Keys: 1}
	long := estimate([]Workload{w}, []Contender{Floor()}, o)
	w.Duration = o.Duration / 2
	assert.Less(t, estimate([]Workload{w}, []Contender{Floor()}, o), long)
	w.Duration, w.Draw, w.CallCost = 0, DrawOnce, time.Hour
	assert.GreaterOrEqual(t, estimate([]Workload{w}, []Contender{Floor()}, o), time.Hour)
}

func TestLimitersAreToldTheirKeysFirst(t *testing.T) {
	made := &fake{ask: passAll}
	c := faked("told", func(Setup) *fake { return made })
	resultOf(t, quick(), Workload{Name: "some", Limit: Loose, Draw: DrawInTurn, Keys: 3}, c)
	assert.Equal(t, newStream(upTo(0, 3)).keys, made.told)
}

func TestWindowCountsItsOwnCalls(t *testing.T) {
	c := &caller{stream: newStream([]uint32{0, 2, 0, 1})}
	callers := []*caller{c, {}}
	count := func(w askedWindow) []int64 {
		times := make([]int64, 3)
		w.count(times)
		return times
	}
	// window asks this many calls.
	window := func(asked int64) askedWindow {
		w := askedWindow{callers: callers, before: tallies(callers)}
		c.asked += asked
		w.after = tallies(callers)
		return w
	}
	first := window(10)
	assert.Equal(t, []int64{5, 2, 3}, count(first), "two loops, and the first two keys")
	assert.Equal(t, []int64{2, 1, 0}, count(window(3)), "the last two keys, and the first")
	assert.Equal(t, []int64{5, 2, 3}, count(first), "the first is what it was")
	assert.Equal(t, []int64{0, 0, 0}, count(window(0)))
}

// Promise: Each call of a workload has a text of its own, as in a server, and never the text that a limiter keeps.
func TestKeysAreBuiltAnew(t *testing.T) {
	for _, w := range []Workload{{Name: "hot", Keys: 1}, {Name: "many", Keys: 300}, {Name: "zipf", Keys: 300, Draw: DrawZipf}} {
		var mu sync.Mutex
		kept, calls, again := map[string]*byte{}, 0, 0
		c := faked("keeps", func(Setup) *fake {
			return &fake{ask: func(keys []string) int {
				mu.Lock()
				defer mu.Unlock()
				for _, key := range keys {
					if first, known := kept[key]; !known {
						kept[key] = unsafe.StringData(key)
					} else if calls++; first == unsafe.StringData(key) {
						again++
					}
				}
				return len(keys)
			}}
		})
		w.Limit = Loose
		resultOf(t, quick(), w, c)
		assert.Len(t, kept, w.Keys, w.Name)
		assert.Positive(t, calls, w.Name)
		assert.Zero(t, again, w.Name)
	}
}
