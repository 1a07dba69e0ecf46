package configured

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/families"
	"github.com/ral-limiter/ral/internal/testkit/redisd"
)

// overRedis configures servers of one Redis.
func overRedis(t *testing.T) families.Config {
	t.Helper()
	r, err := redisd.Open(redisd.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	return families.Config{Fleet: &families.Fleet{
		Redis: rueidis.ClientOption{InitAddress: []string{r.Addr()}, ForceSingleClient: true},
		Name:  "test", Budget: time.Minute, Servers: 1,
	}}
}

// Its words count as they are.
//
// Promise: Redis keys follow changes within a limit's kind and period; others are refused.
func TestLimitsInRedisChangeWithinTheirFamily(t *testing.T) {
	o := openIn(t, overRedis(t), "")
	o.set("window 10/300d")
	require.True(t, o.take("k", 7).Allowed)
	o.set("window 20/300d")
	assert.EqualValues(t, 13, o.remaining("k"))
	err := o.Set(file("funnel 20, 1/d"), nil)
	assert.ErrorContains(t, err, `limits.yaml:2: limits.api: keys count under "window 20/300d", of another family than "funnel 20, 1/d"`)
	assert.EqualValues(t, 13, o.remaining("k"))

	// A refused file leaves no limiter behind, and a removed limit keeps its limiter.
	before := o.engines()
	require.Error(t, o.Set(file("sliding 20/1d"), nil))
	assert.Equal(t, before, o.engines())
	require.NoError(t, o.Set(manyFamilies(t, 1, 1), nil))
	require.NoError(t, o.Set(manyFamilies(t, 1, 1), nil))
	err = o.Set(file("sliding 20/1d"), nil)
	assert.ErrorContains(t, err, "of another family")
	o.set("window 20/300d")
	assert.EqualValues(t, 13, o.remaining("k"))
}

// Each server tells refused calls turns at its part of the pace.
func TestServersOfRedisAreCounted(t *testing.T) {
	of := overRedis(t)
	of.Fleet.Servers = 0
	for n := 1; n <= 2; n++ {
		o := openIn(t, of, "")
		require.Eventually(t, func() bool { return o.Servers() == n }, time.Minute, time.Millisecond)
	}
}
