package peers

import (
	"sync"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"golang.org/x/sync/semaphore"

	"github.com/ral-limiter/ral/bench"
)

// These limit how many calls of a key are under way. Each call takes a slot and releases it. A slot that no call
// releases is lost, and no key is given up.

// ofSlots returns a contender that takes and releases slots.
func ofSlots(name, about string, open func(bench.Limit) func(names []string) int) bench.Contender {
	return bench.Contender{
		Name: name, About: about, Note: "loses a slot that no call releases, and keeps its keys for ever",
		Promise: bench.LeakyBucket, Exact: true, Needs: keepsAll, New: inMemory(open),
	}
}

// semaphoreXsync is golang.org/x/sync/semaphore, one for each key in an xsync MapOf, asked by TryAcquire.
var semaphoreXsync = ofSlots("semaphore+xsync", "golang.org/x/sync/semaphore, one a key in an xsync MapOf, by TryAcquire and Release",
	func(limit bench.Limit) func([]string) int {
		keys := newByKey(func() *semaphore.Weighted { return semaphore.NewWeighted(limit.Capacity) })
		return func(names []string) int {
			return bench.AskEach(names, func(key string) bool {
				s := keys.get(key)
				if !s.TryAcquire(1) {
					return false
				}
				s.Release(1)
				return true
			})
		}
	})

// bulkheadSyncMap is the bulkhead of github.com/failsafe-go/failsafe-go, one for each key in a sync.Map, asked by
// TryAcquirePermit.
var bulkheadSyncMap = ofSlots("bulkhead+sync", "github.com/failsafe-go/failsafe-go, a bulkhead a key in a sync.Map",
	func(limit bench.Limit) func([]string) int {
		// It holds a bulkhead.Bulkhead[any] for each key.
		keys := new(sync.Map)
		return func(names []string) int {
			return bench.AskEach(names, func(key string) bool {
				b, known := keys.Load(key)
				if !known {
					b, _ = keys.LoadOrStore(key, bulkhead.New[any](uint(whole(min(limit.Capacity, maxSlots)))))
				}
				slots := b.(bulkhead.Bulkhead[any])
				if !slots.TryAcquirePermit() {
					return false
				}
				slots.ReleasePermit()
				return true
			})
		}
	})

// maxSlots bounds the slots of a bulkhead, which are the buffer of a channel.
const maxSlots = 1000
