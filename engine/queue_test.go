package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cell"
)

// stalled returns an engine whose writer stands still until the test ends.
func stalled(t *testing.T, config Config) *Engine[string] {
	release := make(chan struct{})
	config.fault = func(point string) {
		if point == "file: begin" || point == "take: begin" {
			<-release
		}
	}
	e := open[string](t, config)
	t.Cleanup(func() { close(release) }) // before the engine's own cleanup
	return e
}

// With the writer at a stand and the queue full, new keys are limited exactly all
// the same, as long as their slots in the nursery are free; those whose slot is
// taken wait for OpenTimeout and are answered.
func TestStandingWriterAndFullQueue(t *testing.T) {
	for _, when := range []cell.WhenUnavailable{Admit, Refuse} {
		t.Run(when.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const timeout = 7 * time.Millisecond
				e := stalled(t, Config{
					Policy: funnel(1, 1, time.Hour), MaxKeys: 64, QueueDepth: 1,
					OpenTimeout: timeout, WhenUnavailable: when,
				})
				landed, unavailable := 0, 0
				for _, key := range keys(64) {
					begin, before := time.Now(), e.Stats().Unavailable
					passed := e.Choke(key)
					if e.Stats().Unavailable == before {
						landed++
						assert.True(t, passed)
						assert.Zero(t, time.Since(begin), "a landed key waits for nobody")
						assert.False(t, e.Choke(key), "and is limited at once")
						continue
					}
					unavailable++
					assert.Equal(t, when == Admit, passed)
					assert.Equal(t, timeout, time.Since(begin))
				}
				assert.Positive(t, unavailable)
				assert.Equal(t, landed, e.Len())
				assert.Equal(t, 1, e.Stats().QueueDepth, "full")
			})
		})
	}
}

// The commands that a full queue lost are made up for as soon as it is empty.
func TestLostCommandsAreMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		e := open[string](t, Config{
			Policy: funnel(1, 1, time.Hour), QueueDepth: 1,
			fault: func(point string) {
				if point == "file: begin" {
					<-release
				}
			},
		})
		var recorded []string // the others met a slot that was taken
		for _, key := range keys(500) {
			before := e.Stats().Unavailable
			require.True(t, e.Choke(key))
			if e.Stats().Unavailable == before {
				recorded = append(recorded, key)
			}
		}
		synctest.Wait()
		lost := e.table.View().Landed()
		require.Greater(t, lost, 100)
		close(release)
		synctest.Wait() // no time passes: this is not the janitor's doing
		assert.Zero(t, e.table.View().Landed())
		for _, key := range recorded {
			require.False(t, e.Choke(key))
		}
	})
}

// In Queued mode a take that finds no place in the queue waits for OpenTimeout,
// and is answered without having been recorded.
func TestQueuedWithAFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 3 * time.Millisecond
		e := stalled(t, Config{
			Policy: funnel(100, 1, time.Hour), Admission: cell.Queued, QueueDepth: 2,
			OpenTimeout: timeout, WhenUnavailable: Refuse,
		})
		require.True(t, e.Choke("key")) // its File command is what the writer stands at
		synctest.Wait()
		require.True(t, e.Choke("key"))
		begin := time.Now()
		d := e.Take("key", 1)
		assert.False(t, d.Allowed)
		assert.Equal(t, timeout, d.RetryAfter)
		assert.Equal(t, timeout, time.Since(begin))
		assert.EqualValues(t, 1, e.Stats().Unavailable)
	})
}
