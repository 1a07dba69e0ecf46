package peers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/redisd"
)

func TestRedisIsGoneWhenItsLimiterIsClosed(t *testing.T) {
	l := must.Get(Redis("").New(bench.Setup{Limit: bench.Limit{Capacity: 1, Count: 1, Per: time.Hour}}))
	running := l.(*redisRate).server
	assert.FileExists(t, running.Addr())
	assert.True(t, l.Choke("a"))

	require.NoError(t, l.Close())
	assert.NoFileExists(t, running.Addr())
	assert.False(t, l.Choke("b"), "without an answer it is a no")
	assert.EqualValues(t, 1, l.(*redisRate).Counts().Unavailable)
}

func TestRedisOfOthersOutlivesALimiter(t *testing.T) {
	running, err := redisd.Open(redisd.Config{})
	require.NoError(t, err)
	defer func() { assert.NoError(t, running.Close()) }()
	setup := bench.Setup{Limit: bench.Limit{Capacity: 2, Count: 1, Per: time.Hour}}
	for range 2 {
		l := must.Get(RedisAt(running.Network(), running.Addr()).New(setup))
		assert.True(t, l.Choke("a"), "it still has what the first one took")
		require.NoError(t, l.Close())
	}
	l := must.Get(RedisAt(running.Network(), running.Addr()).New(setup))
	assert.False(t, l.Choke("a"))
	require.NoError(t, l.Close())
}
