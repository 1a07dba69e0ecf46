package table

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// A goroutine that has moved a word stands still before it says so. Meanwhile the key is reset,
// leaves the table, and is opened again: it is as good as new.
func TestHashedWordHasOneOwner(t *testing.T) {
	limit := policy.Must(policy.Funnel(1, 1, time.Hour))
	table := New[string](Options{Policy: limit, Idle: time.Minute, MaxKeys: 10})
	l := table.Loader()
	hash, _ := testHash("a")
	word, _ := limit.Take(0, 1, 1, 0)
	l.AddHashed(hash, word, false)
	l.Recall(testHash)
	view, of := table.View(), table.hash("a")
	stood := false
	table.step = func(point string) {
		if point != "recall: moved" || stood {
			return
		}
		stood = true
		e := view.Look(of, "a")
		require.Equal(t, word, e.Word())
		require.True(t, e.Advance(word, 0))
		table.File(of, 1)
		table.Sweep(policy.Instant(2*time.Hour), 10)
		require.Zero(t, view.Len())
		next, _ := view.Open(of, "a")
		require.NotSame(t, e, next)
		r, alive := view.State(next)
		require.True(t, alive)
		require.Zero(t, r.State, "the word came back")
		require.Equal(t, 1, view.HashedLen(), "it has not said so")
	}
	view.Open(of, "a")
	require.True(t, stood)
	require.Zero(t, view.HashedLen())
	require.Nil(t, table.hashed.Load(), "nothing is looked up any more")
	table.File(of, 1)
	require.NoError(t, table.Check())
}
