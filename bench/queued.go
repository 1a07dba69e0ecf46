package bench

import (
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"github.com/ral-limiter/ral/policy"
)

// RalQueued returns the protocol of the design that Ral comes from: a call decides on the word it
// reads, and a single writer records the take. It exceeds the limit by takes in flight, and keeps
// all keys.
func RalQueued() Contender {
	return Contender{
		Name:    "Ral Queued",
		About:   "the original's protocol: callers decide, one writer records",
		Note:    "admits too many by design when callers meet at a key",
		Promise: LeakyBucket,
		Needs:   func(w Workload) bool { return w.MaxKeys == 0 },
		New: func(setup Setup) (Limiter, error) {
			limit, err := funnel(setup.Limit)
			if err != nil {
				return Limiter{}, err
			}
			q := &queued{
				limit: limit, epoch: time.Now(), words: xsync.NewMapOf[string, *atomic.Uint64](),
				takes: make(chan queuedTake, queueDepth), done: make(chan struct{}),
			}
			go q.write()
			return Limiter{
				Ask: func(keys []string) int {
					return AskEach(keys, func(key string) bool { return q.choke(key) })
				},
				Settle: q.settle, Free: q.close,
				Counts: func() Counts { return Counts{Overadmitted: q.overadmitted.Load()} },
			}, nil
		},
	}
}

// queueDepth is the number of takes that may wait for the writer. Further calls block.
const queueDepth = 1024

type queued struct {
	limit policy.Policy
	epoch time.Time
	// words are written by the writer alone.
	words        *xsync.MapOf[string, *atomic.Uint64]
	takes        chan queuedTake
	done         chan struct{}
	overadmitted atomic.Int64
}

// queuedTake is an admitted take, or asks the writer to close settled.
type queuedTake struct {
	key     string
	now     policy.Instant
	settled chan struct{}
}

// write records takes until Close, and counts those that the limit no longer allows.
func (q *queued) write() {
	defer close(q.done)
	for queuedTake := range q.takes {
		if queuedTake.settled != nil {
			close(queuedTake.settled)
			continue
		}
		word, _ := q.words.LoadOrCompute(queuedTake.key, func() *atomic.Uint64 { return new(atomic.Uint64) })
		next, decision := q.limit.Take(word.Load(), queuedTake.now, 1, 0)
		if !decision.Allowed {
			q.overadmitted.Add(1)
			continue
		}
		word.Store(next)
	}
}

func (q *queued) choke(key string) bool {
	now := policy.Instant(time.Since(q.epoch)) + 1
	var state uint64
	if word, known := q.words.Load(key); known {
		state = word.Load()
	}
	if _, decision := q.limit.Take(state, now, 1, 0); !decision.Allowed {
		return false
	}
	q.takes <- queuedTake{key: key, now: now}
	return true
}

func (q *queued) settle() {
	settled := make(chan struct{})
	q.takes <- queuedTake{settled: settled}
	<-settled
}

func (q *queued) close() error {
	close(q.takes)
	<-q.done
	return nil
}
