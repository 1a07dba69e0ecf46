// Package redistest starts a Redis for a test of rald. Only tests import it.
package redistest

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/internal/testkit/child"
)

// Start starts a Redis that ends with the test.
func Start(t testing.TB) *child.Redis {
	t.Helper()
	redis, err := child.OpenRedis(child.RedisConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, redis.Close()) })
	return redis
}

// Open starts a Redis for the test, and returns the configuration of its one server. Only an outage
// spends the budget.
func Open(t testing.TB, outage fleet.Fallback) (families.Config, *child.Redis) {
	t.Helper()
	redis := Start(t)
	return families.Config{Fleet: &families.Fleet{
		Redis: rueidis.ClientOption{InitAddress: []string{redis.Addr()}, ForceSingleClient: true},
		Name:  "test", Budget: time.Minute, Servers: 1, Outage: outage,
	}}, redis
}
