package fleet

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

func scripts(t testing.TB, redis *redistest.Server) (n int64) {
	t.Helper()
	reply := redis.Do(t, "INFO", "commandstats")
	text := must.Get(reply.ToString())
	for _, found := range regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`).FindAllStringSubmatch(text, -1) {
		calls := must.Get(strconv.ParseInt(found[1], 10, 64))
		n += calls
	}
	return n
}

// letPass has the share of an unused key let n units pass.
func letPass(l *Limiter, key string, n int64) bool {
	l.local.Learn(key, 0, policy.Instant(time.Now().Sub(l.config.Epoch))) //nolint:staticcheck // it judges no time, as time.Since would
	return l.local.Take(key, n, 0).Allowed
}

// Promise: Charges after an outage are few scripts.
func TestChargingIsBatched(t *testing.T) {
	const keys = 2000
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := open(t, on(redis, window(1000, time.Hour)))
		before, units := redis.Calls(), uint64(0)
		for i := range keys {
			require.True(t, letPass(l, strconv.Itoa(i), int64(i%3)+1))
			units += uint64(i%3) + 1
		}
		eventually(t, func() bool { return l.Stats().Charged == units }, "all is charged")
		require.GreaterOrEqual(t, redis.Calls()-before, keys/chargeBatch)
		require.Less(t, redis.Calls()-before, keys/10, "beats are among them")
		for i := range 3 {
			require.EqualValues(t, 1000-i-1, take(t, l, strconv.Itoa(i), 0).Remaining)
		}
		time.Sleep(2 * beat)
		require.Equal(t, units, l.Stats().Charged, "once")
	})
}
