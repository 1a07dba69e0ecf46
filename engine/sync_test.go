package engine

import (
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Also while other saves are under way.
//
// Promise: `Sync` saves every earlier take.
func TestSyncSavesNow(t *testing.T) {
	config := inFile(t, Config{Policy: parsed(t, "window 1000/365d"), State: State{Every: time.Hour}})
	e, err := New[string](config)
	require.NoError(t, err)
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 5 {
				e.Choke("key")
				assert.NoError(t, e.Sync())
			}
		})
	}
	callers.Wait()

	// The process ends without Close: another engine loads the file.
	require.NoError(t, e.keeper.abandon())
	again, err := New[string](config)
	require.NoError(t, err)
	assert.EqualValues(t, 960, again.Peek("key", 0).Remaining)
	require.NoError(t, again.Close())
	assert.ErrorIs(t, again.Sync(), ErrClosed)
	assert.ErrorContains(t, e.Close(), "an earlier one", "the file is no longer its own")
	assert.ErrorIs(t, e.Sync(), ErrClosed)
	assert.NoError(t, open[string](t, Config{Policy: config.Policy}).Sync(), "without a file")
}

// A save under way may have missed units taken since its beginning. Sync waits for it and saves
// again.
func TestSyncWaitsForASaveUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New[string](inFile(t, Config{Policy: parsed(t, "window 1000/365d"), State: State{Every: time.Hour}}))
		require.NoError(t, err)
		defer func() { assert.NoError(t, e.Close()) }()
		begun, goOn, earlier, synced := make(chan struct{}), make(chan struct{}), make(chan error, 1), make(chan error, 1)
		go func() {
			earlier <- e.keeper.replace(func(w io.Writer) (saved, error) {
				n, err := e.save(w)
				close(begun)
				<-goOn
				return n, err
			}, false)
		}()
		<-begun
		e.Choke("key")
		go func() { synced <- e.Sync() }()
		synctest.Wait()
		close(goOn)
		require.NoError(t, <-earlier)
		require.NoError(t, <-synced)
		assert.Equal(t, 1, e.keeper.read().keys)
	})
}
