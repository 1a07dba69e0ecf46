package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A block holds on every server from when Block returns, and Reset on any lifts it.
func TestBlockHoldsOnAllServers(t *testing.T) {
	c := at(shared.Addr(), funnel(10, 1, time.Hour))
	a, b := open(t, c), open(t, c)
	require.True(t, take(t, b, "k", 1).Allowed)
	require.NoError(t, a.Block(t.Context(), "k", time.Hour))
	got := take(t, b, "k", 1)
	assert.False(t, got.Allowed)
	assert.ErrorIs(t, got.Cause, ErrBlocked)
	assert.True(t, got.Promised)
	assert.Greater(t, got.RetryAfter, 59*time.Minute)
	left, err := b.Blocked(t.Context(), "k")
	require.NoError(t, err)
	assert.Greater(t, left, 59*time.Minute)
	used, err := b.Reset(t.Context(), "k")
	require.NoError(t, err)
	assert.True(t, used)
	assert.True(t, take(t, a, "k", 10).Allowed)
}
