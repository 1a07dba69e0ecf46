package bench

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hoarder keeps so many bytes a key, until its idle time, if any, is over.
func hoarder(name string, bytes int, idles bool) Contender {
	c := faked(name, func(s Setup) *fake {
		var kept atomic.Pointer[[]byte] // the timer and Close both free it
		full := make([]byte, bytes*s.Keys)
		kept.Store(&full)
		free := func() { kept.Store(nil) }
		f := &fake{
			ask:    passAll,
			closed: func() error { free(); return nil }, // the bytes live until then
		}
		if idles && s.Idle > 0 {
			forget := time.AfterFunc(s.Idle, free)
			f.ask = func(keys []string) int {
				forget.Reset(s.Idle)
				return len(keys)
			}
		}
		return f
	})
	c.Idles = idles
	return c
}

func TestMemoryOfKeysBeforeAndAfterIdling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 20_000
		w := Workload{
			Name: "memory", Limit: slow, Draw: DrawOnce, Keys: keys, Rounds: 1, AuditOnly: true,
			Memory: true, Idle: 200 * ms,
		}
		results := ran(t, quick(), []Workload{w}, hoarder("keeps", 500, false), hoarder("forgets", 300, true)).Workloads[0].Results
		keeps, forgets := results[0].Memory, results[1].Memory
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
		assert.Equal(t, 2, results[1].Audit.Limiters, "a second one idles")
	})
}

// Promise: A flood's memory is returned.
func TestRalForgetsIdleKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		workloads, err := Select(Standard(0.02), []string{"memory"})
		require.NoError(t, err)
		results := ran(t, quick(), workloads, XsyncMap(), Ral()).Workloads[0].Results
		yardstick, ral := results[0].Memory, results[1].Memory
		assert.Zero(t, yardstick.Idle, "a yardstick forgets nothing")
		assert.Equal(t, minIdle, ral.Idle)
		assert.Positive(t, ral.BytesPerKey)
		assert.Less(t, ral.IdleShare(), 0.5)
	})
}
