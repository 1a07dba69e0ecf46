//go:build unix

package child

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPausedServerAnswersNothing(t *testing.T) {
	s := start(t, RedisConfig{})
	require.NoError(t, s.Pause())
	assert.Error(t, s.Ping(50*time.Millisecond), "the kernel takes the connection, no answer comes")
	require.NoError(t, s.Resume())
	assert.NoError(t, s.Ping(patience))
	require.NoError(t, s.Pause())
	assert.NotZero(t, s.PID(), "it can be closed while it stands still")
}
