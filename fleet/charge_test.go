package fleet

import (
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/share"
	"github.com/ral-limiter/ral/fleet/internal/store"
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
		require.Less(t, redis.Calls()-before, keys/10, "too many calls of Redis charged the keys, even with the beats among them")
		for i := range 3 {
			require.EqualValues(t, 1000-i-1, take(t, l, strconv.Itoa(i), 0).Remaining)
		}
		time.Sleep(2 * beat)
		require.Equal(t, units, l.Stats().Charged, "each unit must be charged once")
	})
}

// slowRedis charges a key in some time, a script at a time.
type slowRedis struct {
	// core has an element while a script runs.
	core chan struct{}
	// trip is the time to Redis and back.
	trip    time.Duration
	key     time.Duration
	scripts int
	worked  time.Duration
	charged map[string]int64
}

func (r *slowRedis) chargeSlowly(debts []share.Debt) []fate {
	fates := make([]fate, len(debts))
	time.Sleep(r.trip / 2)
	r.core <- struct{}{}
	time.Sleep(time.Duration(len(debts)) * r.key)
	for i, d := range debts {
		fates[i].charged = true
		r.charged[d.Name] += d.Units
	}
	r.scripts++
	r.worked += time.Duration(len(debts)) * r.key
	<-r.core
	time.Sleep(r.trip / 2)
	return fates
}

// 10,000 keys are charged, each once, at 4 µs a key and 200 µs a round trip. While calls come,
// Redis works for all servers' charges a tenth of the time at most; otherwise nearly all the time.
func TestChargingLeavesRedisToCalls(t *testing.T) {
	const keys = 10_000
	for _, c := range []struct {
		name    string
		servers int
		// Calls come for until.
		until time.Duration
		// least and most bound the part of the time in which Redis works for this server.
		least, most float64
	}{
		{"no calls", 1, 0, 0.9, 1},
		{"no calls, many servers", 20, 0, 0.9, 1},
		{"calls", 1, time.Hour, 0.03, 0.1},
		{"calls, and other servers", 4, time.Hour, 0.007, 0.025},
		{"calls that end", 1, 100 * time.Millisecond, 0.1, 0.5},
		{"calls, and the limiter is closed", 1, time.Hour, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				redis := &slowRedis{core: make(chan struct{}, 1), trip: 200 * time.Microsecond, key: 4 * time.Microsecond, charged: map[string]int64{}}
				local, err := share.New(share.Config{
					Policy: policy.Must(policy.FixedWindow(1000, 24*time.Hour)), Servers: 1, MaxKeys: 4 * keys, Name: store.Tail,
				})
				require.NoError(t, err)
				want := int64(0)
				for i := range keys {
					local.Learn(strconv.Itoa(i), 0, policy.Instant(time.Hour))
					require.True(t, local.Take(strconv.Itoa(i), int64(i%3)+1, 0).Allowed)
					want += int64(i%3) + 1
				}
				var calls atomic.Uint64
				begun := time.Now()
				charger := charger{
					charge: redis.chargeSlowly, servers: func() int { return c.servers },
					sleep: func(d time.Duration) bool { time.Sleep(d); return true },
					calls: func() uint64 {
						if time.Since(begun) < c.until {
							calls.Add(1)
						}
						return calls.Load()
					},
				}
				if c.least == 0 {
					charger.sleep = func(time.Duration) bool { return false }
					_, more := charger.chargeAll(local)
					require.Len(t, redis.charged, chargeBatch)
					require.False(t, more)
					return
				}
				charged, slices := int64(0), 0
				for more := true; more; slices++ {
					slice := time.Now()
					var n int64
					n, more = charger.chargeAll(local)
					charged += n
					require.LessOrEqual(t, time.Since(slice), 2*chargeSlice+time.Millisecond, "a slice of charging took long, although the keeper has other duties")
				}
				took := time.Since(begun)
				require.Equal(t, want, charged)
				require.Len(t, redis.charged, keys)
				require.EqualValues(t, 2, redis.charged[store.Tail("1")])
				require.LessOrEqual(t, redis.scripts, keys/chargeBatch+slices, "batches of charges must be full")
				part := redis.worked.Seconds() / took.Seconds()
				t.Logf("%v for %v of Redis's time", took, redis.worked)
				require.GreaterOrEqual(t, part, c.least)
				require.LessOrEqual(t, part, c.most)
			})
		})
	}
}

// Promise: A fleet counts the units that outages admitted beyond the limit.
func TestExcessAfterAnOutageIsCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, redis *storetest.Redis) {
		l := open(t, on(redis, window(10, time.Hour)))
		take(t, l, "a", 9)
		take(t, l, "b", 9)
		require.True(t, letPass(l, "a", 1)) // as if this server had not heard of the others' units
		eventually(t, func() bool { return l.Stats().Charged == 1 }, "it is charged")
		require.Zero(t, l.Stats().Excess, "a charge within the limit counted as excess")
		require.True(t, letPass(l, "b", 4))
		eventually(t, func() bool { return l.Stats().Charged == 5 }, "all is charged")
		require.EqualValues(t, 3, l.Stats().Excess)
	})
}
