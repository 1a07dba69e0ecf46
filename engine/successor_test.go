package engine

import (
	"context"
	"hash/maphash"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Promise: Units taken while `SetPolicy` translates keys can be returned.
func TestGivenBackAfterTheWriterCameToTheKey(t *testing.T) {
	for _, c := range []struct {
		name string
		take func(t *testing.T, e *Engine[string]) (back func())
	}{
		{"Keep after others took", func(t *testing.T, e *Engine[string]) func() {
			r := e.Reserve("key", 4, 0)
			require.True(t, r.Allowed)
			require.True(t, e.Choke("key"))
			return func() {
				require.True(t, e.Choke("key"))
				r.Keep(1)
			}
		}},
		{"Acquire that gives up", func(t *testing.T, e *Engine[string]) func() {
			ctx, cancel := context.WithCancel(background)
			done := make(chan error)
			go func() {
				_, err := e.Acquire(ctx, "key", 20, 30*24*time.Hour)
				done <- err
			}()
			synctest.Wait()
			return func() {
				cancel()
				assert.ErrorIs(t, <-done, ErrCancelled)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			left := map[bool]int64{}
			for _, changed := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					hold, release := false, make(chan struct{})
					limit := funnel(20, 1, time.Hour)
					e := open[string](t, Config{Policy: limit, fault: func(point string) {
						if point == "recover: shard" && hold {
							<-release
						}
					}})
					require.True(t, e.Take("key", 3).Allowed)
					require.True(t, e.Choke("other"))
					settled(t, e)
					synctest.Wait()
					if hold = changed; changed {
						// The new limit has the same pace.
						require.NoError(t, e.SetPolicy(funnel(20, 2, 2*time.Hour)))
					}
					synctest.Wait()
					entry := e.table.View().Look(maphash.Comparable(e.table.View().Seed(), "key"), "key")
					back := c.take(t, e)
					close(release)
					synctest.Wait()
					require.Equal(t, changed, entry.Moved())
					back()
					left[changed] = e.Peek("key", 0).Remaining
				})
			}
			assert.Equal(t, left[false], left[true])
			assert.Less(t, int64(13), left[true], "it was 11 before")
		})
	}
}
