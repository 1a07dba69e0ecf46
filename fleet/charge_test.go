package fleet

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/policy"
)

func scripts(t testing.TB, redis *redistest.Server) (n int64) {
	t.Helper()
	reply := redis.Do(t, "INFO", "commandstats")
	text, err := reply.ToString()
	require.NoError(t, err)
	for _, found := range regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`).FindAllStringSubmatch(text, -1) {
		calls, err := strconv.ParseInt(found[1], 10, 64)
		require.NoError(t, err)
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
	redis := redistest.Start(t, redistest.Options{})
	inBubbleOf(t, redis, func(t *testing.T, line *redistest.Line) {
		c := over(line, policy.Must(policy.FixedWindow(1000, time.Hour)))
		l := open(t, c)
		before := scripts(t, redis)
		for i := range keys {
			require.True(t, letPass(l, strconv.Itoa(i), int64(i%3)+1))
		}
		units := uint64(0)
		for i := range keys {
			units += uint64(i%3) + 1
		}
		eventually(t, func() bool { return l.Stats().Charged == units }, "all is charged")
		ran := scripts(t, redis) - before
		require.GreaterOrEqual(t, ran, int64(keys/chargeBatch))
		require.Less(t, ran, int64(keys/10), "beats are among them, and what Redis did not know")
		for i := range 3 {
			require.EqualValues(t, 1000-i-1, take(t, l, strconv.Itoa(i), 0).Remaining)
		}
		time.Sleep(2 * beat)
		require.Equal(t, units, l.Stats().Charged, "once")
	})
}
