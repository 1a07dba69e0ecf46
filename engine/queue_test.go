package engine

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stalled returns an engine whose writer stands still until the test ends.
func stalled(t *testing.T, config Config) *Engine[string] {
	e, _ := stalledUntil(t, config)
	return e
}

// stalledUntil is stalled, until release is called.
func stalledUntil(t *testing.T, config Config) (e *Engine[string], release func()) {
	stands := make(chan struct{})
	config.fault = func(point string) {
		if point == "file: begin" {
			<-stands
		}
	}
	e = open[string](t, config)
	release = sync.OnceFunc(func() { close(stands) })
	// The release comes before the engine's own cleanup.
	t.Cleanup(release)
	// The janitor's first command is through.
	synctest.Wait()
	return e, release
}

// With the queue full, new keys are limited exactly until the table is full; later new keys wait
// for OpenTimeout.
//
// Promise: Calls on known keys never wait for the writer.
func TestStandingWriterAndFullQueue(t *testing.T) {
	for _, when := range []WhenUnavailable{Admit, Refuse} {
		t.Run(fmt.Sprint(when), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const timeout, maxKeys = 7 * time.Millisecond, 64
				e := stalled(t, Config{
					Policy: funnel(1, 1, time.Hour), MaxKeys: maxKeys, QueueDepth: 1,
					OpenTimeout: timeout, WhenUnavailable: when,
				})
				all := keys(maxKeys + 3)
				begin := time.Now()
				for _, key := range all[:maxKeys] {
					assert.True(t, e.Choke(key))
					assert.False(t, e.Choke(key))
				}
				assert.Equal(t, begin, time.Now(), "a key that lands must wait for nothing")
				assert.Equal(t, maxKeys, e.Len())
				assert.Equal(t, 1, e.Stats().QueueDepth, "the queue is not full")

				for i, key := range all[maxKeys:] {
					begin := time.Now()
					assert.Equal(t, when == Admit, e.Choke(key))
					assert.Equal(t, timeout, time.Since(begin))
					assert.EqualValues(t, i+1, e.Stats().Unavailable)
				}
				assert.False(t, e.Choke(all[0]))
				assert.Equal(t, maxKeys, e.Len())
			})
		})
	}
}

// Promise: A lost command loses nothing.
func TestLostCommandsAreMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, release := stalledUntil(t, Config{Policy: funnel(1, 1, time.Hour), QueueDepth: 1})
		all := keys(500)
		for _, key := range all {
			require.True(t, e.Choke(key))
		}
		synctest.Wait()
		require.Equal(t, 500, e.table.View().Landed())
		release()
		// No time passes, so the janitor does not act.
		synctest.Wait()
		assert.Zero(t, e.table.View().Landed())
		for _, key := range all {
			require.False(t, e.Choke(key))
		}
	})
}
