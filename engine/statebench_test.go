package engine

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const savedKeys = 1_000_000

// manyKeys returns an engine with a million keys that owe for long.
func manyKeys(b *testing.B) (*Engine[string], Config, []string) {
	b.Helper()
	config := Config{Policy: funnel(100, 1, time.Hour), MaxKeys: 2 * savedKeys}
	e, err := New[string](config)
	require.NoError(b, err)
	all := keys(savedKeys)
	for i, key := range all {
		e.Choke(key)
		if i%1000 == 0 {
			runtime.Gosched()
		}
	}
	for e.Len() < savedKeys || e.queue.Len() > 0 || e.table.View().Landed() > 0 {
		time.Sleep(time.Millisecond)
	}
	b.Cleanup(func() { require.NoError(b, e.Close()) })
	return e, config, all
}
