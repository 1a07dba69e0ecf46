package bench

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hoard keeps so many bytes a key, until its idle time, if any, is over.
type hoard struct {
	bucket
	forget *time.Timer
	idle   time.Duration
}

func hoarder(name string, bytes int, idles bool) Contender {
	return Contender{Name: name, Idles: idles, New: func(s Setup) (Limiter, error) {
		h := &hoard{}
		h.taken, h.capacity = nil, int64(bytes)
		var kept atomic.Pointer[[]byte] // the timer and Close both free it
		full := make([]byte, bytes*s.Keys)
		kept.Store(&full)
		free := func() { kept.Store(nil) }
		h.closed = func() error { free(); return nil } // the bytes live until then
		if idles && s.Idle > 0 {
			h.forget = time.AfterFunc(s.Idle, free)
			h.idle = s.Idle
		}
		return h, nil
	}}
}

func (*hoard) Choke(string) bool { return true }

func (h *hoard) ChokeAll(keys []string) (pass int) {
	if h.forget != nil {
		h.forget.Reset(h.idle)
	}
	return len(keys)
}

func TestMemoryOfKeysBeforeAndAfterIdling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 20_000
		w := Workload{
			Name: "memory", Limit: slow, Draw: DrawOnce, Keys: keys, Rounds: 1, AuditOnly: true,
			Memory: true, Idle: 200 * ms,
		}
		report, err := Run(t.Context(), []Workload{w}, []Contender{hoarder("keeps", 500, false), hoarder("forgets", 300, true)}, quick())
		require.NoError(t, err)
		keeps, forgets := report.Workloads[0].Results[0].Memory, report.Workloads[0].Results[1].Memory

		for _, m := range []*Memory{keeps, forgets} {
			assert.Equal(t, keys, m.Keys)
			assert.EqualValues(t, keys*keyLength, m.KeyBytes)
		}
		assert.InDelta(t, 500, keeps.BytesPerKey, 25)
		assert.InDelta(t, 300, forgets.BytesPerKey, 25, "each is measured without the other")
		assert.Zero(t, keeps.Idle)
		assert.InDelta(t, 1, keeps.IdleShare(), 1e-9)
		assert.Equal(t, 200*ms, forgets.Idle)
		assert.Less(t, forgets.IdleShare(), 0.2)
		assert.Equal(t, 2, report.Workloads[0].Results[1].Audit.Limiters, "a second one idles")
	})
}

// Collections are timed outside of a bubble.
func TestCollectionsAreTimed(t *testing.T) {
	m := newGauge().full(1)
	assert.Positive(t, m.GC)
	assert.Positive(t, m.GCBefore)
}

// Promise: A flood's memory is returned.
func TestRalForgetsIdleKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		workloads, err := Select(Standard(0.02), []string{"memory"})
		require.NoError(t, err)
		report, err := Run(t.Context(), workloads, []Contender{XsyncMap(), Ral()}, quick())
		require.NoError(t, err)
		yardstick, ral := report.Workloads[0].Results[0].Memory, report.Workloads[0].Results[1].Memory
		assert.Zero(t, yardstick.Idle, "a yardstick forgets nothing")
		assert.Equal(t, minIdle, ral.Idle)
		assert.Positive(t, ral.BytesPerKey)
		assert.Less(t, ral.IdleShare(), 0.5)
	})
}

func TestIdlingEndsWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		m := &Memory{FullHeap: 100, IdleHeap: 100}
		begun := time.Now()
		newGauge().idle(ctx, m, time.Hour)
		assert.Zero(t, time.Since(begun))
		assert.Zero(t, m.Idle)
	})
}
